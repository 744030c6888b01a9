// PTX text as tokens with their lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant::ptx {

struct Token {
  enum class Kind : uint8_t {
    kWord,         // a directive, an opcode with its modifiers, a register, a label, a variable
    kNumber,       // digits, 0x..., 0f... or 0d...; the sign is a token of its own
    kString,       // without its quotes
    kPunctuation,  // one character
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string_view text;  // of the source, which must outlive the token
  int line = 0;           // from 1

  bool Is(std::string_view expected) const { return kind != Kind::kString && text == expected; }
};

// "line 12: what went wrong".
std::string AtLine(int line, std::string_view message);

// The tokens of `source`, the last one of kind kEnd. kCorrupt for a character that no PTX has, or a
// comment or string without an end.
Result<std::vector<Token>> Lex(std::string_view source);

}  // namespace kvant::ptx
