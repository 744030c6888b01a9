// Heads that take turns with codes that are searched for: steps are even, and nobody can tell from
// what is read when a page was coded.
#include <gtest/gtest.h>

#include "cache/cache_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::RestoreInto;
using testing::RunStep;
using testing::Saved;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;
using testing::UsualRopes;

constexpr KvGeometry kTwelveHeads{4, 3, 16, 3};

// Coded pages that the cache holds, whether or not a query may read them yet.
int64_t CodedPages(const Cache& cache) {
  for (const Cache::PoolCount& pool : cache.pool_counts()) {
    if (pool.page_bytes == cache.stored_layout(0).page_bytes) return pool.used_pages;
  }
  return 0;
}

// The first `keep` tokens of a timeline, then others.
Timeline Draft(const Timeline& tokens, int64_t keep, int64_t length, uint32_t seed) {
  Timeline draft(tokens.begin(), tokens.begin() + keep);
  const Timeline tail = Tokens(length - keep, seed);
  draft.insert(draft.end(), tail.begin(), tail.end());
  return draft;
}

// 90 heads over 64 steps: no step codes more than two pages. One chunk codes them all at once.
TEST(CacheTurns, PagesAreSpreadOverTheStepsOfAPageWithTheBytesOfAllAtOnce) {
  const KvGeometry geometry{30, 3, 16, 3};
  const KvSpec spec = MakeSpec("tc2:n8", "tc2:n8");
  const Timeline tokens = Tokens(400);
  auto cache = MakeCache(geometry, spec);
  const SequenceId seq = NewSequence(*cache);
  int64_t before = 0;
  for (int64_t length = 1; length <= 400; ++length) {
    ExtendTo(*cache, seq, tokens, length, 1);
    const int64_t coded = CodedPages(*cache);
    ASSERT_LE(coded - before, 2) << length;
    const int64_t due = 90 * std::max<int64_t>(0, (length - 1) / 64 - 1);
    ASSERT_GE(coded, due) << length;
    ASSERT_LE(coded, due + 90) << length;
    before = coded;
  }
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(geometry, spec, tokens, 400));
}

TEST(CacheTurns, CodesThatAreNotSearchedForComeWhenTheyAreDue) {
  const Timeline tokens = Tokens(128);
  for (const char* format : {"tq4:n8", "int4", "int4:token"}) {
    auto cache = MakeCache(kTwelveHeads, MakeSpec(format, format));
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, 128, 1);
    EXPECT_EQ(CodedPages(*cache), 0) << format;
  }
}

// In the midst of a page some heads have coded the page before the window, and others have not.
TEST(CacheTurns, CutsForksAndDraftsAmongThemLeaveNoTrace) {
  const KvSpec spec = MakeSpec("tc2:n8", "int4");
  const Timeline tokens = Tokens(500);
  auto cache = MakeCache(kTwelveHeads, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, 190, 64);
  while (cache->length(seq) < 420) {
    const int64_t length = cache->length(seq);
    const Timeline draft = Draft(tokens, length, length + 40, 5);
    ASSERT_TRUE(RunStep(*cache, seq, draft, 40, [](int, int) {}).ok());
    cache->Rollback(seq);
    ASSERT_TRUE(Extend(*cache, seq, draft, 33).ok());
    const Result<SequenceId> fork = cache->Fork(seq);
    ASSERT_TRUE(fork.ok());
    ASSERT_TRUE(cache->Truncate(seq, length).ok());
    ASSERT_EQ(PictureOf(*cache, seq), SoloPicture(kTwelveHeads, spec, tokens, length));
    ASSERT_EQ(PictureOf(*cache, *fork), SoloPicture(kTwelveHeads, spec, draft, length + 33));
    const Timeline other = Draft(draft, length + 33, length + 100, 6);
    ExtendTo(*cache, *fork, other, length + 100, 1);
    ASSERT_EQ(PictureOf(*cache, *fork), SoloPicture(kTwelveHeads, spec, other, length + 100));
    ASSERT_TRUE(cache->Free(*fork).ok());
    ExtendTo(*cache, seq, tokens, length + 11, 4);
  }
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kTwelveHeads, spec, tokens, cache->length(seq)));
  ExpectPoolsBalance(*cache);
}

// A saved sequence leaves out what was coded ahead, so that it is the same for every schedule; the
// restored one catches up in its next step.
TEST(CacheTurns, SavedInTheMidstOfThemASequenceGoesOnAsIfNothingHadHappened) {
  const KvSpec spec = MakeSpec("tc2:n8", "tc2:n8");
  const Timeline tokens = Tokens(500);
  for (const int64_t length : {65, 100, 128, 129, 160, 191, 192, 193, 300}) {
    auto cache = MakeCache(kTwelveHeads, spec), chunked = MakeCache(kTwelveHeads, spec);
    const SequenceId seq = NewSequence(*cache), other = NewSequence(*chunked);
    ExtendTo(*cache, seq, tokens, length, 1);
    ExtendTo(*chunked, other, tokens, length, 4096);
    const testing::Bytes bytes = Saved(*cache, seq);
    ASSERT_TRUE(bytes == Saved(*chunked, other)) << length;
    const Result<SequenceId> again = RestoreInto(*cache, bytes);
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_TRUE(Saved(*cache, *again) == bytes) << length;
    ASSERT_EQ(PictureOf(*cache, *again), PictureOf(*cache, seq)) << length;
    const int64_t before = CodedPages(*cache);
    ExtendTo(*cache, *again, tokens, length + 1, 1);
    ExtendTo(*cache, seq, tokens, length + 1, 1);
    ASSERT_TRUE(cache->Free(seq).ok());
    ASSERT_GE(before, CodedPages(*cache) - 12) << length;
    ExtendTo(*cache, *again, tokens, 450, 7);
    ASSERT_EQ(PictureOf(*cache, *again), SoloPicture(kTwelveHeads, spec, tokens, 450)) << length;
    ExpectPoolsBalance(*cache);
  }
}

// A page that was coded ahead moves as what was written, as it does where nobody had coded it yet.
TEST(CacheTurns, AShiftGivesTheSameBytesBeforeAndAfterATurn) {
  const KvSpec spec = MakeSpec("tc2:n8", "tc2:n8");
  const Timeline tokens = Tokens(500);
  const std::vector<Rope> ropes = UsualRopes(kTwelveHeads);
  for (const int64_t length : {260, 300, 320}) {
    auto cache = MakeCache(kTwelveHeads, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, length, 1);
    const Result<SequenceId> none_ahead = RestoreInto(*cache, Saved(*cache, seq));
    ASSERT_TRUE(none_ahead.ok());
    Timeline rest = tokens;
    rest.erase(rest.begin() + 4, rest.begin() + 4 + 64);
    for (const SequenceId id : {seq, *none_ahead}) {
      const int64_t before = cache->ledger().recoded_tokens;
      ASSERT_TRUE(cache->Shift(id, 4, 64, ropes).ok());
      ExpectPoolsBalance(*cache);
      // Two of three stored pages moved, the first of them into the place of the sinks.
      ASSERT_EQ(cache->ledger().recoded_tokens - before, 2 * 64 - 4) << length;
    }
    EXPECT_EQ(PictureOf(*cache, seq), PictureOf(*cache, *none_ahead)) << length;
    for (const SequenceId id : {seq, *none_ahead}) ExtendTo(*cache, id, rest, 400, 1);
    EXPECT_EQ(PictureOf(*cache, seq), PictureOf(*cache, *none_ahead)) << length;
  }
}

// Reserve sets aside what turns take: with a budget, only Reserve refuses, whatever was restored.
TEST(CacheTurns, OnlyReserveMeetsTheBudget) {
  const KvSpec spec = MakeSpec("tc2:n8", "tc2:n8");
  const Timeline tokens = Tokens(2000);
  for (const int64_t budget : {300'000, 350'000, 400'000}) {
    auto cache = MakeCache(kTwelveHeads, spec, 4096, budget);
    SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, 200, 1);
    const testing::Bytes bytes = Saved(*cache, seq);
    ASSERT_TRUE(cache->Free(seq).ok());
    const Result<SequenceId> again = RestoreInto(*cache, bytes);
    ASSERT_TRUE(again.ok()) << again.status().message();
    Status status;
    while ((status = cache->Reserve(*again, 3)).ok()) {
      cache->Rollback(*again);
      ASSERT_TRUE(Extend(*cache, *again, tokens, 3).ok()) << cache->length(*again);
      ASSERT_LE(cache->ledger().allocated_bytes, budget);
    }
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(PictureOf(*cache, *again),
              SoloPicture(kTwelveHeads, spec, tokens, cache->length(*again)));
    ExpectPoolsBalance(*cache);
  }
}

// Heads whose turn it is in the midst of a page find what they need set aside: a step that began
// does not allocate, so it cannot be refused behind its first head.
TEST(CacheTurns, NothingIsAllocatedBehindReserve) {
  const Timeline tokens = Tokens(1500);
  auto cache = MakeCache(kTwelveHeads, MakeSpec("tc2:n8", "tc2:n8"));
  const SequenceId seq = NewSequence(*cache);
  while (cache->length(seq) < 1490) {
    const int64_t length = cache->length(seq);
    int64_t allocated = 0;
    const Status status = RunStep(*cache, seq, tokens, 3, [&](int layer, int head) {
      const int64_t now = cache->ledger().allocated_bytes;
      if (layer == 0 && head == 0) allocated = now;
      ASSERT_EQ(now, allocated) << length << ", layer " << layer << ", head " << head;
    });
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_FALSE(HasFailure());
    cache->Commit(seq, 3);
  }
}

}  // namespace
}  // namespace kvant
