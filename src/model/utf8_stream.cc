#include "kvant/utf8_stream.h"

#include <algorithm>
#include <utility>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = ReadUtf8(text);
    if (c.kind != Utf8Kind::kComplete) return false;
    text.remove_prefix(static_cast<size_t>(c.bytes));
  }
  return true;
}

}  // namespace

std::string Utf8Stream::Append(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Char c = ReadUtf8(rest);
    if (c.kind == Utf8Kind::kIncomplete) break;
    const auto length = static_cast<size_t>(c.bytes);
    out += c.kind == Utf8Kind::kComplete ? rest.substr(0, length) : kReplacement;
    rest.remove_prefix(length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::Flush() {
  const bool truncated = !pending_.empty();
  pending_.clear();
  return truncated ? std::string(kReplacement) : std::string();
}

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) return Status::InvalidArgument("a stop string is empty");
    if (!IsValidUtf8(stop)) return Status::InvalidArgument("a stop string is not valid UTF-8");
  }
  return StopMatcher(std::move(stops));
}

size_t StopMatcher::LongestStopEndingAt(size_t end) const {
  const std::string_view text = std::string_view(held_).substr(0, end);
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    if (text.ends_with(stop)) longest = std::max(longest, stop.size());
  }
  return longest;
}

// Length of the longest end of held_ that some stop string begins with.
size_t StopMatcher::UndecidedBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string StopMatcher::Append(std::string_view text) {
  if (stopped_) return {};
  const size_t seen = held_.size();
  held_ += text;
  for (size_t end = seen + 1; end <= held_.size(); ++end) {
    const size_t stop = LongestStopEndingAt(end);
    if (stop == 0) continue;
    stopped_ = true;
    held_.resize(end - stop);
    return std::exchange(held_, {});
  }
  const size_t shown = held_.size() - UndecidedBytes();
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace kvant
