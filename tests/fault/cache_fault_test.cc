// The n-th allocation fails, for every n: the cache must be what it was before the call that met
// the failure, and go on working.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>

#include "cache/cache_testing.h"
#include "cache/snapshot.h"
#include "limited_allocations.h"

namespace kvant {
namespace {

using testing::AllocateUntilSpent;
using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendTo;
using testing::g_allocations_left;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::ScopedAllocate;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 3, 64, 3};

// Runs `operation(cache, seq)` on a sequence of `length` tokens with 0, 1, 2, ... allocations
// allowed until it succeeds; returns how many it needs.
template <typename Operation>
int FailAtEveryAllocation(const KvSpec& spec, const Timeline& tokens, int64_t length,
                          const Operation& operation) {
  for (int allowed = 0;; ++allowed) {
    g_allocations_left = INT_MAX;
    const ScopedAllocate scoped(AllocateUntilSpent);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, length, 40);
    const testing::Picture before = PictureOf(*cache, seq);
    const int64_t used = UsedPages(*cache), bytes = cache->ledger().kv_bytes;
    const int64_t earliest = cache->earliest_truncate(seq);

    g_allocations_left = allowed;
    const Status status = operation(*cache, seq);
    g_allocations_left = INT_MAX;
    if (status.ok()) return allowed;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.message();
    EXPECT_EQ(PictureOf(*cache, seq), before) << allowed;
    EXPECT_EQ(UsedPages(*cache), used) << allowed;
    EXPECT_EQ(cache->ledger().kv_bytes, bytes) << allowed;
    EXPECT_EQ(cache->earliest_truncate(seq), earliest) << allowed;
    ExpectPoolsBalance(*cache);

    EXPECT_TRUE(operation(*cache, seq).ok());  // usable: the same call now works
    const int64_t end = cache->length(seq) + 100;
    ExtendTo(*cache, seq, tokens, end, 70);
    EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, end));
    EXPECT_TRUE(cache->Free(seq).ok());
    if (::testing::Test::HasFailure() || allowed > 1000) return -1;
  }
}

TEST(CacheFault, StepThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  const std::pair<const char*, const char*> formats[] = {
      {"int4", "int4"}, {"f16", "f16"}, {"int4:prerope:out1", "int4:out1"}};
  for (const auto& [k, v] : formats) {
    for (int64_t length : {0, 63, 64, 200, 640}) {
      for (int64_t count : {1, 64, 200}) {
        const int needed = FailAtEveryAllocation(
            MakeSpec(k, v), tokens, length,
            [&](Cache& cache, SequenceId seq) { return Extend(cache, seq, tokens, count); });
        EXPECT_GE(needed, length == 0 ? 2 : 0);
        ASSERT_FALSE(HasFailure()) << k << ' ' << length << " + " << count;
      }
    }
  }
}

// All layers appended before any is released: more pages than Reserve has set aside.
TEST(CacheFault, AppendBeyondTheReservationFailsCleanly) {
  const Timeline tokens = Tokens(1200);
  const auto step = [&](Cache& cache, SequenceId seq) {
    KVANT_RETURN_IF_ERROR(cache.Reserve(seq, 700));
    std::vector<float> k, v;
    for (int pass = 0; pass < 2; ++pass) {
      for (int layer = 0; layer < kSmall.layers; ++layer) {
        for (int head = 0; head < kSmall.kv_heads; ++head) {
          testing::MakeRows(tokens, cache.length(seq), 700, layer, head, 64, &k, &v);
          const Status status =
              pass == 0 ? cache.Append(seq, layer, head, k.data(), 64, v.data(), 64, 700)
                        : cache.Seal(seq, layer, head);
          if (status.ok()) continue;
          cache.Rollback(seq);
          return status;
        }
      }
    }
    cache.Commit(seq, 700);
    return Status::Ok();
  };
  const int needed = FailAtEveryAllocation(MakeSpec("int4", "int4"), tokens, 100, step);
  EXPECT_GE(needed, 4);
}

TEST(CacheFault, StepThatWasReservedNeverMeetsTheAllocator) {
  const Timeline tokens = Tokens(1200);
  for (const char* format : {"int4", "f16"}) {
    for (int64_t length : {0, 64, 200, 640}) {
      for (int64_t count : {1, 64, 500}) {
        auto cache = MakeCache(kSmall, MakeSpec(format, format));
        const SequenceId seq = NewSequence(*cache);
        ExtendTo(*cache, seq, tokens, length, 130);
        ASSERT_TRUE(cache->Reserve(seq, count).ok());
        const ScopedAllocate refuse([](size_t, size_t) -> void* { return nullptr; });
        std::vector<float> k, v;
        for (int layer = 0; layer < kSmall.layers; ++layer) {
          for (int head = 0; head < kSmall.kv_heads; ++head) {
            testing::MakeRows(tokens, length, count, layer, head, 64, &k, &v);
            ASSERT_TRUE(cache->Append(seq, layer, head, k.data(), 64, v.data(), 64, count).ok());
            ASSERT_TRUE(cache->Seal(seq, layer, head).ok());
          }
          for (int head = 0; head < kSmall.kv_heads; ++head) cache->Release(seq, layer, head);
        }
        cache->Commit(seq, count);
        EXPECT_EQ(cache->length(seq), length + count);
      }
    }
  }
}

// What a layer gives back is kept for the next one, even if another sequence reserves meanwhile.
TEST(CacheFault, ReservationOutlivesThatOfAnotherSequence) {
  const Timeline tokens = Tokens(1200);
  auto cache = MakeCache(kSmall, MakeSpec("int4", "int4"));
  const SequenceId first = NewSequence(*cache), second = NewSequence(*cache);
  std::vector<float> k, v;
  const auto run_layer = [&](int layer) {
    for (int head = 0; head < kSmall.kv_heads; ++head) {
      testing::MakeRows(tokens, 0, 1000, layer, head, 64, &k, &v);
      ASSERT_TRUE(cache->Append(first, layer, head, k.data(), 64, v.data(), 64, 1000).ok());
      ASSERT_TRUE(cache->Seal(first, layer, head).ok());
    }
    for (int head = 0; head < kSmall.kv_heads; ++head) cache->Release(first, layer, head);
  };
  ASSERT_TRUE(cache->Reserve(first, 1000).ok());
  run_layer(0);
  ASSERT_TRUE(cache->Reserve(second, 1000).ok());
  const ScopedAllocate refuse([](size_t, size_t) -> void* { return nullptr; });
  run_layer(1);
  cache->Commit(first, 1000);
  EXPECT_EQ(cache->length(first), 1000);
}

TEST(CacheFault, ForkThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  int most = 0;
  for (int64_t length : {3, 10, 64, 200}) {
    const int needed = FailAtEveryAllocation(
        MakeSpec("int4", "int4", 17), tokens, length, [&](Cache& cache, SequenceId seq) {
          Result<SequenceId> fork = cache.Fork(seq);
          if (!fork.ok()) return fork.status();
          EXPECT_EQ(PictureOf(cache, *fork), PictureOf(cache, seq));
          return cache.Free(*fork);
        });
    EXPECT_GE(needed, 1);
    most = std::max(most, needed);
  }
  EXPECT_GE(most, 3);  // the table, open pages and sinks
}

TEST(CacheFault, CutOfASharedPageThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  for (int64_t cut : {8, 100}) {
    const int needed = FailAtEveryAllocation(
        MakeSpec("int4", "int4", 17), tokens, 192, [&](Cache& cache, SequenceId seq) {
          const Result<SequenceId> fork = cache.Fork(seq);
          if (!fork.ok()) return fork.status();
          const Status status = cache.Truncate(*fork, cut);
          if (!status.ok()) {
            EXPECT_EQ(PictureOf(cache, *fork), PictureOf(cache, seq));
          }
          EXPECT_TRUE(cache.Free(*fork).ok());
          return status;
        });
    EXPECT_GE(needed, 1);
  }
}

TEST(CacheFault, ShiftOfSharedPagesThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  const std::vector<Rope> ropes(2, UsualRope(64));
  for (const char* format : {"int4", "f16"}) {
    const int needed = FailAtEveryAllocation(
        MakeSpec(format, "int4", 4), tokens, 400, [&](Cache& cache, SequenceId seq) {
          const Result<SequenceId> fork = cache.Fork(seq);
          if (!fork.ok()) return fork.status();
          const Status status = cache.Shift(*fork, 64, 128, ropes);
          EXPECT_EQ(PictureOf(cache, *fork) == PictureOf(cache, seq), !status.ok());
          EXPECT_TRUE(cache.Free(*fork).ok());
          return status;
        });
    EXPECT_GE(needed, 3);  // the table, the open page of the fork, room to turn a page
  }
}

TEST(CacheFault, RestoreThatMeetsAFailedAllocationLeavesNoTrace) {
  const Timeline tokens = Tokens(1200);
  const KvSpec spec = MakeSpec("int4:prerope", "int4", 17);
  auto saved = MakeCache(kSmall, spec);
  const SequenceId source = NewSequence(*saved);
  ExtendTo(*saved, source, tokens, 500, 500);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(saved
                  ->Save(source, {},
                         [&](std::span<const std::byte> part) {
                           bytes.insert(bytes.end(), part.begin(), part.end());
                           return Status::Ok();
                         })
                  .ok());
  const Result<kvant::Snapshot> snapshot = ParseSnapshot(bytes);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  const int needed = FailAtEveryAllocation(spec, tokens, 200, [&](Cache& cache, SequenceId) {
    const Result<SequenceId> restored = cache.Restore(*snapshot);
    if (!restored.ok()) return restored.status();
    EXPECT_EQ(PictureOf(cache, *restored), PictureOf(*saved, source));
    return cache.Free(*restored);
  });
  EXPECT_GE(needed, 3);  // the table, stored and open pages
}

TEST(CacheFault, ASequenceThatIsRefusedDoesNotDisturbTheOthers) {
  const KvSpec spec = MakeSpec("int4", "int4");
  const Timeline tokens = Tokens(400);
  auto cache = MakeCache(kSmall, spec, 4096, 1'500'000);
  std::vector<SequenceId> live;
  Status status;
  while (status.ok()) {
    live.push_back(NewSequence(*cache));
    while (status.ok() && cache->length(live.back()) < 300) {
      status = Extend(*cache, live.back(), tokens, 60);
    }
  }
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  ASSERT_GE(live.size(), 3u);
  for (SequenceId seq : live) {
    const int64_t length = cache->length(seq);
    EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, length));
  }
  ASSERT_TRUE(cache->Free(live[0]).ok());
  ASSERT_TRUE(cache->Free(live[1]).ok());
  ExtendTo(*cache, live.back(), tokens, 300, 60);
  EXPECT_EQ(PictureOf(*cache, live.back()), SoloPicture(kSmall, spec, tokens, 300));
}

}  // namespace
}  // namespace kvant
