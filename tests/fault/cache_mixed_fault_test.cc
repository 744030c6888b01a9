// The n-th allocation fails, for every n, in caches whose tokens have several widths: what met the
// failure leaves nothing behind, and works when it is asked again.
#include <gtest/gtest.h>

#include <climits>

#include "cache/mixed_testing.h"
#include "cache/snapshot_testing.h"
#include "limited_allocations.h"

namespace kvant {
namespace {

using testing::AllocateUntilSpent;
using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendMixed;
using testing::g_allocations_left;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::Saved;
using testing::ScopedAllocate;
using testing::SoloMixedPictureOf;
using testing::Timeline;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 2, 32, 2};
constexpr char kPagePools[] = "16+8=int8+4=int4+2=int2";

// Runs `operation(cache, seq)` on a sequence of `length` tokens with 0, 1, 2, ... allocations
// allowed until it succeeds; returns how many it needs. A step that fails may leave its page in the
// pools of some heads (cache_mixed.cc), so what is compared is what comes after.
template <typename Operation>
int FailAtEveryAllocation(const KvSpec& spec, int64_t length, const Operation& operation) {
  const Timeline tokens = Tokens(1200);
  for (int allowed = 0;; ++allowed) {
    const ScopedAllocate scoped(AllocateUntilSpent);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, tokens, length);
    g_allocations_left = allowed;
    const Status status = operation(*cache, seq);
    g_allocations_left = INT_MAX;
    if (status.ok()) return allowed;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.message();
    EXPECT_EQ(cache->length(seq), length);
    ExpectPoolsBalance(*cache);
    EXPECT_TRUE(operation(*cache, seq).ok());
    const int64_t end = cache->length(seq) + 100;
    ExtendMixed(*cache, seq, tokens, end);
    EXPECT_EQ(MixedPictureOf(*cache, seq), SoloMixedPictureOf(kSmall, spec, tokens, end));
    EXPECT_TRUE(cache->Free(seq).ok());
    EXPECT_EQ(UsedPages(*cache), 0);
    if (::testing::Test::HasFailure() || allowed > 1000) return -1;
  }
}

std::vector<KvSpec> AllSpecs() {
  return {MakeMixedSpec(kPagePools, HashedWidth, true), MakeMixedSpec(kTokenPools, HashedWidth),
          MakeMixedSpec(kTokenPools, AgeingWidth)};
}

TEST(CacheMixedFault, StepsThatMeetAFailedAllocationCanBeRepeated) {
  const Timeline tokens = Tokens(1200);
  int most = 0;
  for (const KvSpec& spec : AllSpecs()) {
    for (const int64_t length : {0, 128, 192, 640}) {
      const int needed = FailAtEveryAllocation(spec, length, [&](Cache& cache, SequenceId seq) {
        return Extend(cache, seq, tokens, 5);
      });
      ASSERT_FALSE(HasFailure()) << length;
      most = std::max(most, needed);
    }
  }
  EXPECT_GE(most, 3);  // open pages, pools, tails
}

TEST(CacheMixedFault, StepsOfForksThatMeetAFailedAllocationLeaveTheOtherAlone) {
  const Timeline tokens = Tokens(1200);
  for (const KvSpec& spec : AllSpecs()) {
    const int needed = FailAtEveryAllocation(spec, 640, [&](Cache& cache, SequenceId seq) {
      const testing::Picture before = MixedPictureOf(cache, seq);
      const Result<SequenceId> fork = cache.Fork(seq);
      if (!fork.ok()) return fork.status();
      const Status status = Extend(cache, *fork, tokens, 5);
      EXPECT_EQ(MixedPictureOf(cache, seq), before);
      EXPECT_TRUE(cache.Free(*fork).ok());
      return status;
    });
    EXPECT_GE(needed, 1);
  }
}

TEST(CacheMixedFault, ShiftOfSharedPagesThatMeetsAFailedAllocationLeavesNoTrace) {
  const std::vector<Rope> ropes = testing::UsualRopes(kSmall);
  for (const KvSpec& spec : AllSpecs()) {
    const int needed = FailAtEveryAllocation(spec, 1000, [&](Cache& cache, SequenceId seq) {
      const testing::Picture before = MixedPictureOf(cache, seq);
      const Result<SequenceId> fork = cache.Fork(seq);
      if (!fork.ok()) return fork.status();
      const Status status = cache.Shift(*fork, 4, 128, ropes);
      EXPECT_EQ(MixedPictureOf(cache, *fork) == before, !status.ok());
      EXPECT_EQ(MixedPictureOf(cache, seq), before);
      EXPECT_TRUE(cache.Free(*fork).ok());
      return status;
    });
    EXPECT_GE(needed, 7);  // the table, the open page, room to turn and code pages; pools
  }
}

TEST(CacheMixedFault, RestoreThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  for (const KvSpec& spec : AllSpecs()) {
    auto source = MakeCache(kSmall, spec);
    const SequenceId saved = NewSequence(*source);
    ExtendMixed(*source, saved, tokens, 700);
    const testing::Bytes bytes = Saved(*source, saved);
    const Result<Snapshot> snapshot = ParseSnapshot(bytes);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
    const int needed = FailAtEveryAllocation(spec, 200, [&](Cache& cache, SequenceId seq) {
      const testing::Picture before = MixedPictureOf(cache, seq);
      const int64_t used = UsedPages(cache), held = cache.ledger().kv_bytes;
      const Result<SequenceId> restored = cache.Restore(*snapshot);
      EXPECT_EQ(MixedPictureOf(cache, seq), before);
      if (restored.ok()) {
        EXPECT_EQ(MixedPictureOf(cache, *restored), MixedPictureOf(*source, saved));
        EXPECT_TRUE(cache.Free(*restored).ok());
      }
      EXPECT_EQ(UsedPages(cache), used);
      EXPECT_EQ(cache.ledger().kv_bytes, held);
      return restored.ok() ? Status::Ok() : restored.status();
    });
    EXPECT_GE(needed, 3);  // the table, pools, open pages
  }
}

}  // namespace
}  // namespace kvant
