#include "model/sentence_piece_encoder.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

// The few fields of sentencepiece_model.proto that a vocabulary needs, in protobuf's wire format: a
// tag (field number and kind of value), then the value.
class ProtoWriter {
 public:
  void AddNumber(int field, uint64_t value) {
    AddTag(field, kVarint);
    AddVarint(value);
  }
  void AddFloat(int field, float value) {
    AddTag(field, kFixed32);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }
  void AddBytes(int field, std::string_view bytes) {
    AddTag(field, kLengthDelimited);
    AddVarint(bytes.size());
    bytes_ += bytes;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  enum Wire { kVarint = 0, kLengthDelimited = 2, kFixed32 = 5 };
  void AddTag(int field, Wire wire) { AddVarint(static_cast<uint64_t>(field) << 3 | wire); }
  void AddVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// ModelProto
constexpr int kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;
// ModelProto.SentencePiece; its types are numbered as GGUF's are.
constexpr int kPiece = 1, kScore = 2, kType = 3;
// TrainerSpec
constexpr int kModelType = 3, kByteFallback = 35;
constexpr uint64_t kBpe = 2;
// NormalizerSpec. Its space in front is not used: it would stand at the beginning of a text only,
// not after a special token too.
constexpr int kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4, kEscapeWhitespaces = 5;

// The vocabulary's one unknown token: the id, or where the file gives none the token of that type.
Result<int32_t> FindUnknown(const TokenizerData& data, const TokenizerVocab& vocab) {
  if (data.unk >= 0) return data.unk;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.type(id) == TokenType::kUnknown) return id;
  }
  return Status::Corrupt("the vocabulary names no unknown token, which SentencePiece needs");
}

Status CheckScores(const TokenizerData& data) {
  if (data.scores.size() != data.tokens.size()) {
    return Status::Corrupt("the vocabulary has " + std::to_string(data.tokens.size()) +
                           " tokens but " + std::to_string(data.scores.size()) + " scores");
  }
  for (size_t i = 0; i < data.scores.size(); ++i) {
    if (std::isfinite(data.scores[i])) continue;
    return Status::Corrupt("the score of token " + std::to_string(i) + " '" +
                           Beginning(data.tokens[i]) + "' is not finite");
  }
  return Status::Ok();
}

// User-defined tokens are compared with text whose spaces are escaped; files hold them as they
// read.
std::string EscapeSpaces(std::string_view spelling) {
  std::string escaped;
  for (const char c : spelling) {
    if (c == ' ') {
      escaped += kSentencePieceSpace;
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

// Whether a letter and a space behind it stand side by side in a spelling. Symbols join only to
// what is a piece, so where none holds the two they never join.
bool HoldsLetterAndSpace(std::string_view spelling) {
  const std::string escaped = EscapeSpaces(spelling);
  for (size_t at = escaped.find(kSentencePieceSpace); at != escaped.npos;
       at = escaped.find(kSentencePieceSpace, at + 1)) {
    if (at > 0 && IsAsciiLetter(escaped[at - 1])) return true;
  }
  return false;
}

// Unknown characters in a row become one token: a space must not be among them.
bool KnowsSpace(const TokenizerVocab& vocab) {
  const auto it = vocab.spelling_to_id().find(kSentencePieceSpace);
  if (it == vocab.spelling_to_id().end()) return false;
  const TokenType type = vocab.type(it->second);
  return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

Result<std::string> MakeModelProto(const TokenizerData& data, const TokenizerVocab& vocab) {
  KVANT_RETURN_IF_ERROR(CheckScores(data));
  KVANT_ASSIGN_OR_RETURN(const int32_t unknown, FindUnknown(data, vocab));
  ProtoWriter model;
  bool has_bytes = false;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view spelling = data.tokens[static_cast<size_t>(id)];
    const TokenType type = id == unknown ? TokenType::kUnknown : vocab.type(id);
    if (spelling.find('\0') != spelling.npos) {  // the library's index ends its keys there
      return Status::Corrupt("token " + std::to_string(id) + " '" + Beginning(spelling) +
                             "' has a zero byte");
    }
    ProtoWriter piece;
    piece.AddBytes(kPiece, type == TokenType::kUserDefined ? EscapeSpaces(spelling) : spelling);
    piece.AddFloat(kScore, data.scores[static_cast<size_t>(id)]);
    piece.AddNumber(kType, static_cast<uint64_t>(type));
    model.AddBytes(kPieces, piece.bytes());
    has_bytes = has_bytes || type == TokenType::kByte;
  }
  ProtoWriter trainer, normalizer;
  trainer.AddNumber(kModelType, kBpe);
  trainer.AddNumber(kByteFallback, has_bytes);
  normalizer.AddNumber(kAddDummyPrefix, false);
  normalizer.AddNumber(kRemoveExtraWhitespaces, false);
  normalizer.AddNumber(kEscapeWhitespaces, true);
  model.AddBytes(kTrainerSpec, trainer.bytes());
  model.AddBytes(kNormalizerSpec, normalizer.bytes());
  return model.bytes();
}

}  // namespace

SentencePieceEncoder::SentencePieceEncoder(const TokenizerVocab& vocab)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  byte_tokens_.fill(-1);
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.type(id) != TokenType::kByte) continue;
    byte_tokens_[static_cast<uint8_t>(vocab.bytes(id)[0])] = id;
  }
}

SentencePieceEncoder::~SentencePieceEncoder() = default;

Result<std::unique_ptr<TokenEncoder>> SentencePieceEncoder::Create(const TokenizerData& data,
                                                                   const TokenizerVocab& vocab) {
  KVANT_ASSIGN_OR_RETURN(const std::string proto, MakeModelProto(data, vocab));
  std::unique_ptr<SentencePieceEncoder> encoder(new SentencePieceEncoder(vocab));
  if (const auto status = encoder->processor_->LoadFromSerializedProto(proto); !status.ok()) {
    return Status::Corrupt("SentencePiece refuses the vocabulary: " +
                           Beginning(status.error_message()));
  }
  encoder->add_space_prefix_ = data.add_space_prefix;
  encoder->ends_tokens_before_spaces_ =
      KnowsSpace(vocab) &&
      std::none_of(data.tokens.begin(), data.tokens.end(), HoldsLetterAndSpace);
  return std::unique_ptr<TokenEncoder>(std::move(encoder));
}

Status SentencePieceEncoder::Append(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> pieces;
  if (const auto status = processor_->Encode(text, &pieces); !status.ok()) {
    return Status::OutOfRange("SentencePiece gives up on a text of " + std::to_string(text.size()) +
                              " bytes: " + Beginning(status.error_message()));
  }
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  return Status::Ok();
}

}  // namespace kvant
