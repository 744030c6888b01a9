#include "base/thread_pool.h"

#include <gtest/gtest.h>

namespace kvant {
namespace {

TEST(ThreadPool, EveryIndexRunsOncePerJobManyTimes) {
  for (int threads : {1, 2, 5}) {
    auto pool = ThreadPool::Create(threads);
    ASSERT_TRUE(pool.ok());
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int job = 0; job < 2000; ++job) {
      (*pool)->Run([&](int index) { ++calls[static_cast<size_t>(index)]; });
    }
    for (int count : calls) EXPECT_EQ(count, 2000);
  }
}

TEST(ThreadPool, ParallelForCoversTheRangeWithoutOverlap) {
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.ok());
  for (int64_t count : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> seen(static_cast<size_t>(count), 0);
    (*pool)->ParallelFor(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (int s : seen) EXPECT_EQ(s, 1);
  }
}

TEST(ThreadPool, RefusesNonsense) {
  EXPECT_FALSE(ThreadPool::Create(0).ok());
  EXPECT_FALSE(ThreadPool::Create(-3).ok());
  EXPECT_FALSE(ThreadPool::Create(1 << 20).ok());
}

}  // namespace
}  // namespace kvant
