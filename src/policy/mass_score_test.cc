// DiffKV's score: the mean over observers, the largest over heads, of the last 64 queries.
#include "policy/mass_score.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvant {
namespace {

// Two heads, the last two queries of three tokens; a row's own token is its last. What lies behind
// it must not be read.
TEST(MassScores, TheMeanOverWhoSawATokenOfTheHeadThatSawItMost) {
  constexpr float kNever = 1e30f;
  const std::vector<float> p = {.5f,  .5f,  kNever,  // head 0, query 1
                                .25f, .25f, .5f,     // query 2
                                1,    0,    kNever,  // head 1
                                .5f,  .25f, .25f};
  std::vector<float> score(3);
  MassScores(p, 2, 2, 3, score);
  EXPECT_EQ(score, (std::vector<float>{.75f, .375f, .5f}));
}

TEST(MassScores, OnlyTheLast64QueriesCount) {
  constexpr int kQueries = 70;
  std::vector<float> p(kQueries * kQueries);
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j <= i; ++j) p[static_cast<size_t>(i * kQueries + j)] = i < 6 ? 1000 : 1;
  }
  std::vector<float> score(kQueries);
  MassScores(p, 1, kQueries, kQueries, score);
  EXPECT_EQ(score, std::vector<float>(kQueries, 1));
}

// A token that few queries saw is not thinned out by those before it.
TEST(MassScores, ObserversAreAsManyAsThereAreUpTo64) {
  constexpr int kTokens = 100;
  std::vector<float> p(64 * kTokens);
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j <= kTokens - 64 + i; ++j) p[static_cast<size_t>(i * kTokens + j)] = .5f;
  }
  std::vector<float> score(kTokens);
  MassScores(p, 1, 64, kTokens, score);
  EXPECT_EQ(score, std::vector<float>(kTokens, .5f));
}

}  // namespace
}  // namespace kvant
