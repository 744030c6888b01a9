// Tokens and limits that tests put together.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kvant/policy.h"

namespace kvant::testing {

// Owns what PolicyTokens points to.
struct OwnedTokens {
  std::vector<float> score;
  std::vector<int32_t> position;
  std::vector<uint8_t> width;
  std::vector<float> k, v;
  int head_dim = 0;

  PolicyTokens view() const {
    return {.score = score,
            .position = position,
            .width = width,
            .k = k,
            .head_dim = head_dim,
            .v = v.empty() ? nullptr : v.data()};
  }
};

// The first tokens of a sequence, as written.
inline OwnedTokens WrittenTokens(int64_t count, std::vector<float> score = {}) {
  OwnedTokens tokens;
  tokens.score = std::move(score);
  tokens.position.resize(static_cast<size_t>(count));
  std::iota(tokens.position.begin(), tokens.position.end(), 0);
  tokens.width.assign(static_cast<size_t>(count), kWrittenWidth);
  return tokens;
}

// Bytes by width: 64 values of K and of V in that many bits and 8 bytes of metadata; nothing of
// what is dropped.
inline std::array<int64_t, kWrittenWidth + 1> UsualTokenBytes() {
  std::array<int64_t, kWrittenWidth + 1> bytes{};
  for (const int w : {2, 3, 4, 8, 16}) bytes[static_cast<size_t>(w)] = 16 * w + 8;
  return bytes;
}

inline PolicyLimits Limits(int64_t length, int sinks = 0, int window_tokens = 0,
                           int64_t budget_bytes = 0) {
  return {sinks, window_tokens, length, budget_bytes, UsualTokenBytes()};
}

inline std::unique_ptr<Policy> MustParse(const std::string& spec) {
  Result<std::unique_ptr<Policy>> policy = ParsePolicy(spec);
  EXPECT_TRUE(policy.ok()) << policy.status().message();
  return std::move(policy).value();
}

inline std::vector<uint8_t> Chosen(const Policy& policy, const OwnedTokens& tokens,
                                   const PolicyLimits& limits) {
  const Status status = CheckPolicyInput(policy, tokens.view(), limits);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return tokens.width;
  std::vector<uint8_t> width(tokens.position.size(), 77);
  policy.Choose(tokens.view(), limits, width);
  return width;
}
inline std::vector<uint8_t> Chosen(const std::string& spec, const OwnedTokens& tokens,
                                   const PolicyLimits& limits) {
  return Chosen(*MustParse(spec), tokens, limits);
}

// Positions of the tokens that are not dropped.
inline std::vector<int32_t> Kept(const OwnedTokens& tokens, const std::vector<uint8_t>& width) {
  std::vector<int32_t> kept;
  for (size_t i = 0; i < width.size(); ++i) {
    if (width[i] != kDroppedWidth) kept.push_back(tokens.position[i]);
  }
  return kept;
}
inline std::vector<int32_t> Kept(const std::string& spec, const OwnedTokens& tokens,
                                 const PolicyLimits& limits) {
  return Kept(tokens, Chosen(spec, tokens, limits));
}

}  // namespace kvant::testing
