// V skip: what is skipped, and that its bound holds and is reached.
#include "policy/value_skip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvant {
namespace {

TEST(SkipValues, SkipsBelowTauAndSumsWhatIsMissed) {
  const std::vector<float> p = {.5f, .125f, .25f, .0625f, .0625f}, norm = {1, 2, 3, 4, 8};
  std::vector<uint8_t> skip(5, 9);
  const ValueSkip s = SkipValues(p, norm, .125f, skip);
  EXPECT_EQ(skip, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(s.skipped_tokens, 2);
  EXPECT_EQ(s.skipped_mass, .125);
  EXPECT_EQ(s.error_bound, .0625 * 4 + .0625 * 8);
  EXPECT_EQ(s.coarse_bound, .125 * 8);
}

TEST(SkipValues, TheOutputMovesByNoMoreThanTheBound) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  constexpr size_t kTokens = 200, kChannels = 16;
  for (int round = 0; round < 30; ++round) {
    // In every third round all values point one way: then the bound is reached.
    const bool parallel = round % 3 == 0;
    std::vector<float> p, norm, v(kTokens * kChannels);
    double total = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      p.push_back(std::exp(3 * normal(random)));
      total += p.back();
      const float length = std::fabs(normal(random));
      double squares = 0;
      for (size_t c = 0; c < kChannels; ++c) {
        float& x = v[t * kChannels + c];
        x = parallel ? (c == 3 ? length : 0) : normal(random);
        squares += static_cast<double>(x) * x;
      }
      norm.push_back(static_cast<float>(std::sqrt(squares)));
    }
    for (float& x : p) x = static_cast<float>(x / total);
    std::vector<uint8_t> skip(kTokens);
    const ValueSkip s = SkipValues(p, norm, 1e-3f, skip);
    ASSERT_GT(s.skipped_tokens, 0);
    double squares = 0;
    for (size_t c = 0; c < kChannels; ++c) {
      double missed = 0;
      for (size_t t = 0; t < kTokens; ++t) {
        missed += skip[t] * static_cast<double>(p[t]) * v[t * kChannels + c];
      }
      squares += missed * missed;
    }
    // Norms are rounded to f32: 2^-24 of each.
    const double moved = std::sqrt(squares), slack = 0x1p-23 * s.error_bound;
    EXPECT_LE(moved, s.error_bound + slack);
    EXPECT_LE(s.error_bound, s.coarse_bound * (1 + 1e-12));  // sums of 200 in another order
    if (parallel) {
      EXPECT_NEAR(moved, s.error_bound, slack);
    }
  }
}

}  // namespace
}  // namespace kvant
