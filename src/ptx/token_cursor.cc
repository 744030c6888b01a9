#include "ptx/token_cursor.h"

#include <charconv>

namespace kvant::ptx {
namespace {

// All of `digits` as a number in `base`.
bool ParseDigits(std::string_view digits, int base, uint64_t* value) {
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, *value, base);
  return result.ec == std::errc() && result.ptr == end;
}

bool ParseUnsigned(std::string_view text, uint64_t* value) {
  if (text.ends_with('U')) text.remove_suffix(1);
  if (text.size() > 2 && text[0] == '0') {
    const std::string_view digits = text.substr(2);
    switch (text[1]) {
      case 'x':
      case 'X':
        return ParseDigits(digits, 16, value);
      case 'f':
      case 'F':
        return digits.size() == 8 && ParseDigits(digits, 16, value);
      case 'd':
      case 'D':
        return digits.size() == 16 && ParseDigits(digits, 16, value);
      case 'b':
      case 'B':
        return ParseDigits(digits, 2, value);
      default:
        break;
    }
  }
  return ParseDigits(text, text.size() > 1 && text[0] == '0' ? 8 : 10, value);
}

}  // namespace

Result<uint64_t> TokenCursor::ExpectNumber(std::string_view what) {
  const bool is_negative = Accept("-");
  if (Peek().kind != Token::Kind::kNumber) return Unexpected(what);
  uint64_t value = 0;
  if (!ParseUnsigned(Peek().text, &value)) {
    return Status::Unsupported(
        AtLine(line(), "the number '" + std::string(Peek().text) + "' cannot be read"));
  }
  Take();
  return is_negative ? 0 - value : value;
}

}  // namespace kvant::ptx
