// The tokenizer and the chat template of a model file; tests of a file that is not there are
// skipped.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "gguf/gguf_file.h"
#include "kvant/tokenizer.h"
#include "model/chat_template.h"
#include "model/tokenizer_gguf.h"

namespace kvant {

class TokenizerOfFile : public testing::Test {
 protected:
  explicit TokenizerOfFile(const char* model) : model_(model) {}

  void SetUp() override {
    if (!std::filesystem::exists(model_)) GTEST_SKIP() << "no " << model_;
    const Result<GgufFile> file = GgufFile::Open(model_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    Result<Tokenizer> tokenizer = LoadTokenizer(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    Result<ChatTemplate> chat = LoadChatTemplate(*file, *tokenizer);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    chat_ = *chat;
  }

  const char* const model_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace kvant
