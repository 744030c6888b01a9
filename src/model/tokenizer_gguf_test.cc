#include "model/tokenizer_gguf.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_writer.h"

namespace kvant {
namespace {

constexpr std::string_view kTokens[] = {"a", "b", "ab", "<end>"};
constexpr int32_t kTypes[] = {1, 1, 1, 3};
constexpr std::string_view kMerges[] = {"a b"};

// The keys without which there is no tokenizer.
GgufWriter RequiredKeys() {
  GgufWriter writer;
  EXPECT_TRUE(writer.AddString("tokenizer.ggml.model", "gpt2").ok());
  EXPECT_TRUE(writer.AddString("tokenizer.ggml.pre", "smollm").ok());
  EXPECT_TRUE(writer.AddStringArray("tokenizer.ggml.tokens", kTokens).ok());
  EXPECT_TRUE(writer.AddStringArray("tokenizer.ggml.merges", kMerges).ok());
  return writer;
}

Result<Tokenizer> Load(const std::vector<std::byte>& bytes) {
  KVANT_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(bytes));
  return LoadTokenizer(file);
}

TEST(TokenizerGguf, EveryKeyReachesTheTokenizerWhichOutlivesTheFile) {
  GgufWriter writer = RequiredKeys();
  ASSERT_TRUE(writer.AddI32Array("tokenizer.ggml.token_type", kTypes).ok());
  ASSERT_TRUE(writer.AddU32("tokenizer.ggml.bos_token_id", 0).ok());
  ASSERT_TRUE(writer.AddU32("tokenizer.ggml.eos_token_id", 3).ok());
  ASSERT_TRUE(writer.AddU32("tokenizer.ggml.unknown_token_id", 1).ok());
  ASSERT_TRUE(writer.AddU32("tokenizer.ggml.padding_token_id", 2).ok());
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_bos_token", true).ok());
  std::vector<std::byte> bytes = writer.ToBytes();
  const Result<Tokenizer> tokenizer = Load(bytes);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  bytes.assign(bytes.size(), std::byte{0xee});
  EXPECT_EQ(*tokenizer->Encode("ab<end>", true), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(tokenizer->bos(), 0);
  EXPECT_EQ(tokenizer->eos(), 3);
  EXPECT_EQ(tokenizer->unk(), 1);
  EXPECT_EQ(tokenizer->pad(), 2);
  EXPECT_TRUE(tokenizer->add_bos());
}

TEST(TokenizerGguf, OptionalKeysMayBeMissing) {
  const Result<Tokenizer> tokenizer = Load(RequiredKeys().ToBytes());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_EQ(tokenizer->eos(), -1);
  EXPECT_FALSE(tokenizer->add_bos());
}

TEST(TokenizerGguf, AMissingSplitPatternIsNotGuessed) {
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("tokenizer.ggml.model", "gpt2").ok());
  ASSERT_TRUE(writer.AddStringArray("tokenizer.ggml.tokens", kTokens).ok());
  ASSERT_TRUE(writer.AddStringArray("tokenizer.ggml.merges", kMerges).ok());
  const Status status = Load(writer.ToBytes()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("tokenizer.ggml.pre"), std::string::npos) << status.message();
}

TEST(TokenizerGguf, ValuesOfTheWrongTypeAreRefused) {
  GgufWriter writer = RequiredKeys();
  ASSERT_TRUE(writer.AddString("tokenizer.ggml.eos_token_id", "3").ok());
  EXPECT_EQ(Load(writer.ToBytes()).status().code(), StatusCode::kCorrupt);
}

TEST(TokenizerGguf, TheSpacePrefixIsNotOverlooked) {
  GgufWriter writer = RequiredKeys();
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_space_prefix", true).ok());
  EXPECT_EQ(Load(writer.ToBytes()).status().code(), StatusCode::kUnsupported);
}

TEST(TokenizerGguf, AnEndTokenBehindEveryTextIsRefused) {
  GgufWriter writer = RequiredKeys();
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_eos_token", false).ok());
  EXPECT_TRUE(Load(writer.ToBytes()).ok());
  writer = RequiredKeys();
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_eos_token", true).ok());
  const Status status = Load(writer.ToBytes()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("add_eos_token"), std::string::npos) << status.message();
}

TEST(TokenizerGguf, AFileWithoutAChatTemplateSaysSo) {
  const std::vector<std::byte> bytes = RequiredKeys().ToBytes();
  const Result<GgufFile> file = GgufFile::Parse(bytes);
  ASSERT_TRUE(file.ok());
  const Result<Tokenizer> tokenizer = LoadTokenizer(*file);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(LoadChatTemplate(*file, *tokenizer).status().message(),
            "the model has no chat template, so it takes plain prompts only");
}

}  // namespace
}  // namespace kvant
