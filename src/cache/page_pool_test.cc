#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ScopedAllocate;

void ExpectBalance(const PagePool& pool, int64_t used) {
  const PagePool::Counts c = pool.counts();
  ASSERT_EQ(c.used_pages, used);
  ASSERT_EQ(c.free_pages + c.used_pages, c.total_pages);
  ASSERT_LE(c.reserved_pages, c.free_pages);
}

TEST(PagePool, PagesAreAlignedDistinctAndInOrder) {
  PageBudget budget(0);
  PagePool pool(192, &budget);
  PagePool::Reservation reservation;
  ASSERT_TRUE(pool.Reserve(100, &reservation).ok());
  std::byte* before = nullptr;
  for (int i = 0; i < 100; ++i) {
    const Result<std::byte*> page = pool.Allocate(&reservation);
    ASSERT_TRUE(page.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*page) % 64, 0u);
    if (before != nullptr) {
      EXPECT_EQ(*page - before, 192);  // one demand, one slab
    }
    std::memset(*page, i, 192);
    before = *page;
  }
  EXPECT_EQ(reservation.pages, 0);
  ExpectBalance(pool, 100);
  EXPECT_EQ(pool.counts().total_pages, 100);
}

TEST(PagePool, RandomUseKeepsTheBooksAndNeverHandsOutALivePage) {
  PageBudget budget(0);
  PagePool pool(64, &budget);
  std::mt19937 random(7);
  std::map<std::byte*, int> references;
  PagePool::Reservation reservation;
  for (int step = 0; step < 20000; ++step) {
    const auto pick = [&] {
      return std::next(references.begin(),
                       static_cast<std::ptrdiff_t>(random() % references.size()));
    };
    const unsigned what = random() % 16;
    // Grows for a while, shrinks for a while.
    if (what < (step / 4000 % 2 == 0 ? 8u : 4u) || references.empty()) {
      const Result<std::byte*> page = pool.Allocate(what % 2 == 0 ? &reservation : nullptr);
      ASSERT_TRUE(page.ok());
      ASSERT_TRUE(references.emplace(*page, 1).second) << "a live page was handed out";
      std::memcpy(*page, &step, sizeof step);
    } else if (what < 9) {
      const auto it = pick();
      pool.Share(it->first);
      ++it->second;
    } else if (what < 14) {
      const auto it = pick();
      ASSERT_EQ(pool.IsShared(it->first), it->second > 1);
      pool.Release(it->first, what == 9 ? &reservation : nullptr);
      if (--it->second == 0) references.erase(it);
    } else if (what == 14) {
      ASSERT_TRUE(pool.Reserve(random() % 20, &reservation).ok());
    } else {
      pool.Cancel(&reservation);
    }
    ExpectBalance(pool, static_cast<int64_t>(references.size()));
    ASSERT_EQ(pool.counts().reserved_pages, reservation.pages);
    ASSERT_EQ(budget.taken_bytes(), pool.counts().total_pages * 64);
  }
  pool.Cancel(&reservation);
  for (auto [page, count] : references) {
    for (int i = 0; i < count; ++i) pool.Release(page);
  }
  pool.Trim();
  ExpectBalance(pool, 0);
  EXPECT_LE(pool.counts().total_pages, PagePool::kMinSlabPages);
}

TEST(PagePool, ReservedPagesAreNotGivenToOthers) {
  PageBudget budget(8 * 64);
  PagePool pool(64, &budget);
  PagePool::Reservation mine;
  ASSERT_TRUE(pool.Reserve(6, &mine).ok());
  ASSERT_TRUE(pool.Allocate().ok());
  ASSERT_TRUE(pool.Allocate().ok());
  EXPECT_EQ(pool.Allocate().status().code(), StatusCode::kOutOfMemory);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(pool.Allocate(&mine).ok());
  EXPECT_EQ(pool.Allocate(&mine).status().code(), StatusCode::kOutOfMemory);
}

TEST(PagePool, RefusedReservationLeavesThePoolAsItWas) {
  PageBudget budget(3 * PagePool::kMaxSlabBytes);
  PagePool pool(1 << 20, &budget);
  PagePool::Reservation reservation;
  ASSERT_TRUE(pool.Reserve(5, &reservation).ok());
  const PagePool::Counts before = pool.counts();
  EXPECT_EQ(pool.Reserve(60, &reservation).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(pool.counts().total_pages, before.total_pages);
  EXPECT_EQ(reservation.pages, 5);
  {
    const ScopedAllocate refuse([](size_t, size_t) -> void* { return nullptr; });
    EXPECT_EQ(pool.Reserve(12, &reservation).code(), StatusCode::kOutOfMemory);
  }
  EXPECT_EQ(budget.taken_bytes(), before.total_pages << 20);
  EXPECT_TRUE(pool.Reserve(12, &reservation).ok());
}

TEST(PagePool, WhatIsNeededStillFitsWhereAWholeSlabExceedsTheBudget) {
  PageBudget budget(10 * 64);
  PagePool pool(64, &budget);
  PagePool::Reservation reservation;
  ASSERT_TRUE(pool.Reserve(8, &reservation).ok());
  EXPECT_TRUE(pool.Reserve(2, &reservation).ok());
  EXPECT_EQ(pool.Reserve(1, &reservation).code(), StatusCode::kOutOfMemory);
}

TEST(PagePool, TwoPoolsShareOneBudget) {
  PageBudget budget(16 * 64);
  PagePool first(64, &budget), second(64, &budget);
  PagePool::Reservation a, b;
  ASSERT_TRUE(first.Reserve(12, &a).ok());
  EXPECT_FALSE(second.Reserve(5, &b).ok());
  EXPECT_TRUE(second.Reserve(4, &b).ok());
  first.Cancel(&a);
  EXPECT_TRUE(second.Reserve(12, &b).ok());
}

TEST(PagePool, CompactionMovesContentsAndGivesTheSlabBack) {
  PageBudget budget(0);
  PagePool pool(64, &budget);
  std::vector<std::byte*> pages;
  for (int slab = 0; slab < 2; ++slab) {
    PagePool::Reservation reservation;
    ASSERT_TRUE(pool.Reserve(100, &reservation).ok());
    for (int i = 0; i < 100; ++i) pages.push_back(*pool.Allocate(&reservation));
  }
  std::vector<std::byte*> kept;
  for (size_t i = 0; i < pages.size(); ++i) {
    std::memset(pages[i], static_cast<int>(i), 64);
    if (i % 2 == 0) {
      pool.Release(pages[i]);
    } else {
      kept.push_back(pages[i]);
    }
  }
  // A shared page stays where it is, and so does its slab; one in each, since either may be picked.
  std::byte* const first = kept.front();
  std::byte* const last = kept.back();
  pool.Share(first);
  pool.Share(last);
  const auto compact = [&] {
    ASSERT_TRUE(pool.BeginCompaction());
    for (std::byte*& page : kept) page = pool.Relocate(page);
    pool.EndCompaction();
    for (size_t i = 0; i < kept.size(); ++i) {
      ASSERT_EQ(static_cast<size_t>(kept[i][0]), 2 * i + 1);
      ASSERT_EQ(static_cast<size_t>(kept[i][63]), 2 * i + 1);
    }
    ExpectBalance(pool, 100);
  };
  compact();
  EXPECT_EQ(kept.front(), first);
  EXPECT_EQ(kept.back(), last);
  EXPECT_EQ(pool.counts().total_pages, 200);
  pool.Release(first);
  pool.Release(last);
  compact();
  EXPECT_EQ(pool.counts().total_pages, 100);
  EXPECT_FALSE(pool.BeginCompaction());
  ExpectBalance(pool, 100);
}

TEST(PagePool, ThreadsMayAllocateAndReleaseAtOnce) {
  PageBudget budget(0);
  PagePool pool(64, &budget);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::vector<std::byte*> mine;
      for (int i = 0; i < 2000; ++i) {
        std::byte* page = *pool.Allocate();
        std::memset(page, t, 64);
        mine.push_back(page);
        if (i % 3 == 2) {
          EXPECT_EQ(static_cast<int>(mine.front()[63]), t);
          pool.Release(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (std::byte* page : mine) {
        EXPECT_EQ(static_cast<int>(page[0]), t);
        pool.Release(page);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectBalance(pool, 0);
}

}  // namespace
}  // namespace kvant
