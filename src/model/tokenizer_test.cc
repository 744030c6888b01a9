#include "kvant/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_for_test.h"
#include "model/unicode_bytes.h"

namespace kvant {
namespace {

// Ids 0..255 are the bytes; then merged tokens and special ones.
class VocabularyBuilder {
 public:
  VocabularyBuilder() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string spelling;
      AppendUtf8(ByteStandIn(static_cast<uint8_t>(byte)), spelling);
      Add(spelling, TokenType::kNormal);
    }
  }

  int32_t Add(std::string spelling, TokenType type) {
    tokens_.push_back(std::move(spelling));
    types_.push_back(static_cast<int32_t>(type));
    return static_cast<int32_t>(tokens_.size()) - 1;
  }

  int32_t AddMerge(const std::string& left, const std::string& right) {
    merges_.push_back(left + " " + right);
    return Add(left + right, TokenType::kNormal);
  }

  TokenizerData Data(std::string pre = "smollm") const {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = std::move(pre);
    data.tokens.assign(tokens_.begin(), tokens_.end());
    data.types = types_;
    data.merges.assign(merges_.begin(), merges_.end());
    return data;
  }

 private:
  std::vector<std::string> tokens_, merges_;
  std::vector<int32_t> types_;
};

void ExpectRefused(const TokenizerData& data, StatusCode code, std::string_view message) {
  const Result<Tokenizer> tokenizer = Tokenizer::Create(data);
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), code);
  EXPECT_EQ(tokenizer.status().message(), message);
}

TEST(Tokenizer, WordsMergeAndSpacesBelongToTheWordThatFollows) {
  VocabularyBuilder v;
  const int32_t th = v.AddMerge("t", "h"), the = v.AddMerge("th", "e"),
                g_the = v.AddMerge("Ġ", "the");
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "the the th"), (Ids{the, g_the, ' ', th}));
  EXPECT_EQ(tokenizer.TokenBytes(g_the), " the");
  EXPECT_TRUE(Encode(tokenizer, "").empty());
}

TEST(Tokenizer, DecodeGivesBackAnyBytes) {
  VocabularyBuilder v;
  v.AddMerge("a", "b");
  v.AddMerge("Ã", "©");
  const Tokenizer tokenizer = Make(v.Data());
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 50, ' ');
    for (char& c : text)
      c = static_cast<char>(i % 2 == 0 ? random() : "ab\xc3\xa9\xf0\x9f"[random() % 6]);
    const Result<std::string> decoded = tokenizer.Decode(Encode(tokenizer, text));
    ASSERT_TRUE(decoded.ok());
    ASSERT_EQ(*decoded, text);
  }
}

TEST(Tokenizer, InvalidBytesAreWordsOfTheirOwn) {
  VocabularyBuilder v;
  const int32_t e_acute = v.AddMerge("Ã", "©");
  v.AddMerge("â", "Ĥ");  // E2 82, the beginning of the euro sign
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "\xc3\xa9"), (Ids{e_acute}));
  EXPECT_EQ(Encode(tokenizer, "\xe2\x82"), (Ids{0xe2, 0x82}));
  EXPECT_EQ(Encode(tokenizer, "x\xe2\x82y"), (Ids{'x', 0xe2, 0x82, 'y'}));
  EXPECT_EQ(Encode(tokenizer, "\xff\xc3\xa9\xc3"), (Ids{0xff, e_acute, 0xc3}));
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  VocabularyBuilder v;
  const int32_t end = v.Add("<end>", TokenType::kControl);
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "a<end>", true), (Ids{'a', end}));
  EXPECT_EQ(Encode(tokenizer, "a<end>", false), (Ids{'a', '<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(Encode(tokenizer, "<end", true), (Ids{'<', 'e', 'n', 'd'}));
}

TEST(Tokenizer, TheLongestSpecialTokenWinsAndBothKindsMatch) {
  VocabularyBuilder v;
  const int32_t single = v.Add("<a>", TokenType::kControl);
  const int32_t twice = v.Add("<a><a>", TokenType::kUserDefined);
  const Tokenizer tokenizer = Make(v.Data());
  EXPECT_EQ(Encode(tokenizer, "<a><a><a>", true), (Ids{twice, single}));
}

TEST(Tokenizer, WordsDoNotMergeAcrossASpecialToken) {
  VocabularyBuilder v;
  v.AddMerge("a", "b");
  const int32_t cut = v.Add("<cut>", TokenType::kControl);
  EXPECT_EQ(Encode(Make(v.Data()), "a<cut>b", true), (Ids{'a', cut, 'b'}));
}

TEST(Tokenizer, PartsThatAUserTypedCannotNameSpecialTokens) {
  VocabularyBuilder v;
  const int32_t end = v.Add("<end>", TokenType::kControl);
  const int32_t ab = v.AddMerge("a", "b");
  const Tokenizer tokenizer = Make(v.Data());
  const auto encode = [&](std::vector<TextPart> parts) {
    Result<Ids> ids = tokenizer.EncodeParts(parts);
    EXPECT_TRUE(ids.ok());
    return std::move(ids).value();
  };
  const Ids spelled = {'<', 'e', 'n', 'd', '>'};
  EXPECT_EQ(encode({{"<end>", false}}), spelled);
  EXPECT_EQ(encode({{"<end>", true}}), (Ids{end}));
  EXPECT_EQ(encode({{"<en", true}, {"d>", false}}), spelled);
  EXPECT_EQ(encode({{"<en", true}, {"d>", true}}), spelled);
  EXPECT_EQ(encode({{"a", true}, {"b", false}, {"<end>", true}}), (Ids{ab, end}));
  EXPECT_TRUE(encode({}).empty());
}

TEST(Tokenizer, BosComesFirstAndOnlyOnce) {
  VocabularyBuilder v;
  TokenizerData data = v.Data();
  data.bos = 7;
  data.add_bos = true;
  const Tokenizer tokenizer = Make(data);
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{7, 'a'}));
  EXPECT_EQ(Encode(tokenizer, ""), (Ids{7}));
}

// Tokens of 32 letters: a text of them takes many parts.
TEST(Tokenizer, TheFirstIdsAreThoseOfTheWholeText) {
  VocabularyBuilder v;
  for (std::string as = "a"; as.size() < 32; as += as) v.AddMerge(as, as);
  v.AddMerge("Ġ", "Ġ");
  std::mt19937 random(3);
  const std::string word(32, 'a');
  std::string text;
  while (text.size() < 8000) {
    const uint32_t kind = random() % 8;
    text += kind < 4 ? word + " " : kind == 4 ? word + "   " : std::string(1, "b.\xff"[kind - 5]);
  }
  ExpectFirstIdsAreThoseOfTheWhole(Make(v.Data()), text, 1000);
  TokenizerData prefixed = v.Data("gpt-2");
  prefixed.add_space_prefix = true;
  prefixed.bos = 7;
  prefixed.add_bos = true;
  ExpectFirstIdsAreThoseOfTheWhole(Make(prefixed), text, 1000);
  EXPECT_EQ(Make(v.Data()).EncodeFirst(text, -1).status().code(), StatusCode::kInvalidArgument);
}

TEST(Tokenizer, ASpacePrefixIsGivenToTextThatHasNone) {
  VocabularyBuilder v;
  const int32_t g_a = v.AddMerge("Ġ", "a");
  TokenizerData data = v.Data("gpt-2");
  data.add_space_prefix = true;
  const Tokenizer tokenizer = Make(data);
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{g_a}));
  EXPECT_EQ(Encode(tokenizer, " a"), (Ids{g_a}));
  EXPECT_TRUE(Encode(tokenizer, "").empty());
  data.pre = "smollm";
  ExpectRefused(data, StatusCode::kUnsupported,
                "a space prefix has no meaning with the pre-tokenizer 'smollm'");
}

TEST(Tokenizer, AWholeWordSkipsTheMergesOnlyWhereThePatternSaysSo) {
  VocabularyBuilder v;
  const int32_t bc = v.AddMerge("b", "c");
  const int32_t abc = v.Add("abc", TokenType::kNormal);  // no merge leads to it
  EXPECT_EQ(Encode(Make(v.Data("llama-bpe")), "abc"), (Ids{abc}));
  EXPECT_EQ(Encode(Make(v.Data("smollm")), "abc"), (Ids{'a', bc}));
}

TEST(Tokenizer, AByteThatTheVocabularyLacksIsReportedAndLeftOut) {
  VocabularyBuilder v;
  TokenizerData data = v.Data();
  data.tokens[0xff] = "unused";
  const Tokenizer tokenizer = Make(data);
  EXPECT_FALSE(tokenizer.HasByteToken(0xff));
  EXPECT_TRUE(tokenizer.HasByteToken(0xfe));
  EXPECT_EQ(Encode(tokenizer, "a\xff"), (Ids{'a'}));
}

TEST(Tokenizer, DecodeSkipsControlTokensAndRefusesUnknownIds) {
  VocabularyBuilder v;
  const int32_t end = v.Add("<|im_end|>", TokenType::kControl);
  const int32_t user = v.Add("Ġ<tool>", TokenType::kUserDefined);  // spelled as it reads
  const Tokenizer tokenizer = Make(v.Data());
  const Ids ids = {'a', end, user};
  EXPECT_EQ(*tokenizer.Decode(ids), "aĠ<tool>");
  EXPECT_EQ(*tokenizer.Decode(ids, true), "a<|im_end|>Ġ<tool>");
  for (const int32_t bad : {-1, user + 1}) {
    EXPECT_EQ(tokenizer.Decode(Ids{bad}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(tokenizer.TokenBytes(bad), "");
    EXPECT_FALSE(tokenizer.IsControl(bad));
  }
  EXPECT_EQ(tokenizer.FindToken("<|im_end|>"), end);
  EXPECT_EQ(tokenizer.FindToken("<|im_start|>"), std::nullopt);
}

TEST(Tokenizer, GenerationEndsAtEosAndAtEveryKnownEnding) {
  VocabularyBuilder v;
  const int32_t im_end = v.Add("<|im_end|>", TokenType::kControl);
  const int32_t text_end = v.Add("<|endoftext|>", TokenType::kControl);
  const int32_t spelled = v.Add("<|eot_id|>", TokenType::kNormal);
  TokenizerData data = v.Data();
  data.eos = im_end;
  const Tokenizer tokenizer = Make(data);
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(im_end));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(text_end));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(spelled));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration('a'));
  EXPECT_FALSE(Make(v.Data()).IsEndOfGeneration(-1));
}

TEST(Tokenizer, NothingOfTheCallersDataIsKept) {
  auto v = std::make_unique<VocabularyBuilder>();
  const int32_t ab = v->AddMerge("a", "b");
  const int32_t end = v->Add("<a token too long for a small string>", TokenType::kControl);
  const Tokenizer tokenizer = Make(v->Data("llama-bpe"));
  v.reset();
  const Tokenizer copy = tokenizer;
  EXPECT_EQ(Encode(copy, "ab<a token too long for a small string>", true), (Ids{ab, end}));
}

TEST(Tokenizer, EmptySpellingsAreAcceptedAndNeverMatch) {
  VocabularyBuilder v;
  v.Add("", TokenType::kControl);
  v.Add("", TokenType::kUnused);
  EXPECT_EQ(Encode(Make(v.Data()), "ab", true), (Ids{'a', 'b'}));
}

TEST(Tokenizer, UnknownModelsAndPatternsAreRefusedByName) {
  VocabularyBuilder v;
  TokenizerData data = v.Data();
  data.model = "bert";
  ExpectRefused(data, StatusCode::kUnsupported,
                "unknown tokenizer model 'bert'; known: gpt2, llama");
  ExpectRefused(
      v.Data("default"), StatusCode::kUnsupported,
      "unknown pre-tokenizer 'default'; known: gpt-2, gpt2, llama-bpe, llama3, qwen2, smollm");
}

TEST(Tokenizer, WrongVocabulariesAreRefused) {
  VocabularyBuilder v;
  const auto refused = [&](auto change, std::string_view message) {
    TokenizerData data = v.Data();
    change(data);
    ExpectRefused(data, StatusCode::kCorrupt, message);
  };
  refused([](TokenizerData& d) { d.tokens.clear(); }, "the vocabulary has no tokens");
  refused([](TokenizerData& d) { d.types.pop_back(); },
          "the vocabulary has 256 tokens but 255 token types");
  refused([](TokenizerData& d) { d.types['a'] = 0; }, "token 97 'a' has the unknown type 0");
  refused([](TokenizerData& d) { d.types['a'] = 7; }, "token 97 'a' has the unknown type 7");
  refused([](TokenizerData& d) { d.tokens['b'] = "a"; }, "token 98 'a' is spelled as token 97 is");
  refused([](TokenizerData& d) { d.eos = 256; },
          "the eos id 256 is outside the vocabulary of 256 tokens");
  refused([](TokenizerData& d) { d.bos = -2; },
          "the bos id -2 is outside the vocabulary of 256 tokens");
  refused([](TokenizerData& d) { d.unk = 1 << 30; },
          "the unk id 1073741824 is outside the vocabulary of 256 tokens");
  refused([](TokenizerData& d) { d.pad = 999; },
          "the pad id 999 is outside the vocabulary of 256 tokens");
  refused([](TokenizerData& d) { d.add_bos = true; },
          "the vocabulary asks for a bos token in front but names none");
  refused([](TokenizerData& d) { d.merges = {"a b"}; },
          "merge 0 'a b' makes a token that is not in the vocabulary");
}

}  // namespace
}  // namespace kvant
