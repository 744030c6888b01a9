// KeyDiff and LagKV on keys whose scores can be worked out by hand.
#include <cmath>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Kept;
using testing::Limits;
using testing::OwnedTokens;
using testing::WrittenTokens;
using Positions = std::vector<int32_t>;

// Directions count, lengths do not: three keys along x, one along y, one against x, one of zeros.
TEST(KeyDiff, RanksByTheCosineWithTheMeanDirection) {
  OwnedTokens tokens = WrittenTokens(6);
  tokens.head_dim = 2;
  tokens.k = {1, 0, 5, 0, 2, 0, 0, 3, -1, 0, 0, 0};
  std::vector<double> importance(6);
  const auto policy = testing::MustParse("keydiff:2");
  policy->Importance(tokens.view(), Limits(6), importance);
  // The mean direction is (2, 1) up to a factor.
  const double x = 2 / std::sqrt(5.0), y = 1 / std::sqrt(5.0);
  const std::vector<double> wanted = {-x, -x, -x, -y, x, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(importance[i], wanted[i], 1e-15) << i;
  EXPECT_EQ(Kept("keydiff:2", tokens, Limits(6)), (Positions{4, 5}));
  EXPECT_EQ(Kept("keydiff:4", tokens, Limits(6)), (Positions{0, 3, 4, 5}));
}

// Parts of two tokens behind one sink. The second part is seen through 0..3 and 0..10 in two
// channels, while a third one has no range and does not count; through its own range both of its
// tokens would deviate alike.
TEST(LagKv, RanksWithinAPartByWhatTheNextOneDoesNotSpan) {
  OwnedTokens tokens = WrittenTokens(7);
  tokens.head_dim = 3;
  tokens.k = {9, 9, 9,            // the sink
              0, 0, 5, 1, 0,  5,  // deviations of (0, 0, 0) and (1, 0, 0)
              0, 2, 5, 1, 0,  5,  // of (0, .2, 0) and (1/3, 0, 0)
              3, 0, 5, 0, 10, 5};
  tokens.v = tokens.k;
  std::vector<double> importance(7);
  const auto policy = testing::MustParse("lagkv:1,2");
  policy->Importance(tokens.view(), Limits(7, 1), importance);
  EXPECT_EQ(importance[1], 0);    // deviates less: last of its part
  EXPECT_EQ(importance[2], 0.5);  // 1 of 2
  EXPECT_EQ(importance[3], 0);
  EXPECT_EQ(importance[4], 0.5);
  EXPECT_GT(importance[6], importance[5]);  // the last part: recent
  EXPECT_GT(importance[5], 1e100);
  EXPECT_EQ(Kept("lagkv:3,2", tokens, Limits(7, 1)), (Positions{0, 2, 5, 6}));
  EXPECT_EQ(Kept("lagkv:4,2", tokens, Limits(7, 1)), (Positions{0, 2, 4, 5, 6}));
}

TEST(LagKv, WithoutANextPartAllIsRecent) {
  OwnedTokens tokens = WrittenTokens(3);
  tokens.head_dim = 1;
  tokens.k = tokens.v = {3, 1, 2};
  EXPECT_EQ(Kept("lagkv:2,2", tokens, Limits(3)), (Positions{1, 2}));
}

}  // namespace
}  // namespace kvant
