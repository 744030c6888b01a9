// What a command prints: text on standard output, numbers as people read them, tables, progress.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant::cli {

// Writes to standard output; throws Failure when that is no longer possible.
void Write(std::string_view text);

template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  Write(fmt::format(format, std::forward<Args>(args)...));
}

void Flush();

// One line on standard error, "kvant: …".
void Note(std::string_view message);

std::string Grouped(int64_t number);                       // 1,234,567
std::string Grouped(double number);                        // the same; a fraction keeps two digits
std::string Plural(int64_t count, std::string_view word);  // "1 layer", "2 layers"
std::string HumanBytes(double bytes);                      // "544.00 MiB"
std::string HumanRate(double bytes_per_s);                 // "1.550 TB/s"
std::string HumanTime(double milliseconds);                // "0.368 ms", "27.5 us"

// Columns of text; the first is flush left, all others flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Text(std::string_view indent = "  ") const;
  std::string Markdown() const;
  std::string Csv() const;

 private:
  std::vector<size_t> Widths() const;
  std::vector<std::vector<std::string>> rows_;
};

// A bar on standard error: only on a terminal, and only for work that takes over two seconds.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  void Update(double done, double total);
  void Clear();  // wipes the bar; the next Update may draw it again

 private:
  std::string label_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point drawn_;
  bool terminal_;
  bool visible_ = false;
};

}  // namespace kvant::cli
