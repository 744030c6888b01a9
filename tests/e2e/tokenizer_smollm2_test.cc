// The tokenizer and chat template of a real model against Hugging Face's tokenizers and Jinja,
// whose answers scripts/oracles/tokenizer_golden.py keeps in tests/golden/smollm2_tokens.txt.
#include <gtest/gtest.h>

#include <algorithm>
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

constexpr char kModel[] = KVANT_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf";
constexpr char kGolden[] = "smollm2_tokens.txt";

class TokenizerSmolLm2 : public TokenizerOfFile {
 protected:
  TokenizerSmolLm2() : TokenizerOfFile(kModel) {}
};

TEST_F(TokenizerSmolLm2, IdsAreThoseOfHuggingFace) {
  const auto lines = GoldenLines(kGolden, "text");
  EXPECT_GE(lines.size(), 60u);
  for (const auto& line : lines) {
    ASSERT_EQ(line.size(), 3u) << line[1];
    const Result<Ids> ids = tokenizer_->Encode(Unescape(line[1]), true);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, ParseIds(line[2])) << line[1];
  }
}

TEST_F(TokenizerSmolLm2, TheFirstIdsAreThoseOfTheWholeText) {
  std::string text;
  for (const auto& line : GoldenLines(kGolden, "text")) text += Unescape(line.at(1)) + " and ";
  ExpectFirstIdsAreThoseOfTheWhole(*tokenizer_, text, 2000, 17);
}

// This file does not ask for a bos.
TEST_F(TokenizerSmolLm2, PromptsCutFromATextAreItsTokensAsTheyAre) {
  const Ids text = *tokenizer_->Encode("It is a truth universally acknowledged, that", false);
  const auto prompts = *CutPrompts(*tokenizer_, text, 2, 5);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0], Ids(text.begin(), text.begin() + 5));
  EXPECT_EQ(prompts[1], Ids(text.end() - 5, text.end()));
}

TEST_F(TokenizerSmolLm2, StreamedTextIsTheTextThatWasEncoded) {
  for (const auto& line : GoldenLines(kGolden, "text")) {
    const std::string text = Unescape(line[1]);
    Utf8Stream stream;
    std::string streamed;
    for (const int32_t id : ParseIds(line[2]))
      streamed += stream.Append(tokenizer_->TokenBytes(id));
    EXPECT_EQ(streamed + stream.Flush(), text);
  }
}

TEST_F(TokenizerSmolLm2, PromptsAreThoseOfTheModelsOwnTemplate) {
  const auto lines = GoldenLines(kGolden, "chat");
  EXPECT_GE(lines.size(), 7u);
  for (const auto& line : lines) {
    ASSERT_GE(line.size(), 6u);
    std::vector<ChatMessage> messages;
    for (size_t i = 4; i + 1 < line.size(); i += 2) {
      messages.push_back({Unescape(line[i]), Unescape(line[i + 1])});
    }
    const Result<std::vector<TextPart>> parts = chat_->Render(messages, line[1] == "1");
    ASSERT_TRUE(parts.ok()) << parts.status().message();
    std::string rendered;
    for (const TextPart& part : *parts) rendered += part.text;
    EXPECT_EQ(rendered, Unescape(line[3]));
    const Result<Ids> ids = tokenizer_->EncodeParts(*parts);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, ParseIds(line[2])) << line[3];
  }
}

TEST_F(TokenizerSmolLm2, ContentsThatSpellSpecialTokensStayText) {
  const std::vector<ChatMessage> messages = {{"user", "<|im_end|>"}};
  const Result<std::vector<TextPart>> parts = chat_->Render(messages, true);
  ASSERT_TRUE(parts.ok());
  const Result<Ids> ids = tokenizer_->EncodeParts(*parts);
  ASSERT_TRUE(ids.ok());
  const int32_t end = tokenizer_->FindToken("<|im_end|>").value();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), end), 2);  // of the system and the user turn
}

TEST_F(TokenizerSmolLm2, BytesThatTheVocabularyLacksAreLeftOut) {
  EXPECT_FALSE(tokenizer_->HasByteToken(0xff));
  EXPECT_FALSE(tokenizer_->HasByteToken(0x04));
  EXPECT_TRUE(tokenizer_->HasByteToken(0xf0));
  const Result<Ids> ids = tokenizer_->Encode(
      "a\xff\x04"
      "b\xf0",
      true);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*tokenizer_->Decode(*ids), "ab\xf0");
}

}  // namespace
}  // namespace kvant
