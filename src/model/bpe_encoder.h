// BpeEncoder: words cut by a split pattern, their bytes merged by rank (GGUF's model "gpt2").
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/bpe.h"
#include "model/pre_tokenizer.h"
#include "model/token_encoder.h"
#include "model/tokenizer_vocab.h"

namespace kvant {

class BpeEncoder : public TokenEncoder {
 public:
  // kUnsupported for an unknown split pattern, or a space prefix where the pattern takes none;
  // kCorrupt names a merge that is wrong. `vocab` must outlive the encoder.
  static Result<std::unique_ptr<TokenEncoder>> Create(const TokenizerData& data,
                                                      const TokenizerVocab& vocab);

  Status Append(std::string_view text, std::vector<int32_t>& ids) const override;
  int32_t byte_token(uint8_t byte) const override { return bpe_.byte_token(byte); }
  // A text that begins with a space has its prefix already.
  bool WantsSpaceBefore(std::string_view text) const override {
    return add_space_prefix_ && text[0] != ' ';
  }
  // Words do, and tokens do not leave their words.
  bool EndsTokensBeforeSpaces() const override { return true; }

 private:
  BpeEncoder(PreTokenizer pre_tokenizer, Bpe bpe, bool add_space_prefix);
  void IndexWords(const TokenizerVocab& vocab);

  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  bool add_space_prefix_;
  std::unordered_map<std::string_view, int32_t> word_ids_;  // of normal tokens, if merges yield
};

}  // namespace kvant
