// Predicted variance of logits, and widths bought by KL a byte.
#include "policy/logit_variance.h"

#include <vector>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Chosen;
using testing::Limits;
using testing::OwnedTokens;
using testing::WrittenTokens;
using Widths = std::vector<uint8_t>;

// Sum over channels of the queries' mean square times the mean square of the error, over head_dim:
// (4 (1 + 9) / 2 + 1 (4 + 0) / 2) / 2.
TEST(LogitVariance, WeighsChannelsByTheQueries) {
  const std::vector<float> error = {1, 2, -3, 0}, queries = {4, 1};
  EXPECT_DOUBLE_EQ(PredictedLogitVariance(error, queries), 11);
  EXPECT_DOUBLE_EQ(PredictedKl(11), 5.5);
}

const std::vector<WidthOption> kOptions = {{8, 80, 0}, {4, 40, 1}, {2, 20, 3}};

std::vector<int> Lowered(std::vector<WidthItem> items, int64_t excess_bytes) {
  LowerWidths(items, excess_bytes);
  std::vector<int> widths;
  for (const WidthItem& item : items) widths.push_back(item.width);
  return widths;
}

// Steps cost 1/40 and 2/20 KL a byte, times the weight.
TEST(LowerWidths, TakesTheCheapestStepsUntilItFits) {
  const std::vector<WidthItem> items = {{kOptions, 8, 8, 80}, {kOptions, 1, 8, 80}};
  EXPECT_EQ(Lowered(items, 0), (std::vector<int>{8, 8}));
  EXPECT_EQ(Lowered(items, 1), (std::vector<int>{8, 4}));
  EXPECT_EQ(Lowered(items, 41), (std::vector<int>{8, 2}));
  EXPECT_EQ(Lowered(items, 61), (std::vector<int>{4, 2}));
  EXPECT_EQ(Lowered(items, 10000), (std::vector<int>{2, 2}));
}

// 4 bits save 10 bytes at 1 KL, 2 bits 60 at 1.2: nobody should stop at 4.
TEST(LowerWidths, SkipsWhatLiesAboveTheHull) {
  const std::vector<WidthOption> options = {{8, 80, 0}, {4, 70, 1}, {2, 20, 1.2}};
  EXPECT_EQ(Lowered({{options, 1, 8, 80}}, 1), (std::vector<int>{2}));
  // .02 a byte on the way to 2 bits, though the last part of it costs .004: .01 comes first.
  const std::vector<WidthOption> cheaper = {{8, 80, 0}, {4, 40, .4}};
  EXPECT_EQ(Lowered({{options, 1, 8, 80}, {cheaper, 1, 8, 80}}, 1), (std::vector<int>{8, 4}));
}

TEST(LowerWidths, WhatIsNarrowerStaysAndEqualsGoFromTheEnd) {
  EXPECT_EQ(Lowered({{kOptions, 1, 3, 30}, {kOptions, 1, 8, 80}, {kOptions, 1, 8, 80}}, 50),
            (std::vector<int>{3, 4, 4}));
  EXPECT_EQ(Lowered({{kOptions, 0, 8, 80}, {kOptions, 0, 8, 80}}, 1), (std::vector<int>{8, 4}));
}

TEST(Variance, SpendsBytesWhereAttentionTimesRangeIs) {
  OwnedTokens tokens = WrittenTokens(4, {.1f, .1f, .4f, .4f});
  tokens.head_dim = 2;
  tokens.k = {-1, 1, -4, 4, -1, 1, 0, 0};  // squares of ranges times scores: .4 6.4 1.6 0
  const auto bytes = testing::UsualTokenBytes();
  EXPECT_EQ(Chosen("variance", tokens, Limits(4)), (Widths{16, 16, 16, 16}));
  EXPECT_EQ(Chosen("variance", tokens, Limits(4, 0, 0, 3 * bytes[8] + bytes[2])),
            (Widths{8, 8, 8, 2}));
  EXPECT_EQ(Chosen("variance", tokens, Limits(4, 0, 0, bytes[8] + 2 * bytes[4] + bytes[2])),
            (Widths{4, 8, 4, 2}));
  EXPECT_EQ(Chosen("variance", tokens, Limits(4, 0, 0, 3 * bytes[2])), (Widths{2, 2, 2, 0}));
  EXPECT_EQ(Chosen("variance:3", tokens, Limits(4, 0, 0, 4 * bytes[3])), (Widths{3, 3, 3, 3}));
}

// A constant key loses nothing in few bits; what the score says still counts.
TEST(Variance, ConstantKeysGoByTheirScores) {
  OwnedTokens tokens = WrittenTokens(3, {.1f, .3f, .2f});
  tokens.head_dim = 2;
  tokens.k = {1, 1, 0, 0, -2, -2};
  const auto bytes = testing::UsualTokenBytes();
  EXPECT_EQ(Chosen("variance", tokens, Limits(3, 0, 0, bytes[8] + bytes[4])), (Widths{2, 4, 4}));
}

}  // namespace
}  // namespace kvant
