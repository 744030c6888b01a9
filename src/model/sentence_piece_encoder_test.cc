#include "model/sentence_piece_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_writer.h"
#include "kvant/tokenizer.h"
#include "kvant/utf8_stream.h"
#include "model/token_golden_for_test.h"
#include "model/tokenizer_for_test.h"
#include "model/tokenizer_gguf.h"

namespace kvant {
namespace {

constexpr char kGolden[] = "sentence_piece_tokens.txt";

struct Vocabulary {
  std::vector<std::string> spellings;
  std::vector<int32_t> types;
  std::vector<float> scores;

  int32_t Add(const std::string& spelling, TokenType type, float score = 0) {
    spellings.push_back(spelling);
    types.push_back(static_cast<int32_t>(type));
    scores.push_back(score);
    return static_cast<int32_t>(spellings.size()) - 1;
  }

  TokenizerData Data() const {
    TokenizerData data;
    data.model = "llama";
    data.tokens.assign(spellings.begin(), spellings.end());
    data.types = types;
    data.scores = scores;
    return data;
  }
};

// The vocabulary that the golden file was made with.
Vocabulary GoldenVocabulary() {
  Vocabulary v;
  for (const auto& line : GoldenLines(kGolden, "token")) {
    v.Add(Unescape(line.at(3)), static_cast<TokenType>(std::stoi(line.at(1))),
          std::stof(line.at(2)));
  }
  return v;
}

// Pieces "a", "b", "ab" and "▁"; the unknown token is 0.
Vocabulary SmallVocabulary() {
  Vocabulary v;
  v.Add("<unk>", TokenType::kUnknown);
  v.Add("a", TokenType::kNormal, -2);
  v.Add("b", TokenType::kNormal, -3);
  v.Add("ab", TokenType::kNormal, -1);
  v.Add("▁", TokenType::kNormal, -4);
  return v;
}

TEST(SentencePiece, IdsAreThoseOfHuggingFace) {
  const Vocabulary v = GoldenVocabulary();
  const Tokenizer tokenizer = Make(v.Data());
  const auto lines = GoldenLines(kGolden, "text");
  EXPECT_GE(lines.size(), 70u);
  for (const auto& line : lines) {
    EXPECT_EQ(Encode(tokenizer, Unescape(line.at(1)), true), ParseIds(line.at(2))) << line[1];
  }
}

TEST(SentencePiece, TheFirstIdsAreThoseOfTheWholeText) {
  std::string text;
  const Vocabulary golden = GoldenVocabulary();
  for (const auto& line : GoldenLines(kGolden, "text")) text += Unescape(line.at(1)) + " and ";
  TokenizerData data = golden.Data();
  for (const bool prefix : {false, true}) {
    data.add_space_prefix = prefix;
    ExpectFirstIdsAreThoseOfTheWhole(Make(data), text, 2000, 7);
  }
}

// Words of 32 letters, so that a text takes many parts, that end in one more.
std::string LongWords(const std::string& end) {
  std::string text;
  while (text.size() < 4000) text += std::string(32, 'a') + end + " ";
  return text;
}

Vocabulary LongVocabulary() {
  Vocabulary v = SmallVocabulary();
  for (std::string as = "aa"; as.size() <= 32; as += as) v.Add(as, TokenType::kNormal, -.9f);
  return v;
}

TEST(SentencePiece, TheFirstIdsOfManyPartsAreThoseOfTheWholeText) {
  const Vocabulary v = LongVocabulary();
  TokenizerData data = v.Data();
  for (const bool prefix : {false, true}) {
    data.add_space_prefix = prefix;
    ExpectFirstIdsAreThoseOfTheWhole(Make(data), LongWords(""), 400);
  }
}

// Where a piece reaches from a letter over a space, or a space is unknown, no place is safe.
TEST(SentencePiece, TheFirstIdsAreThoseOfTheWholeTextEvenIfPiecesReachOverSpaces) {
  Vocabulary reaching = LongVocabulary();
  reaching.Add("b▁", TokenType::kNormal, -.5f);
  ExpectFirstIdsAreThoseOfTheWhole(Make(reaching.Data()), LongWords("b"), 400);
  Vocabulary spaceless;
  spaceless.Add("<unk>", TokenType::kUnknown);
  for (std::string as = "a"; as.size() <= 32; as += as) spaceless.Add(as, TokenType::kNormal, -.9f);
  ExpectFirstIdsAreThoseOfTheWhole(Make(spaceless.Data()), LongWords("b"), 400);
}

TEST(SentencePiece, ASpaceInFrontIsPutBeforeEveryText) {
  const Vocabulary v = GoldenVocabulary();
  TokenizerData data = v.Data();
  data.add_space_prefix = true;
  const Tokenizer tokenizer = Make(data);
  const auto lines = GoldenLines(kGolden, "prefixed");
  EXPECT_GE(lines.size(), 50u);
  for (const auto& line : lines) {
    EXPECT_EQ(Encode(tokenizer, Unescape(line.at(1)), true), ParseIds(line.at(2))) << line[1];
  }
}

TEST(SentencePiece, StreamedTextIsTheTextThatWasEncoded) {
  const Vocabulary v = GoldenVocabulary();
  const Tokenizer tokenizer = Make(v.Data());
  for (const auto& line : GoldenLines(kGolden, "text")) {
    const std::string text = Unescape(line.at(1));
    if (text.find("▁") != text.npos) continue;  // comes back as a space
    Utf8Stream stream;
    std::string streamed;
    for (const int32_t id : ParseIds(line.at(2)))
      streamed += stream.Append(tokenizer.TokenBytes(id));
    EXPECT_EQ(streamed + stream.Flush(), text);
  }
}

TEST(SentencePiece, DecodeGivesBackAnyBytes) {
  const Vocabulary v = GoldenVocabulary();
  const Tokenizer tokenizer = Make(v.Data());
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 50, ' ');
    for (char& c : text) {
      c = static_cast<char>(i % 2 == 0 ? random() : "ab \n\xc3\xa9\xf0\x9f"[random() % 8]);
    }
    const Result<std::string> decoded = tokenizer.Decode(Encode(tokenizer, text));
    ASSERT_TRUE(decoded.ok());
    ASSERT_EQ(*decoded, text);
  }
}

TEST(SentencePiece, ControlTokensAreTextUnlessAskedForAndUserDefinedOnesAlwaysMatch) {
  Vocabulary v = SmallVocabulary();
  const int32_t end = v.Add("<ab>", TokenType::kControl);
  const int32_t user = v.Add("ba", TokenType::kUserDefined);
  const int32_t spaces = v.Add("  ", TokenType::kUserDefined);
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "a<ab>ab", true), (Ids{1, end, 3}));
  EXPECT_EQ(Encode(tokenizer, "a<ab>ab"), (Ids{1, 0, 3, 0, 3}));
  for (const bool parse_special : {false, true}) {
    EXPECT_EQ(Encode(tokenizer, "abab", parse_special), (Ids{1, user, 2}));
    EXPECT_EQ(Encode(tokenizer, "a   b", parse_special), (Ids{1, spaces, 4, 2}));
  }
  EXPECT_EQ(tokenizer.TokenBytes(spaces), "  ");
  EXPECT_EQ(*tokenizer.Decode(Ids{1, end, 4, user}), "a ba");
}

TEST(SentencePiece, WithoutByteTokensWhatIsUnknownBecomesTheUnknownToken) {
  const Vocabulary v = SmallVocabulary();
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "aéb"), (Ids{1, 0, 2}));
  EXPECT_EQ(Encode(tokenizer,
                   "a\xff"
                   "b"),
            (Ids{1, 2}));  // no character, so left out
  EXPECT_FALSE(tokenizer.HasByteToken('a'));
  EXPECT_TRUE(Make(GoldenVocabulary().Data()).HasByteToken(0xff));
}

TEST(SentencePiece, BosAndTheSpaceInFrontComeAtTheBeginningAndTheSpaceAfterSpecialTokens) {
  Vocabulary v = SmallVocabulary();
  const int32_t bos = v.Add("<s>", TokenType::kControl);
  TokenizerData data = v.Data();
  data.bos = bos;
  data.add_bos = true;
  EXPECT_EQ(Encode(Make(data), "a<s>b", true), (Ids{bos, 1, bos, 2}));
  data.add_space_prefix = true;
  EXPECT_EQ(Encode(Make(data), "a<s>b", true), (Ids{bos, 4, 1, bos, 4, 2}));
  EXPECT_EQ(Encode(Make(data), " a"), (Ids{bos, 4, 4, 1}));
  const int32_t user = v.Add("ba", TokenType::kUserDefined);  // no special token in this
  data.tokens.push_back("ba");
  data.types = v.types;
  data.scores = v.scores;
  for (const bool parse_special : {false, true}) {
    EXPECT_EQ(Encode(Make(data), "abaa", parse_special), (Ids{bos, 4, 1, user, 1}));
  }
  EXPECT_EQ(Encode(Make(data), ""), (Ids{bos}));
}

TEST(SentencePiece, WrongVocabulariesAreRefused) {
  const auto refused = [](auto change, std::string_view message) {
    Vocabulary v = SmallVocabulary();
    change(v);
    const Status status = Tokenizer::Create(v.Data()).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_EQ(status.message(), message);
  };
  refused([](Vocabulary& v) { v.scores.pop_back(); }, "the vocabulary has 5 tokens but 4 scores");
  refused([](Vocabulary& v) { v.scores[3] = std::nanf(""); },
          "the score of token 3 'ab' is not finite");
  refused([](Vocabulary& v) { v.types[0] = 3; },
          "the vocabulary names no unknown token, which SentencePiece needs");
  refused([](Vocabulary& v) { v.spellings[2] = std::string("b\0c", 3); },
          "token 2 'b c' has a zero byte");
  refused([](Vocabulary& v) { v.Add("<0xG0>", TokenType::kByte); },
          "token 5 '<0xG0>' names no byte");
  refused([](Vocabulary& v) { v.Add("<0x1>", TokenType::kByte); }, "token 5 '<0x1>' names no byte");
  refused([](Vocabulary& v) { v.types[1] = 2; },
          "SentencePiece refuses the vocabulary: unk is already defined.");
  refused([](Vocabulary& v) { v.spellings[1].clear(); },
          "SentencePiece refuses the vocabulary: piece must not be empty.");
  const Status status = [] {
    Vocabulary v = SmallVocabulary();
    v.Add("<0x41>", TokenType::kByte);
    return Tokenizer::Create(v.Data()).status();
  }();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << "one byte token of 256";
}

// Keys that a file of this kind may leave out mean what they meant in the first llama's files.
TEST(SentencePiece, AFilesKeysReachTheTokenizer) {
  Vocabulary v = SmallVocabulary();
  v.spellings[1] = "<s>", v.types[1] = 3;
  v.spellings[2] = "</s>", v.types[2] = 3;
  const auto load = [&](bool has_scores, bool says_no_space) {
    GgufWriter writer;
    const TokenizerData data = v.Data();
    EXPECT_TRUE(writer.AddString("tokenizer.ggml.model", "llama").ok());
    EXPECT_TRUE(writer.AddStringArray("tokenizer.ggml.tokens", data.tokens).ok());
    EXPECT_TRUE(writer.AddI32Array("tokenizer.ggml.token_type", data.types).ok());
    if (has_scores) {
      EXPECT_TRUE(writer.AddF32Array("tokenizer.ggml.scores", data.scores).ok());
    }
    if (says_no_space) {
      EXPECT_TRUE(writer.AddBool("tokenizer.ggml.add_space_prefix", false).ok());
    }
    const std::vector<std::byte> bytes = writer.ToBytes();
    return LoadTokenizer(*GgufFile::Parse(bytes));
  };
  EXPECT_EQ(Encode(*load(true, false), "ab"), (Ids{1, 4, 3}));
  EXPECT_EQ(Encode(*load(true, true), "ab"), (Ids{1, 3}));
  EXPECT_EQ(load(true, true)->eos(), 2);
  EXPECT_NE(load(false, true).status().message().find("tokenizer.ggml.scores"), std::string::npos);
}

}  // namespace
}  // namespace kvant
