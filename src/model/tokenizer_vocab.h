// TokenizerVocab: what every token id is: its spelling, its bytes, its type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvant/status.h"
#include "kvant/tokenizer.h"

namespace kvant {

// How a vocabulary writes the bytes of its tokens.
enum class TokenSpelling {
  kByteStandIns,   // every byte as one printable character (unicode_bytes.h)
  kSentencePiece,  // as they read, but for spaces; tokens of one byte as "<0xE2>"
};

inline constexpr std::string_view kSentencePieceSpace = "\u2581";

// Owns its strings. Thread rules: immutable. Not copyable: the index points into the spellings.
class TokenizerVocab {
 public:
  // kCorrupt names the token or id that is wrong: an unknown type, a spelling that two ids share, a
  // special id outside the vocabulary, add_bos without a bos, a byte token that names no byte.
  static Result<TokenizerVocab> Create(const TokenizerData& data, TokenSpelling spelling);
  TokenizerVocab(TokenizerVocab&&) = default;
  TokenizerVocab& operator=(TokenizerVocab&&) = default;
  TokenizerVocab(const TokenizerVocab&) = delete;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool Contains(int32_t id) const { return id >= 0 && id < size(); }
  // REQUIRES: Contains(id).
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  std::string_view bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }

  const std::unordered_map<std::string_view, int32_t>& spelling_to_id() const { return ids_; }

  // The longest control token that `text` begins with, or user-defined one where these are not the
  // encoder's to find, as they are SentencePiece's.
  std::optional<int32_t> SpecialAt(std::string_view text) const;

 private:
  TokenizerVocab() = default;

  std::vector<std::string> spellings_, bytes_;  // by id
  std::vector<TokenType> types_;
  std::unordered_map<std::string_view, int32_t> ids_;  // of the spellings that are not empty
  std::array<std::vector<int32_t>, 256> specials_;     // by first byte, longest first
};

}  // namespace kvant
