#include "model/bpe_encoder.h"

#include <utility>

namespace kvant {

BpeEncoder::BpeEncoder(PreTokenizer pre_tokenizer, Bpe bpe, bool add_space_prefix)
    : pre_tokenizer_(std::move(pre_tokenizer)),
      bpe_(std::move(bpe)),
      add_space_prefix_(add_space_prefix) {}

Result<std::unique_ptr<TokenEncoder>> BpeEncoder::Create(const TokenizerData& data,
                                                         const TokenizerVocab& vocab) {
  KVANT_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(data.pre));
  if (data.add_space_prefix && !pre_tokenizer.takes_space_prefix()) {
    return Status::Unsupported("a space prefix has no meaning with the pre-tokenizer '" + data.pre +
                               "'");
  }
  KVANT_ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(vocab.spelling_to_id(), data.merges));
  std::unique_ptr<BpeEncoder> encoder(
      new BpeEncoder(std::move(pre_tokenizer), std::move(bpe), data.add_space_prefix));
  if (encoder->pre_tokenizer_.ignore_merges()) encoder->IndexWords(vocab);
  return std::unique_ptr<TokenEncoder>(std::move(encoder));
}

void BpeEncoder::IndexWords(const TokenizerVocab& vocab) {
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.type(id) == TokenType::kNormal) word_ids_.try_emplace(vocab.bytes(id), id);
  }
}

Status BpeEncoder::Append(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<std::string_view> words;
  KVANT_RETURN_IF_ERROR(pre_tokenizer_.Split(text, words));
  Bpe::Scratch scratch;
  for (const std::string_view word : words) {
    if (const auto it = word_ids_.find(word); it != word_ids_.end()) {
      ids.push_back(it->second);
    } else {
      bpe_.Append(word, scratch, ids);
    }
  }
  return Status::Ok();
}

}  // namespace kvant
