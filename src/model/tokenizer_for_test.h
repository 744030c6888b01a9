// Makes tokenizers and token ids, or fails the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/tokenizer.h"

namespace kvant {

using Ids = std::vector<int32_t>;

inline Tokenizer Make(const TokenizerData& data) {
  Result<Tokenizer> tokenizer = Tokenizer::Create(data);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

inline Ids Encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false) {
  Result<Ids> ids = tokenizer.Encode(text, parse_special);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return std::move(ids).value();
}

}  // namespace kvant
