// Tokenizer: text to token ids and back, from a vocabulary that a model file carries.
//
// Two kinds. Byte-level BPE: text is cut into words by the vocabulary's split pattern, every word
// becomes bytes, and the best-ranked neighbouring pair is merged until none is left. SentencePiece:
// characters, spaces among them, join by the scores of the tokens that they make.
// Thread rules: a Tokenizer is immutable; copies share it and all calls may run concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// How a vocabulary classes its tokens; the numbers are GGUF's tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // <|im_end|>: never printed, matched only where special tokens are allowed
  kUserDefined = 4,  // printed, but matched whole: as control tokens are, by SentencePiece always
  kUnused = 5,
  kByte = 6,
};

// A vocabulary as plain data. The views need to live only until Create returns.
struct TokenizerData {
  std::string model;  // "gpt2": byte-level BPE; "llama": SentencePiece
  // By id. "gpt2": bytes written with GPT-2's printable stand-ins; "llama": as they read, spaces as
  // "▁" (user-defined ones may hold either), tokens of one byte as "<0xE2>".
  std::vector<std::string_view> tokens;
  std::vector<int32_t> types;            // TokenType by id; empty means that all are normal
  std::string pre;                       // "gpt2": name of the split pattern: "smollm", …
  std::vector<std::string_view> merges;  // "gpt2": "left right", best first
  std::vector<float> scores;             // "llama": by id, the higher joins first
  int32_t bos = -1, eos = -1, unk = -1, pad = -1;  // -1 where the vocabulary has none
  bool add_bos = false;                            // Encode puts bos first
  // Text is given a space in front, at its beginning and after special tokens. "gpt2": unless it
  // begins with one, and with pre "gpt-2" only, refused with others.
  bool add_space_prefix = false;
};

// A stretch of prompt. Markup written by a template may name special tokens; what a user typed may
// not, or a message that contains "<|im_end|>" could close its own turn.
struct TextPart {
  std::string text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Checks everything and copies what it keeps. kUnsupported names an unknown model or pre and
  // lists the known ones; kCorrupt names the token, merge, score or id that is wrong.
  static Result<Tokenizer> Create(const TokenizerData& data);

  // Ids of `text`, after bos where the vocabulary asks for it. With parse_special the texts of
  // control and user-defined tokens become those tokens: leftmost first, longest first. Without it
  // no text becomes a control token.
  //
  // Any bytes are accepted. Every byte that is not part of a valid UTF-8 character is a word of its
  // own and becomes its byte's token. A byte that the vocabulary has no token for is left out (some
  // lack the bytes that UTF-8 never uses and a few control characters): see HasByteToken. A
  // character that a SentencePiece vocabulary can not spell becomes its unknown token.
  // kOutOfRange when the split pattern gives up on a text of several megabytes without a word
  // break.
  Result<std::vector<int32_t>> Encode(std::string_view text, bool parse_special) const;

  // The first `count` ids of Encode(text, false), or all of them where there are fewer. Reads
  // little more of the text than they stand for, so that a book need not be encoded for its first
  // page. kInvalidArgument for a count below 0; otherwise as Encode, of the part that was read.
  Result<std::vector<int32_t>> EncodeFirst(std::string_view text, int64_t count) const;

  // Ids of the parts read as one text; a special token is recognised only if it lies inside one
  // part that allows it. Words may cross the borders between parts.
  Result<std::vector<int32_t>> EncodeParts(std::span<const TextPart> parts) const;

  // The bytes a token stands for: seldom whole characters, see Utf8Stream. Control tokens give
  // their name. Empty for an id outside [0, vocab_size()), which a padded output layer can produce.
  std::string_view TokenBytes(int32_t id) const;

  // Bytes of all ids in a row; control tokens only with `include_control`. kInvalidArgument names
  // an id outside the vocabulary.
  Result<std::string> Decode(std::span<const int32_t> ids, bool include_control = false) const;

  // The token of exactly this spelling in the vocabulary, for example "<|im_start|>".
  std::optional<int32_t> FindToken(std::string_view spelling) const;

  bool IsControl(int32_t id) const;
  // True for eos and for the control tokens by which chat models end a turn or a text.
  bool IsEndOfGeneration(int32_t id) const;
  bool HasByteToken(uint8_t byte) const;

  int32_t vocab_size() const;  // tokens
  int32_t bos() const;         // -1 where absent, as the three below
  int32_t eos() const;
  int32_t unk() const;
  int32_t pad() const;
  bool add_bos() const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace kvant
