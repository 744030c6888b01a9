// MiKV: tiers, the channel balance's worked example, mean bits.
#include "policy/mikv.h"

#include <algorithm>
#include <cmath>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Chosen;
using testing::Limits;
using testing::WrittenTokens;
using Widths = std::vector<uint8_t>;

TEST(MiKv, TheMostImportantStayHighAndNoneGoes) {
  const auto tokens = WrittenTokens(7, {.9f, .1f, .4f, 0, .4f, .2f, 0});
  EXPECT_EQ(Chosen("mikv:0.4,8,2", tokens, Limits(7, 1, 1)), (Widths{16, 2, 8, 2, 8, 2, 16}));
  // A tie over the last place: the lower position has it.
  EXPECT_EQ(Chosen("mikv:1,8,3", tokens, Limits(7, 1, 1)), (Widths{16, 3, 8, 3, 3, 3, 16}));
}

// Two of five are .4, whether all five are still there or not.
TEST(MiKv, AShareCountsWhatWasDroppedBefore) {
  auto tokens = WrittenTokens(5, {.1f, .4f, .2f, .5f, .3f});
  tokens.width = {8, 8, 0, 8, 0};
  EXPECT_EQ(Chosen("mikv:0.4,8,2", tokens, Limits(5)), (Widths{2, 8, 0, 8, 0}));
}

TEST(MiKv, ABudgetLowersBeforeItDrops) {
  const auto tokens = WrittenTokens(4, {.4f, .3f, .2f, .1f});
  const auto bytes = testing::UsualTokenBytes();
  EXPECT_EQ(Chosen("mikv:2,8,2", tokens, Limits(4, 0, 0, bytes[8] + 3 * bytes[2])),
            (Widths{8, 2, 2, 2}));
  EXPECT_EQ(Chosen("mikv:2,8,2", tokens, Limits(4, 0, 0, 3 * bytes[2])), (Widths{2, 2, 2, 0}));
}

// What a token's own range at 2 bits makes of the dot: codes 0 to 3 from the minimum on, exact
// scale.
double CodedDot(const std::vector<float>& q, const std::vector<float>& k) {
  const auto [low, high] = std::minmax_element(k.begin(), k.end());
  const double step = (static_cast<double>(*high) - *low) / 3;
  double dot = 0;
  for (size_t c = 0; c < k.size(); ++c)
    dot += q[c] * (*low + step * std::rint((k[c] - *low) / step));
  return dot;
}

TEST(MiKv, ChannelBalanceOfTheWorkedExample) {
  const std::vector<float> q = {8, 1, 1, 1}, k = {.5f, 1, 2, 32};
  std::vector<float> b(4);
  ChannelBalance(q, k, b);
  const double wanted_b[] = {4, 1, .707107, .176777}, wanted_k[] = {2, 1, 1.414214, 5.656854};
  std::vector<float> balanced_q, balanced_k;
  double dot = 0;
  for (size_t c = 0; c < 4; ++c) {
    balanced_q.push_back(q[c] / b[c]);
    balanced_k.push_back(k[c] * b[c]);
    dot += static_cast<double>(balanced_q[c]) * balanced_k[c];
    EXPECT_NEAR(b[c], wanted_b[c], 5e-7);  // as many digits as the example has
    EXPECT_NEAR(balanced_k[c], wanted_k[c], 5e-7);
  }
  EXPECT_NEAR(dot, 39, 39 * 0x1p-21);  // two roundings of 2^-24 for each factor
  EXPECT_NEAR(CodedDot(q, k) - 39, -2.0, 1e-12);
  EXPECT_NEAR(CodedDot(balanced_q, balanced_k) - 39, .519, 5e-4);
}

TEST(MiKv, ChannelsWithoutARangeAreLeftAlone) {
  const std::vector<float> q = {0, 2, 0}, k = {3, 0, 0};
  std::vector<float> b(3);
  ChannelBalance(q, k, b);
  EXPECT_EQ(b, (std::vector<float>{1, 1, 1}));
}

TEST(MiKv, MeanBitsOfTheWorkedExamples) {
  const auto mean = [](double high, double low) {
    const WidthShare kinds[] = {{.2, high}, {.8, low}};
    return MeanBits(kinds);
  };
  EXPECT_NEAR(mean(16, 2.25), 5.0, 1e-12);
  EXPECT_NEAR(mean(16, 4.25), 6.6, 1e-12);
  EXPECT_NEAR(mean(8.25, 2.25), 3.45, 1e-12);
  EXPECT_NEAR(mean(8, 2.25), 3.4, 1e-12);
}

}  // namespace
}  // namespace kvant
