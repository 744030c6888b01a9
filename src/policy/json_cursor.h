// Reads the JSON of a head-class file from front to back: objects, arrays, numbers, and strings
// without escapes, which is all that such a file has. The first error stays, and names its byte.
#pragma once

#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "kvant/status.h"

namespace kvant {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // Takes a mark such as '{' if it comes next.
  bool Take(char mark) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != mark) return false;
    ++at_;
    return true;
  }
  Status Expect(char mark) {
    return Take(mark) ? Status::Ok() : Wrong(std::string("no '") + mark + "'");
  }
  // Whether a list goes on: a comma, or the mark that ends it.
  Status Continue(char end, bool* more) {
    *more = Take(',');
    return *more ? Status::Ok() : Expect(end);
  }

  Status String(std::string_view* string) {
    KVANT_RETURN_IF_ERROR(Expect('"'));
    const size_t end = text_.find_first_of("\"\\\n", at_);
    if (end == text_.npos || text_[end] != '"') return Wrong("no plain string");
    *string = text_.substr(at_, end - at_);
    at_ = end + 1;
    return Status::Ok();
  }

  template <typename T>
  Status Number(T* number) {
    SkipBlanks();
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), *number);
    // from_chars takes "inf" and "nan" too, which JSON has not.
    const bool digits = end != begin && std::isdigit(static_cast<unsigned char>(end[-1])) != 0;
    if (error != std::errc() || !digits) return Wrong("no number that fits");
    at_ += static_cast<size_t>(end - begin);
    return Status::Ok();
  }

  Status ExpectEnd() {
    SkipBlanks();
    return at_ == text_.size() ? Status::Ok() : Wrong("something follows");
  }
  Status Wrong(const std::string& what) const {
    return Status::Corrupt("head classes: " + what + " at byte " + std::to_string(at_));
  }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos) {
      ++at_;
    }
  }
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace kvant
