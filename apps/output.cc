#include "output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "failure.h"

namespace kvant::cli {
namespace {

constexpr auto kQuietTime = std::chrono::seconds(2);
constexpr auto kRedrawTime = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;

// Bytes of a cell are not its width: "µ" and "–" take two and three bytes but one column.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

void Write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw Failure(kExitFailed,
                  fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

void Flush() {
  if (std::fflush(stdout) != 0) {
    throw Failure(kExitFailed,
                  fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

void Note(std::string_view message) { fmt::print(stderr, "kvant: {}\n", message); }

std::string Grouped(int64_t number) {
  std::string digits = fmt::format("{}", std::abs(number));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return (number < 0 ? "-" : "") + digits;
}

std::string Grouped(double number) {
  const double whole = std::trunc(number);
  std::string text = Grouped(static_cast<int64_t>(whole));
  if (whole != number) text += fmt::format("{:.2f}", std::fabs(number - whole)).substr(1);
  return text;
}

std::string Plural(int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", Grouped(count), word, count == 1 ? "" : "s");
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (std::fabs(bytes) >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string HumanRate(double bytes_per_s) {
  if (bytes_per_s >= 1e12) return fmt::format("{:.3f} TB/s", bytes_per_s / 1e12);
  return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
}

std::string HumanTime(double milliseconds) {
  if (milliseconds >= 1e4) return fmt::format("{:.2f} s", milliseconds / 1e3);
  if (milliseconds >= 0.1) return fmt::format("{:.3f} ms", milliseconds);
  return fmt::format("{:.2f} us", milliseconds * 1e3);
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  return widths;
}

std::string Table::Text(std::string_view indent) const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - Columns(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i == 0 ? row[i] + pad : pad + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string Table::Markdown() const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string pad(widths[i] - Columns(rows_[r][i]), ' ');
      text += i == 0 ? "| " + rows_[r][i] + pad + " |" : " " + pad + rows_[r][i] + " |";
    }
    text += "\n";
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      text += i == 0 ? "| " + std::string(widths[i], '-') + " |"
                     : " " + std::string(std::max<size_t>(widths[i], 2) - 1, '-') + ": |";
    }
    text += "\n";
  }
  return text;
}

std::string Table::Csv() const {
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + Quoted(row[i]);
    text += "\n";
  }
  return text;
}

Progress::Progress(std::string label)
    : label_(std::move(label)),
      begin_(std::chrono::steady_clock::now()),
      drawn_(begin_),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { Clear(); }

void Progress::Clear() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

void Progress::Update(double done, double total) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || total <= 0 || now - begin_ < kQuietTime || now - drawn_ < kRedrawTime) return;
  drawn_ = now;
  visible_ = true;
  const double part = std::clamp(done / total, 0.0, 1.0);
  const double elapsed_s = std::chrono::duration<double>(now - begin_).count();
  const int filled = static_cast<int>(part * kBarWidth);
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f} %  {:.0f} s left", label_, std::string(filled, '#'),
             std::string(kBarWidth - filled, '.'), 100 * part,
             part > 0 ? elapsed_s * (1 - part) / part : 0.0);
  std::fflush(stderr);
}

}  // namespace kvant::cli
