// TokenEncoder: plain text to token ids, one implementation for each kind of vocabulary.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// Thread rules: immutable; all calls may run concurrently.
class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;

  // Appends the ids of a text in which no token is special. REQUIRES: text is valid UTF-8.
  // kOutOfRange as Tokenizer::Encode says.
  virtual Status Append(std::string_view text, std::vector<int32_t>& ids) const = 0;

  // The token of one byte that is not part of a character; -1 where there is none.
  virtual int32_t byte_token(uint8_t byte) const = 0;

  // Whether the vocabulary wants a space put in front of a text that begins so. REQUIRES: not
  // empty.
  virtual bool WantsSpaceBefore(std::string_view text) const = 0;

  // Whether no token reaches from an ASCII letter into a space behind it, and where one ends does
  // not depend on what stands beyond the other: then a text can be encoded in parts cut there.
  virtual bool EndsTokensBeforeSpaces() const = 0;
};

}  // namespace kvant
