// SentencePieceEncoder: the pieces of libsentencepiece (GGUF's model "llama").
//
// Spaces are spelled "▁" (U+2581), characters join by the scores of what they make, user-defined
// tokens match first and whole, and a character that no token has becomes the tokens of its bytes,
// or the unknown token in a vocabulary without those. (SentencePiece, arXiv 1808.06226.)
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "model/token_encoder.h"
#include "model/tokenizer_vocab.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace kvant {

class SentencePieceEncoder : public TokenEncoder {
 public:
  // kCorrupt names what is missing or wrong in scores, unknown token or pieces.
  static Result<std::unique_ptr<TokenEncoder>> Create(const TokenizerData& data,
                                                      const TokenizerVocab& vocab);
  ~SentencePieceEncoder() override;

  Status Append(std::string_view text, std::vector<int32_t>& ids) const override;
  int32_t byte_token(uint8_t byte) const override { return byte_tokens_[byte]; }
  bool WantsSpaceBefore(std::string_view) const override { return add_space_prefix_; }
  bool EndsTokensBeforeSpaces() const override { return ends_tokens_before_spaces_; }

 private:
  explicit SentencePieceEncoder(const TokenizerVocab& vocab);

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::array<int32_t, 256> byte_tokens_;
  bool add_space_prefix_ = false;
  bool ends_tokens_before_spaces_ = false;
};

}  // namespace kvant
