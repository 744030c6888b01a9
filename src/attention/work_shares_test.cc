#include "attention/work_shares.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/thread_pool.h"

namespace kvant {
namespace {

// What each thread would take, were it alone: its own share first.
std::vector<int> OwnShare(WorkShares& shares, int thread) {
  std::vector<int> items;
  while (shares.Peek(thread) >= 0) items.push_back(shares.Take(thread));
  return items;
}

TEST(WorkShares, SharesAreContiguousAndAsEqualInCostAsTheItemsAllow) {
  WorkShares shares;
  shares.Cut(std::vector<int64_t>{10, 10, 10, 10, 40, 20, 20}, 3);
  EXPECT_EQ(OwnShare(shares, 0), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(OwnShare(shares, 1), (std::vector<int>{4}));
  EXPECT_EQ(OwnShare(shares, 2), (std::vector<int>{5, 6}));
}

TEST(WorkShares, AThreadThatIsDoneTakesFromTheEndOfAnother) {
  WorkShares shares;
  shares.Cut(std::vector<int64_t>{1, 1, 1, 1, 1, 1}, 2);
  EXPECT_EQ(OwnShare(shares, 1), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(shares.Take(1), 2);
  EXPECT_EQ(shares.Take(0), 0);
  EXPECT_EQ(shares.Take(1), 1);
  EXPECT_EQ(shares.Take(0), -1);
  EXPECT_EQ(shares.Take(1), -1);
}

TEST(WorkShares, FewerItemsThanThreadsAndItemsWithoutCostAreStillTaken) {
  WorkShares shares;
  for (const std::vector<int64_t>& costs :
       {std::vector<int64_t>{}, {5}, {0, 0, 0}, {0, 7, 0}, {1, 1}}) {
    shares.Cut(costs, 4);
    std::vector<int> times(costs.size(), 0);
    for (int i; (i = shares.Take(2)) >= 0;) ++times[static_cast<size_t>(i)];
    EXPECT_EQ(times, std::vector<int>(costs.size(), 1)) << costs.size();
  }
}

TEST(WorkShares, EveryItemIsTakenOnceHoweverThreadsRace) {
  constexpr int kThreads = 4, kItems = 5000;
  const auto pool = std::move(ThreadPool::Create(kThreads).value());
  WorkShares shares;
  std::vector<int64_t> costs(kItems, 0);
  for (int i = 0; i < kItems / 10; ++i)
    costs[static_cast<size_t>(i)] = 1;  // one thread has nearly all
  shares.Cut(costs, kThreads);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<int>> taken(kThreads);
    shares.Restart();
    pool->Run([&](int thread) {
      for (int i; (i = shares.Take(thread)) >= 0;) taken[static_cast<size_t>(thread)].push_back(i);
    });
    std::vector<int> times(kItems, 0);
    for (const auto& items : taken) {
      for (int i : items) ++times[static_cast<size_t>(i)];
    }
    ASSERT_EQ(times, std::vector<int>(kItems, 1)) << "round " << round;
  }
}

}  // namespace
}  // namespace kvant
