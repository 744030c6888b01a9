// Bytes and characters: one step of UTF-8 decoding, and GPT-2's printable stand-ins for bytes.
//
// Byte-level vocabularies spell every byte as one printable character, so that a token list is
// readable text: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards
// (a space is "Ġ", U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvant {

enum class Utf8Kind {
  kComplete,    // a well-formed character
  kIncomplete,  // a well-formed beginning that the text ends in
  kInvalid,     // no character begins so
};

inline bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// What stands at the beginning of a text. For kInvalid and kIncomplete `bytes` is the longest part
// that a well-formed character could begin with (at least 1), the unit that one U+FFFD replaces.
struct Utf8Char {
  Utf8Kind kind;
  int bytes;
  uint32_t code_point;  // of kComplete only
};

// REQUIRES: text is not empty.
Utf8Char ReadUtf8(std::string_view text);

// Appends the UTF-8 form. REQUIRES: a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string& out);

// The character that stands for a byte, and back (-1 for a character that stands for none).
uint32_t ByteStandIn(uint8_t byte);
int StandInByte(uint32_t code_point);

// The bytes that a token's spelling stands for; nullopt if it has a character that is no stand-in.
std::optional<std::string> SpellingToBytes(std::string_view spelling);

// At most the first 40 characters, in one line: untrusted text as an error message may quote it.
std::string Beginning(std::string_view text);

}  // namespace kvant
