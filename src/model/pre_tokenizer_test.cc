#include "model/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

using Words = std::vector<std::string_view>;

Words Split(std::string_view name, std::string_view text) {
  Result<PreTokenizer> pre = PreTokenizer::Create(name);
  EXPECT_TRUE(pre.ok()) << pre.status().message();
  Words words;
  const Status status = pre->Split(text, words);
  EXPECT_TRUE(status.ok()) << status.message();
  return words;
}

TEST(PreTokenizer, UnknownNamesAreRefusedAndTheKnownOnesListed) {
  for (const char* name : {"default", "", "smollm2", "SMOLLM", "deepseek-llm"}) {
    const Result<PreTokenizer> pre = PreTokenizer::Create(name);
    ASSERT_FALSE(pre.ok()) << name;
    EXPECT_EQ(pre.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(pre.status().message(),
              "unknown pre-tokenizer '" + std::string(name) +
                  "'; known: gpt-2, gpt2, llama-bpe, llama3, qwen2, smollm");
  }
}

TEST(PreTokenizer, DigitsAreGroupedAsEachPatternSays) {
  EXPECT_EQ(Split("smollm", "x 1234567"), (Words{"x", " ", "1", "2", "3", "4", "5", "6", "7"}));
  EXPECT_EQ(Split("gpt-2", "x 1234567"), (Words{"x", " 1234567"}));
  EXPECT_EQ(Split("llama-bpe", "x 1234567"), (Words{"x", " ", "123", "456", "7"}));
  EXPECT_EQ(Split("qwen2", "x 123"), (Words{"x", " ", "1", "2", "3"}));
  EXPECT_EQ(Split("smollm", "٣½²"), (Words{"٣", "½", "²"}));
}

TEST(PreTokenizer, ADigitEndsTheTextForTheSpacesBeforeIt) {
  EXPECT_EQ(Split("smollm", "a   1"), (Words{"a", "   ", "1"}));
  EXPECT_EQ(Split("smollm", "a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(Split("gpt-2", "a   1"), (Words{"a", "  ", " 1"}));
}

TEST(PreTokenizer, ContractionsFoldCaseOnlyWhereThePatternDoes) {
  EXPECT_EQ(Split("smollm", "it's IT'S"), (Words{"it", "'s", " IT", "'", "S"}));
  for (const char* name : {"llama-bpe", "qwen2"}) {
    EXPECT_EQ(Split(name, "we'llx WE'LLX"), (Words{"we", "'ll", "x", " WE", "'LL", "X"}));
  }
}

TEST(PreTokenizer, LineEndsStayTogetherOrNotAsEachPatternSays) {
  EXPECT_EQ(Split("smollm", "a.\r\n\r\nb"), (Words{"a", ".", "\r\n\r", "\n", "b"}));
  EXPECT_EQ(Split("llama-bpe", "a.\r\n\r\nb"), (Words{"a", ".\r\n\r\n", "b"}));
  EXPECT_EQ(Split("qwen2", "a \n\n b"), (Words{"a", " \n\n", " b"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodesAndNotThatOfPcre) {
  EXPECT_EQ(Split("smollm", "a\u0085\u0085b"), (Words{"a", "\u0085", "\u0085", "b"}));
  EXPECT_EQ(Split("smollm", "a\u3000\u3000"), (Words{"a", "\u3000\u3000"}));
  // U+180E is no white space, so it joins the punctuation and takes a space in front.
  EXPECT_EQ(Split("smollm", "a \u180e!"), (Words{"a", " \u180e!"}));
}

TEST(PreTokenizer, WordsCoverAnyTextInOrder) {
  std::mt19937 random(1);
  std::uniform_int_distribution<uint32_t> any(0, 0x10ffff), ascii(0, 0x7f);
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int n = 0; n < 60; ++n) {
        const uint32_t c = n % 2 == 0 ? ascii(random) : any(random);
        AppendUtf8(c >= 0xd800 && c < 0xe000 ? '\'' : c, text);
      }
      std::string joined;
      for (const std::string_view word : Split(name, text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text) << name;
    }
  }
  EXPECT_TRUE(Split("smollm", "").empty());
}

// What lets a long text be encoded in parts.
TEST(PreTokenizer, ATextCutBetweenALetterAndASpaceSplitsAsTheWhole) {
  constexpr std::string_view kPieces[] = {"a", "B", " ",  "  ", "\n", "\r\n", "\t", "'s",
                                          "'", "1", "23", ".",  "…",  "é",    "½",  "\u3000"};
  std::mt19937 random(2);
  int cuts = 0;
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int n = 0; n < 40; ++n) text += kPieces[random() % std::size(kPieces)];
      const Words whole = Split(name, text);
      for (size_t at = 1; at < text.size(); ++at) {
        if (text[at] != ' ' || !IsAsciiLetter(text[at - 1])) continue;
        Words parts = Split(name, std::string_view(text).substr(0, at));
        for (const std::string_view word : Split(name, std::string_view(text).substr(at))) {
          parts.push_back(word);
        }
        ASSERT_EQ(parts, whole) << name << " '" << text << "' at " << at;
        ++cuts;
      }
    }
  }
  EXPECT_GT(cuts, 500) << "the test must see cuts";
}

TEST(PreTokenizer, AMegabyteWithoutAWordBreakDoesNotExhaustTheEngine) {
  for (const char* name : {"smollm", "llama-bpe"}) {
    for (const char c : {' ', 'a', '.', '\n'}) {
      EXPECT_EQ(Split(name, std::string(1 << 20, c)).size(), 1u) << name << " '" << c << "'";
    }
  }
}

}  // namespace
}  // namespace kvant
