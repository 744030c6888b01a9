#include "model/tokenizer_vocab.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

std::string Describe(size_t id, std::string_view spelling) {
  return "token " + std::to_string(id) + " '" + Beginning(spelling) + "'";
}

Status CheckIds(const TokenizerData& data) {
  const std::pair<const char*, int32_t> ids[] = {
      {"bos", data.bos}, {"eos", data.eos}, {"unk", data.unk}, {"pad", data.pad}};
  for (const auto& [name, id] : ids) {
    if (id >= -1 && id < static_cast<int64_t>(data.tokens.size())) continue;
    return Status::Corrupt("the " + std::string(name) + " id " + std::to_string(id) +
                           " is outside the vocabulary of " + std::to_string(data.tokens.size()) +
                           " tokens");
  }
  if (data.add_bos && data.bos < 0) {
    return Status::Corrupt("the vocabulary asks for a bos token in front but names none");
  }
  return Status::Ok();
}

Status CheckSizes(const TokenizerData& data) {
  if (data.tokens.empty()) return Status::Corrupt("the vocabulary has no tokens");
  if (data.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Status::Corrupt("the vocabulary has " + std::to_string(data.tokens.size()) + " tokens");
  }
  if (!data.types.empty() && data.types.size() != data.tokens.size()) {
    return Status::Corrupt("the vocabulary has " + std::to_string(data.tokens.size()) +
                           " tokens but " + std::to_string(data.types.size()) + " token types");
  }
  return Status::Ok();
}

bool IsSpecial(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined;
}

// Special tokens are spelled as they read, all others byte by byte. A spelling that stands for no
// bytes (some vocabularies hold a few) means itself; no merge can reach it.
std::string StandInBytes(std::string_view spelling, TokenType type) {
  if (!IsSpecial(type) && type != TokenType::kUnknown) {
    if (std::optional<std::string> bytes = SpellingToBytes(spelling)) return *std::move(bytes);
  }
  return std::string(spelling);
}

// The byte that "<0xE2>" names; nullopt for another spelling.
std::optional<uint8_t> NamedByte(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return {};
  uint8_t byte = 0;
  const char *const digits = spelling.data() + 3, *const end = digits + 2;
  const auto [stop, error] = std::from_chars(digits, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return byte;
}

Result<std::string> SentencePieceBytes(std::string_view spelling, TokenType type) {
  if (type == TokenType::kByte) {
    const std::optional<uint8_t> byte = NamedByte(spelling);
    if (!byte) return Status::Corrupt("names no byte");
    return std::string(1, static_cast<char>(*byte));
  }
  std::string bytes(spelling);
  if (type == TokenType::kControl || type == TokenType::kUnknown) return bytes;
  for (size_t at = 0; (at = bytes.find(kSentencePieceSpace, at)) != bytes.npos; ++at) {
    bytes.replace(at, kSentencePieceSpace.size(), " ");
  }
  return bytes;
}

Result<std::string> BytesOf(std::string_view text, TokenType type, TokenSpelling spelling) {
  if (spelling == TokenSpelling::kSentencePiece) return SentencePieceBytes(text, type);
  return StandInBytes(text, type);
}

}  // namespace

Result<TokenizerVocab> TokenizerVocab::Create(const TokenizerData& data,
                                              TokenSpelling spelling_kind) {
  KVANT_RETURN_IF_ERROR(CheckSizes(data));
  KVANT_RETURN_IF_ERROR(CheckIds(data));
  TokenizerVocab vocab;
  const size_t count = data.tokens.size();
  vocab.spellings_.assign(data.tokens.begin(), data.tokens.end());
  vocab.bytes_.reserve(count);
  vocab.types_.reserve(count);
  vocab.ids_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view spelling = vocab.spellings_[i];
    const auto id = static_cast<int32_t>(i);
    const int32_t number =
        data.types.empty() ? static_cast<int32_t>(TokenType::kNormal) : data.types[i];
    if (number < static_cast<int32_t>(TokenType::kNormal) ||
        number > static_cast<int32_t>(TokenType::kByte)) {
      return Status::Corrupt(Describe(i, spelling) + " has the unknown type " +
                             std::to_string(number));
    }
    const auto type = static_cast<TokenType>(number);
    vocab.types_.push_back(type);
    Result<std::string> bytes = BytesOf(spelling, type, spelling_kind);
    if (!bytes.ok()) {
      return Status::Corrupt(Describe(i, spelling) + " " + bytes.status().message());
    }
    vocab.bytes_.push_back(std::move(bytes).value());
    if (spelling.empty()) continue;
    const auto [it, inserted] = vocab.ids_.try_emplace(spelling, id);
    if (!inserted) {
      return Status::Corrupt(Describe(i, spelling) + " is spelled as token " +
                             std::to_string(it->second) + " is");
    }
    const bool found_by_encoder =
        spelling_kind == TokenSpelling::kSentencePiece && type == TokenType::kUserDefined;
    if (IsSpecial(type) && !found_by_encoder) {
      vocab.specials_[static_cast<uint8_t>(spelling[0])].push_back(id);
    }
  }
  for (std::vector<int32_t>& specials : vocab.specials_) {
    std::stable_sort(specials.begin(), specials.end(), [&](int32_t a, int32_t b) {
      return vocab.bytes(a).size() > vocab.bytes(b).size();
    });
  }
  return vocab;
}

std::optional<int32_t> TokenizerVocab::SpecialAt(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  for (const int32_t id : specials_[static_cast<uint8_t>(text[0])]) {
    if (text.starts_with(bytes(id))) return id;
  }
  return std::nullopt;
}

}  // namespace kvant
