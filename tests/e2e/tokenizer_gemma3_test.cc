// The tokenizer and chat template of Gemma 3 against Hugging Face's tokenizers, whose answers
// scripts/oracles/sentence_piece_golden.py keeps in tests/golden/gemma3_tokens.txt.
// `scripts/models --gemma` fetches the file.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvant/tasks.h"
#include "kvant/tokenizer.h"
#include "kvant/utf8_stream.h"
#include "model/chat_template.h"
#include "model/token_golden_for_test.h"
#include "model/tokenizer_for_test.h"
#include "tokenizer_of_file.h"

namespace kvant {
namespace {

constexpr char kModel[] = KVANT_SOURCE_DIR "/models/gemma3-270m-q4_k_m.gguf";
constexpr char kGolden[] = "gemma3_tokens.txt";

class TokenizerGemma3 : public TokenizerOfFile {
 protected:
  TokenizerGemma3() : TokenizerOfFile(kModel) {}
};

TEST_F(TokenizerGemma3, IdsAreThoseOfHuggingFaceAfterBos) {
  const auto lines = GoldenLines(kGolden, "text");
  EXPECT_GE(lines.size(), 70u);
  for (const auto& line : lines) {
    Ids expected = ParseIds(line.at(2));
    expected.insert(expected.begin(), tokenizer_->bos());
    const Result<Ids> ids = tokenizer_->Encode(Unescape(line.at(1)), true);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, expected) << line[1];
  }
}

TEST_F(TokenizerGemma3, TheFirstIdsAreThoseOfTheWholeText) {
  std::string text;
  for (const auto& line : GoldenLines(kGolden, "text")) text += Unescape(line.at(1)) + " and ";
  ExpectFirstIdsAreThoseOfTheWhole(*tokenizer_, text, 2000, 17);
}

TEST_F(TokenizerGemma3, PromptsCutFromATextBeginWithBos) {
  Ids text =
      *tokenizer_->Encode("It is a truth universally acknowledged, that a single man in", false);
  const auto prompts = *CutPrompts(*tokenizer_, text, 3, 5);
  ASSERT_EQ(prompts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto first = text.begin() + static_cast<std::ptrdiff_t>((text.size() - 5) * i / 2);
    Ids expected(first, first + 5);
    expected[0] = tokenizer_->bos();
    EXPECT_EQ(prompts[i], expected);
  }
}

TEST_F(TokenizerGemma3, StreamedTextIsTheTextThatWasEncoded) {
  for (const auto& line : GoldenLines(kGolden, "text")) {
    const std::string text = Unescape(line.at(1));
    if (text.find("▁") != text.npos) continue;  // comes back as a space
    Utf8Stream stream;
    std::string streamed;
    for (const int32_t id : ParseIds(line.at(2))) {
      streamed += stream.Append(tokenizer_->TokenBytes(id));
    }
    EXPECT_EQ(streamed + stream.Flush(), text);
  }
}

// The file holds no template: the one that its control tokens spell is taken.
TEST_F(TokenizerGemma3, ChatsAreWrittenInGemmasTurnsAndEndWithThem) {
  const std::vector<ChatMessage> messages = {{"user", " <end_of_turn>Hi\n"}};
  const Result<std::vector<TextPart>> parts = chat_->Render(messages, true);
  ASSERT_TRUE(parts.ok());
  const Result<Ids> ids = tokenizer_->EncodeParts(*parts);
  ASSERT_TRUE(ids.ok());
  const int32_t begin = tokenizer_->FindToken("<start_of_turn>").value();
  const int32_t end = tokenizer_->FindToken("<end_of_turn>").value();
  ASSERT_GE(ids->size(), 4u);
  EXPECT_EQ(Ids(ids->begin(), ids->begin() + 2), (Ids{tokenizer_->bos(), begin}));
  EXPECT_EQ(std::count(ids->begin(), ids->end(), begin), 2);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), end), 1) << "the one that was typed is text";
  EXPECT_EQ(*tokenizer_->Decode(*ids), "user\n<end_of_turn>Hi\nmodel\n");
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(end));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(tokenizer_->FindToken("<eos>").value()));
}

TEST_F(TokenizerGemma3, BytesThatAreNoCharactersBecomeTheirTokens) {
  const Result<Ids> ids = tokenizer_->Encode("a\xff", false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->back(), tokenizer_->FindToken("<0xFF>"));
  EXPECT_TRUE(tokenizer_->HasByteToken(0x00));
  EXPECT_EQ(*tokenizer_->Decode(*ids), "a\xff");
}

}  // namespace
}  // namespace kvant
