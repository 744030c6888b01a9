#include "kvant/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/bpe_encoder.h"
#include "model/sentence_piece_encoder.h"
#include "model/tokenizer_vocab.h"
#include "model/unicode_bytes.h"

namespace kvant {
namespace {

// Control tokens that end a turn or a text in vocabularies whose eos is only one of them.
constexpr std::string_view kEndings[] = {"<|im_end|>", "<|endoftext|>",   "<|eot_id|>",
                                         "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>"};

// The kinds of vocabularies, by the names that GGUF files have for them.
struct VocabularyKind {
  std::string_view model;
  TokenSpelling spelling;
  Result<std::unique_ptr<TokenEncoder>> (*make_encoder)(const TokenizerData&,
                                                        const TokenizerVocab&);
};
constexpr VocabularyKind kKinds[] = {
    {"gpt2", TokenSpelling::kByteStandIns, BpeEncoder::Create},
    {"llama", TokenSpelling::kSentencePiece, SentencePieceEncoder::Create},
};

Result<const VocabularyKind*> FindKind(const std::string& model) {
  std::string known;
  for (const VocabularyKind& kind : kKinds) {
    if (kind.model == model) return &kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.model);
  }
  return Status::Unsupported("unknown tokenizer model '" + Beginning(model) + "'; known: " + known);
}

// Where a part of about so many tokens ends: at a space behind a letter, or at the end of the text.
// Tokens of prose have 4 to 5 bytes; what a part lacks, the next one makes up for.
size_t PartEnd(std::string_view text, size_t tokens) {
  for (size_t at = 4 * std::min(tokens, text.size()) + 64; at < text.size(); ++at) {
    if (text[at] == ' ' && IsAsciiLetter(text[at - 1])) return at;
  }
  return text.size();
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerVocab vocab_in) : vocab(std::move(vocab_in)) {}

  void FindEndings();
  Status EncodeText(std::string_view text, std::vector<int32_t>& ids) const;
  Status EncodePlain(std::string_view text, std::vector<int32_t>& ids) const;
  Result<std::vector<int32_t>> Encode(
      std::string_view text, std::span<const std::pair<size_t, size_t>> special_ranges) const;

  TokenizerVocab vocab;
  std::unique_ptr<const TokenEncoder> encoder;
  std::vector<int32_t> endings;
  int32_t bos = -1, eos = -1, unk = -1, pad = -1;
  bool add_bos = false;
};

Result<Tokenizer> Tokenizer::Create(const TokenizerData& data) {
  KVANT_ASSIGN_OR_RETURN(const VocabularyKind* const kind, FindKind(data.model));
  KVANT_ASSIGN_OR_RETURN(TokenizerVocab vocab, TokenizerVocab::Create(data, kind->spelling));
  auto impl = std::make_shared<Impl>(std::move(vocab));
  KVANT_ASSIGN_OR_RETURN(impl->encoder, kind->make_encoder(data, impl->vocab));
  impl->bos = data.bos;
  impl->eos = data.eos;
  impl->unk = data.unk;
  impl->pad = data.pad;
  impl->add_bos = data.add_bos;
  impl->FindEndings();
  return Tokenizer(std::shared_ptr<const Impl>(std::move(impl)));
}

void Tokenizer::Impl::FindEndings() {
  if (eos >= 0) endings.push_back(eos);
  for (const std::string_view name : kEndings) {
    const auto it = vocab.spelling_to_id().find(name);
    if (it == vocab.spelling_to_id().end() || it->second == eos) continue;
    if (vocab.type(it->second) == TokenType::kControl) endings.push_back(it->second);
  }
}

// Text without special tokens, which may hold invalid UTF-8: those bytes stand for themselves.
Status Tokenizer::Impl::EncodePlain(std::string_view text, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    size_t valid = 0;
    Utf8Char stop{Utf8Kind::kComplete, 0, 0};
    while (valid < text.size()) {
      stop = ReadUtf8(text.substr(valid));
      if (stop.kind != Utf8Kind::kComplete) break;
      valid += static_cast<size_t>(stop.bytes);
    }
    KVANT_RETURN_IF_ERROR(encoder->Append(text.substr(0, valid), ids));
    text.remove_prefix(valid);
    if (text.empty()) break;
    for (int i = 0; i < stop.bytes; ++i) {
      const int32_t id = encoder->byte_token(static_cast<uint8_t>(text[static_cast<size_t>(i)]));
      if (id >= 0) ids.push_back(id);
    }
    text.remove_prefix(static_cast<size_t>(stop.bytes));
  }
  return Status::Ok();
}

Status Tokenizer::Impl::EncodeText(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty() || !encoder->WantsSpaceBefore(text)) return EncodePlain(text, ids);
  std::string prefixed(1, ' ');
  prefixed += text;
  return EncodePlain(prefixed, ids);
}

// special_ranges: [begin, end) byte ranges, ascending, in which special tokens may be named.
Result<std::vector<int32_t>> Tokenizer::Impl::Encode(
    std::string_view text, std::span<const std::pair<size_t, size_t>> special_ranges) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Status::OutOfRange("a text of " + std::to_string(text.size()) + " bytes is too long");
  }
  std::vector<int32_t> ids;
  if (add_bos) ids.push_back(bos);
  size_t done = 0;
  for (const auto& [begin, end] : special_ranges) {
    for (size_t at = begin; at < end;) {
      const std::optional<int32_t> special = vocab.SpecialAt(text.substr(at, end - at));
      if (!special) {
        ++at;
        continue;
      }
      KVANT_RETURN_IF_ERROR(EncodeText(text.substr(done, at - done), ids));
      ids.push_back(*special);
      at += vocab.bytes(*special).size();
      done = at;
    }
  }
  KVANT_RETURN_IF_ERROR(EncodeText(text.substr(done), ids));
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  const std::pair<size_t, size_t> whole[] = {{0, text.size()}};
  return impl_->Encode(text, std::span(whole, parse_special ? 1 : 0));
}

Result<std::vector<int32_t>> Tokenizer::EncodeFirst(std::string_view text, int64_t count) const {
  if (count < 0) {
    return Status::InvalidArgument("there are no first " + std::to_string(count) + " tokens");
  }
  const auto wanted = static_cast<size_t>(count);
  const bool in_parts = impl_->encoder->EndsTokensBeforeSpaces();
  size_t done = in_parts ? PartEnd(text, wanted) : text.size();
  KVANT_ASSIGN_OR_RETURN(std::vector<int32_t> ids, Encode(text.substr(0, done), false));
  while (ids.size() < wanted && done < text.size()) {
    const std::string_view rest = text.substr(done);
    const size_t end = PartEnd(rest, wanted - ids.size());
    KVANT_RETURN_IF_ERROR(impl_->EncodePlain(rest.substr(0, end), ids));
    done += end;
  }
  ids.resize(std::min(ids.size(), wanted));
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodeParts(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<std::pair<size_t, size_t>> special_ranges;
  for (const TextPart& part : parts) {
    if (part.parse_special)
      special_ranges.emplace_back(text.size(), text.size() + part.text.size());
    text += part.text;
  }
  return impl_->Encode(text, special_ranges);
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return impl_->vocab.Contains(id) ? impl_->vocab.bytes(id) : std::string_view();
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool include_control) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!impl_->vocab.Contains(id)) {
      return Status::InvalidArgument("token id " + std::to_string(id) +
                                     " is outside the vocabulary of " +
                                     std::to_string(vocab_size()) + " tokens");
    }
    if (include_control || !IsControl(id)) text += impl_->vocab.bytes(id);
  }
  return text;
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view spelling) const {
  const auto it = impl_->vocab.spelling_to_id().find(spelling);
  if (it == impl_->vocab.spelling_to_id().end()) return std::nullopt;
  return it->second;
}

bool Tokenizer::IsControl(int32_t id) const {
  return impl_->vocab.Contains(id) && impl_->vocab.type(id) == TokenType::kControl;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return std::find(impl_->endings.begin(), impl_->endings.end(), id) != impl_->endings.end();
}

bool Tokenizer::HasByteToken(uint8_t byte) const { return impl_->encoder->byte_token(byte) >= 0; }

int32_t Tokenizer::vocab_size() const { return impl_->vocab.size(); }
int32_t Tokenizer::bos() const { return impl_->bos; }
int32_t Tokenizer::eos() const { return impl_->eos; }
int32_t Tokenizer::unk() const { return impl_->unk; }
int32_t Tokenizer::pad() const { return impl_->pad; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }

}  // namespace kvant
