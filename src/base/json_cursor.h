// Reads JSON from front to back, one value after the other, without building a tree. An error names
// what was read and the byte where it went wrong.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvant/status.h"

namespace kvant {

class JsonCursor {
 public:
  // `subject` begins every error: "head classes". Both must outlive the cursor.
  JsonCursor(std::string_view text, std::string_view subject) : text_(text), subject_(subject) {}

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

  // A string without escapes.
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

  // visit(name) for each member of an object; it must take the member's value. Names have no
  // escapes.
  template <typename Visit>
  Status ForEachMember(const Visit& visit) {
    KVANT_RETURN_IF_ERROR(Expect('{'));
    for (bool more = !Take('}'); more;) {
      std::string_view name;
      KVANT_RETURN_IF_ERROR(String(&name));
      KVANT_RETURN_IF_ERROR(Expect(':'));
      KVANT_RETURN_IF_ERROR(visit(name));
      KVANT_RETURN_IF_ERROR(Continue('}', &more));
    }
    return Status::Ok();
  }

  // visit() for each element of an array; it must take the element.
  template <typename Visit>
  Status ForEachElement(const Visit& visit) {
    KVANT_RETURN_IF_ERROR(Expect('['));
    for (bool more = !Take(']'); more;) {
      KVANT_RETURN_IF_ERROR(visit());
      KVANT_RETURN_IF_ERROR(Continue(']', &more));
    }
    return Status::Ok();
  }

  // Passes over a value of any kind. Its brackets must close, but what stands between them is not
  // judged: for members that nobody reads.
  Status SkipValue() {
    SkipBlanks();
    int64_t depth = 0;
    do {
      if (at_ == text_.size()) return Wrong("a value without an end");
      switch (text_[at_]) {
        case '"':
          KVANT_RETURN_IF_ERROR(SkipString());
          break;
        case '{':
        case '[':
          ++depth;
          ++at_;
          break;
        case '}':
        case ']':
          if (--depth < 0) return Wrong("no value");
          ++at_;
          break;
        case ',':
          if (depth == 0) return Wrong("no value");
          ++at_;
          break;
        default:
          at_ = std::min(text_.find_first_of("\"{}[],", at_ + 1), text_.size());
      }
    } while (depth > 0);
    return Status::Ok();
  }

  Status ExpectEnd() {
    SkipBlanks();
    return at_ == text_.size() ? Status::Ok() : Wrong("something follows");
  }
  Status Wrong(const std::string& what) const {
    return Status::Corrupt(std::string(subject_) + ": " + what + " at byte " + std::to_string(at_));
  }

 private:
  Status SkipString() {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '"') {
        ++at_;
        return Status::Ok();
      }
    }
    at_ = text_.size();
    return Wrong("a string without an end");
  }
  void SkipBlanks() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos) {
      ++at_;
    }
  }
  std::string_view text_;
  std::string_view subject_;
  size_t at_ = 0;
};

}  // namespace kvant
