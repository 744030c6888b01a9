// Makes tokenizers and token ids, or fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
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

// Of every count up to `most`, and of one beyond the end.
inline void ExpectFirstIdsAreThoseOfTheWhole(const Tokenizer& tokenizer, std::string_view text,
                                             size_t most, size_t step = 1) {
  const Ids whole = Encode(tokenizer, text);
  for (size_t count = 0; count <= std::min(most, whole.size()); count += step) {
    const Result<Ids> first = tokenizer.EncodeFirst(text, static_cast<int64_t>(count));
    ASSERT_TRUE(first.ok()) << first.status().message();
    ASSERT_EQ(*first, Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(count)));
  }
  EXPECT_EQ(*tokenizer.EncodeFirst(text, static_cast<int64_t>(whole.size()) + 1), whole);
}

}  // namespace kvant
