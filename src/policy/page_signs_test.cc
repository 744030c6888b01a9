// Sinks by their norm, and pages by Quest's bound.
#include "policy/page_signs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kvant {
namespace {

TEST(MarkSinks, KeysFarShorterThanTheMedian) {
  const std::vector<float> norms = {.9f, 10, 12, 11, 3, 9, 4.9f, 13};  // the median is 9
  std::vector<uint8_t> sink(8, 9);
  MarkSinks(norms, .5f, sink);
  EXPECT_EQ(sink, (std::vector<uint8_t>{1, 0, 0, 0, 1, 0, 0, 0}));
  MarkSinks(norms, .05f, sink);
  EXPECT_EQ(sink, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0}));
  MarkSinks({}, .5f, {});
}

TEST(PageScoreBound, TakesTheEndOfTheRangeThatTheQueryPointsTo) {
  const std::vector<float> q = {2, -1, 0}, low = {-1, -3, -9}, high = {4, 5, 9};
  EXPECT_EQ(PageScoreBound(q, low, high), 2 * 4 + 1 * 3);
  const std::vector<float> lows = {-1, -3, -9, 5, -1, 0, -1, -3, -9};
  const std::vector<float> highs = {4, 5, 9, 6, 0, 0, 4, 5, 9};
  EXPECT_EQ(RankPages(q, lows, highs), (std::vector<int32_t>{1, 0, 2}));
}

// A bound on every key of the page. Products and sums are in double over f32 values: a sum of 64
// rounded terms of up to 32 is off by less than 64 * 64 * 32 * 2^-53 = 1e-11.
TEST(PageScoreBound, NoKeyOfThePageScoresMore) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr int kChannels = 64, kKeys = 64;
  for (int round = 0; round < 20; ++round) {
    std::vector<float> q(kChannels), low(kChannels, 1e9f), high(kChannels, -1e9f);
    std::vector<std::vector<float>> keys(kKeys, std::vector<float>(kChannels));
    for (float& x : q) x = normal(random);
    for (auto& key : keys) {
      for (size_t c = 0; c < kChannels; ++c) {
        key[c] = normal(random);
        low[c] = std::min(low[c], key[c]);
        high[c] = std::max(high[c], key[c]);
      }
    }
    const double bound = PageScoreBound(q, low, high);
    for (const auto& key : keys) {
      double score = 0;
      for (size_t c = 0; c < kChannels; ++c) score += static_cast<double>(q[c]) * key[c];
      ASSERT_LE(score, bound + 1e-11);
    }
  }
}

}  // namespace
}  // namespace kvant
