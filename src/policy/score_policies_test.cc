// H2O and SnapKV: the worked example of H2O, and pooling by hand.
#include "policy/mass_score.h"
#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Kept;
using testing::Limits;
using testing::WrittenTokens;
using Positions = std::vector<int32_t>;

// Rows of probabilities of six queries, each over the tokens up to its own.
const std::vector<std::vector<float>> kRows = {{1},
                                               {.6f, .4f},
                                               {.5f, .1f, .4f},
                                               {.5f, .05f, .25f, .2f},
                                               {.4f, .05f, .3f, .05f, .2f},
                                               {.35f, .05f, .25f, .05f, .1f, .2f}};

std::vector<float> AccumulatedScores() {
  std::vector<float> sum(6);
  for (const auto& row : kRows) AccumulateMass(row, sum);
  return sum;
}

TEST(H2o, ScoresOfTheWorkedExample) {
  const float sums[] = {3.35f, .65f, 1.2f, .3f, .3f, .2f};
  const double means[] = {.5583, .13, .3, .1, .15, .2};
  const auto tokens = WrittenTokens(6, AccumulatedScores());
  std::vector<double> importance(6);
  testing::MustParse("h2o:2,0,mean")->Importance(tokens.view(), Limits(6), importance);
  for (size_t i = 0; i < 6; ++i) {
    // A sum of six f32 below 4, each off by at most 2^-23: 1e-6. The means are given to 4 digits.
    EXPECT_NEAR(tokens.score[i], sums[i], 1e-6) << i;
    EXPECT_NEAR(importance[i], means[i], 5e-5) << i;
  }
}

TEST(H2o, KeepsTwoHeavyHittersAndTheTwoNewest) {
  const auto tokens = WrittenTokens(6, AccumulatedScores());
  EXPECT_EQ(Kept("h2o:2,2", tokens, Limits(6)), (Positions{0, 2, 4, 5}));
  // The same as shares of six: .4 * 6 = 2.4.
  EXPECT_EQ(Kept("h2o:0.4,0.4", tokens, Limits(6)), (Positions{0, 2, 4, 5}));
  // The mean forgives token 4 that it came late.
  EXPECT_EQ(Kept("h2o:3,0", tokens, Limits(6)), (Positions{0, 1, 2}));
  EXPECT_EQ(Kept("h2o:3,0,mean", tokens, Limits(6)), (Positions{0, 2, 5}));
}

TEST(H2o, EqualScoresKeepTheLowerPosition) {
  const auto tokens = WrittenTokens(6, {.5f, .25f, .25f, .25f, 0, 0});
  EXPECT_EQ(Kept("h2o:3,0", tokens, Limits(6)), (Positions{0, 1, 2}));
}

TEST(H2o, SinksAndWindowTakeNoPlace) {
  const auto tokens = WrittenTokens(6, {9, 1, 3, 2, 9, 9});
  EXPECT_EQ(Kept("h2o:1,0", tokens, Limits(6, 1, 2)), (Positions{0, 2, 4, 5}));
}

TEST(SnapKv, ScoresAreMeansOverNeighbours) {
  const auto tokens = WrittenTokens(8, {0, 0, 0, 1, 0, 0, 0, .5f});
  std::vector<double> importance(8);
  testing::MustParse("snapkv:3,5")->Importance(tokens.view(), Limits(8), importance);
  const std::vector<double> pooled = {0, .2, .2, .2, .2, .3, .1, .1};
  for (size_t i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(importance[i], pooled[i]) << i;
  EXPECT_EQ(Kept("snapkv:3,5", tokens, Limits(8)), (Positions{1, 2, 5}));
  EXPECT_EQ(Kept("snapkv:2,1", tokens, Limits(8)), (Positions{3, 7}));
}

}  // namespace
}  // namespace kvant
