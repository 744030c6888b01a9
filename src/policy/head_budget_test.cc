// AdaKV's pool over heads.
#include "policy/head_budget.h"

#include <gtest/gtest.h>

namespace kvant {
namespace {

using Counts = std::vector<int64_t>;

Counts Pooled(const std::vector<std::vector<double>>& heads, int64_t keep, double floor) {
  std::vector<std::span<const double>> importance(heads.begin(), heads.end());
  return PoolOverHeads(importance, keep, floor);
}

const std::vector<std::vector<double>> kHeads = {{9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
                                                 {.1, .2, .3, .4, .5, .6, .7, .8, .9, 0}};

TEST(PoolOverHeads, TheMostImportantOfAllHeadsBeyondAFloor) {
  EXPECT_EQ(Pooled(kHeads, 8, 0), (Counts{8, 0}));
  // A fifth of 10 / 2 tokens is 1; a floor of half of them is 2.
  EXPECT_EQ(Pooled(kHeads, 10, kHeadBudgetFloor), (Counts{9, 1}));
  EXPECT_EQ(Pooled(kHeads, 10, .5), (Counts{8, 2}));
  EXPECT_EQ(Pooled(kHeads, 10, 1), (Counts{5, 5}));
  EXPECT_EQ(Pooled(kHeads, 20, kHeadBudgetFloor), (Counts{10, 10}));
  EXPECT_EQ(Pooled(kHeads, 99, kHeadBudgetFloor), (Counts{10, 10}));
  EXPECT_EQ(Pooled(kHeads, 0, kHeadBudgetFloor), (Counts{0, 0}));
}

TEST(PoolOverHeads, TiesGoToTheLowerHead) {
  EXPECT_EQ(Pooled({{1, 1, 1}, {1, 1, 1}, {1}}, 4, 0), (Counts{3, 1, 0}));
  EXPECT_EQ(Pooled({}, 4, 0), Counts{});
}

}  // namespace
}  // namespace kvant
