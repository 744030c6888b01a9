#include "cache/page_arena.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/huge_pages.h"

namespace kvant {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(PageArena, SlabsFollowEachOtherSoThatHugePagesFormAcrossThem) {
  PageArena arena;
  const auto first = arena.Take(3 * kMiB);
  ASSERT_TRUE(first.ok());
  const auto second = arena.Take(3 * kMiB);
  const auto third = arena.Take(3 * kMiB);
  ASSERT_TRUE(second.ok() && third.ok());
  EXPECT_EQ(reinterpret_cast<size_t>(*second) % kHugePageBytes, 0u);
  EXPECT_EQ(*third, *second + 3 * kMiB);
  EXPECT_EQ(arena.taken_bytes(), 9 * kMiB);
}

TEST(PageArena, WhatIsGivenBackLeavesNeighboursAlone) {
  PageArena arena;
  std::byte* const warm_up = *arena.Take(4 * kMiB);
  std::byte* const a = *arena.Take(kMiB);
  std::byte* const b = *arena.Take(kMiB);
  std::byte* const c = *arena.Take(kMiB);
  ASSERT_EQ(c, a + 2 * kMiB);
  std::memset(a, 1, kMiB);
  std::memset(b, 2, kMiB);
  std::memset(c, 3, kMiB);
  arena.Give(b, kMiB);
  EXPECT_EQ(a[kMiB - 1], std::byte{1});
  EXPECT_EQ(c[0], std::byte{3});
  arena.Give(a, kMiB);
  arena.Give(c, kMiB);
  arena.Give(warm_up, 4 * kMiB);
  EXPECT_EQ(arena.blocks(), 0u);
  EXPECT_EQ(arena.taken_bytes(), 0);
}

TEST(PageArena, ASmallPoolHoldsASmallBlock) {
  PageArena arena;
  ASSERT_TRUE(arena.Take(64).ok());
  ASSERT_TRUE(arena.Take(64).ok());
  EXPECT_EQ(arena.blocks(), 2u);
}

TEST(PageArena, AFailedAllocationIsToldAndTakesNothing) {
  PageArena arena;
  const AllocateFn before = g_allocate;
  g_allocate = [](size_t, size_t) -> void* { return nullptr; };
  const auto taken = arena.Take(kMiB);
  g_allocate = before;
  EXPECT_EQ(taken.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(arena.taken_bytes(), 0);
  EXPECT_EQ(arena.blocks(), 0u);
}

}  // namespace
}  // namespace kvant
