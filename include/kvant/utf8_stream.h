// Utf8Stream and StopMatcher: what may be shown of a text that arrives token by token.
//
// Tokens end in the middle of characters, and stop strings in the middle of tokens. Both classes
// hold back the shortest end of the text that is not decided yet, so the pieces put together are
// the same text however it was cut. Chain them: bytes -> Utf8Stream -> StopMatcher -> the reader.
// Thread rules: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

class Utf8Stream {
 public:
  // All characters that the bytes so far complete and that were not given before. What can begin no
  // character becomes one U+FFFD for each longest beginning, at once: a stray byte never holds the
  // stream up.
  std::string Append(std::string_view bytes);

  // The end of the text: one U+FFFD if it stops inside a character, else nothing. The stream is
  // then as new.
  std::string Flush();

 private:
  std::string pending_;  // at most 3 bytes: a well-formed beginning
};

class StopMatcher {
 public:
  // kInvalidArgument for an empty stop string, which would stop everywhere, or one that is not
  // valid UTF-8, which could never be met. No stop strings at all is fine.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  // Text that may be shown. Once a stop string is complete, the text before it; then always
  // nothing. Of several the one that is complete first counts, of those that end together the
  // longest.
  std::string Append(std::string_view text);

  // The end of the text: what was held back as a possible beginning of a stop string.
  std::string Flush();

  bool stopped() const { return stopped_; }

 private:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  size_t LongestStopEndingAt(size_t end) const;
  size_t UndecidedBytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kvant
