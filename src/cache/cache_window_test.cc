// Layers that see only their newest tokens: the pages behind are given back, and nobody can tell
// from what a query sees. A cache without windows, driven alike, holds the truth.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cache/cache_window_testing.h"
#include "cache/page_pool.h"

namespace kvant {
namespace {

using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendTo;
using testing::kWindowFormats;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::RandomTwins;
using testing::RunStep;
using testing::Timeline;
using testing::Tokens;
using testing::Twins;
using testing::UsedPages;
using testing::Windows;

// ---- What a layer holds

class CacheWindow : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, CacheWindow, ::testing::Values("int4", "f16", "int8", "tc3:n8"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST_P(CacheWindow, HeldBytesAreFlatOnceTheWindowIsFull) {
  constexpr int64_t kWindow = 256;
  const Windows windows(3, kWindow);
  const Timeline tokens = Tokens(8 * kWindow);
  for (const int64_t chunk : {1, 32, 300}) {
    auto cache = MakeCache({3, 2, 64, 2}, MakeSpec(GetParam(), GetParam()), 4096, 0, windows);
    const SequenceId seq = NewSequence(*cache);
    std::map<int64_t, int64_t> bytes;  // by place in the page
    int64_t most_allocated = 0;
    while (cache->length(seq) < 8 * kWindow) {
      ExtendTo(*cache, seq, tokens, std::min(cache->length(seq) + chunk, 8 * kWindow), chunk);
      const int64_t length = cache->length(seq);
      const CacheLedger ledger = cache->ledger();
      if (length <= kWindow) continue;
      if (length <= 2 * kWindow) {
        most_allocated = std::max(most_allocated, ledger.allocated_bytes);
        continue;
      }
      const auto [at, first] = bytes.emplace(length % 64, ledger.kv_bytes);
      ASSERT_EQ(ledger.kv_bytes, at->second) << "length " << length << ", chunks of " << chunk;
      // What the pools keep free for a moment: a slab.
      ASSERT_LE(ledger.allocated_bytes, most_allocated + PagePool::kSmallSlabBytes) << length;
    }
  }
}

// Page 9 is open at 600 tokens. Page 8 may become the last by a cut; its first query, at position
// 512, then sees back to 512 + 1 - 130, the last token of page 5.
TEST(CacheWindow, HoldsTheWindowAndOnePageMore) {
  const Windows windows = {130, 0, 65};
  for (const char* format : {"int4", "f16"}) {
    auto cache = MakeCache({3, 1, 64, 1}, MakeSpec(format, format), 4096, 0, windows);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, Tokens(600), 600, 64);
    const bool coded = std::string(format) == "int4";
    for (int64_t page = 0; page < 10; ++page) {
      const bool stored = coded ? page < 8 : page < 9;  // or full, where pages are f16
      const auto held = [&](int layer) {
        return cache->StoredPage(seq, layer, 0, page) != nullptr;
      };
      EXPECT_EQ(held(0), stored && page >= 5) << format << " page " << page;
      EXPECT_EQ(held(1), stored) << format << " page " << page;
      // A layer that sees no further than the window kept as written has nothing stored at all.
      EXPECT_EQ(held(2), !coded && stored && page >= 7) << format << " page " << page;
    }
    EXPECT_EQ(cache->earliest_truncate(seq), 8 * 64 + 1) << format;
  }
}

TEST(CacheWindow, SinksGoWithTheirPage) {
  const Windows windows = {100};
  auto cache = MakeCache({1, 1, 64, 1}, MakeSpec("int4", "int4"), 4096, 0, windows);
  const SequenceId seq = NewSequence(*cache);
  const Timeline tokens = Tokens(400);
  const int64_t sink_bytes = 16 * 64 * 2 * 2;
  // A query in page 2 sees page 0 still. Once page 4 is begun no cut of a page leads there.
  ExtendTo(*cache, seq, tokens, 256, 30);
  EXPECT_EQ(cache->ledger().sink_bytes, sink_bytes);
  ExtendTo(*cache, seq, tokens, 257, 1);
  EXPECT_EQ(cache->ledger().sink_bytes, 0);
  EXPECT_TRUE(cache->View(seq, 0, 0, 4).runs[0].empty());
  ASSERT_TRUE(cache->Truncate(seq, cache->earliest_truncate(seq)).ok());
  EXPECT_TRUE(cache->View(seq, 0, 0, 3).runs[0].empty());
  ExtendTo(*cache, seq, tokens, 400, 7);
  EXPECT_EQ(cache->ledger().sink_bytes, 0);
}

TEST(CacheWindow, EffectiveBitsAreOfWhatIsHeld) {
  const Windows windows = {100, 0};
  auto cache = MakeCache({2, 1, 64, 1}, MakeSpec("f16", "f16"), 4096, 0, windows);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(1024), 1024, 128);
  const CacheLedger l = cache->ledger();
  // Pages 15, 14 and two before it of the first layer, all 16 of the other.
  EXPECT_EQ(l.kv_bytes, (4 + 16) * 64 * 64 * 2 * 2);
  EXPECT_EQ(l.effective_bits, 16.0);
  EXPECT_EQ(cache->bytes_read_per_token(seq), (100 + 1024) * 64 * 2 * 2);
}

// A long chunk needs the pages that it passes for one layer at a time.
TEST(CacheWindow, ALongChunkReservesWhatStaysAndWhatOneLayerPasses) {
  constexpr int kLayers = 8;
  const Windows windows(kLayers, 128);
  for (const char* format : {"f16", "int4"}) {
    auto cache = MakeCache({kLayers, 1, 64, 1}, MakeSpec(format, format), 4096, 0, windows);
    const SequenceId seq = NewSequence(*cache);
    const Timeline tokens = Tokens(2048);
    int64_t most_pages = 0;
    ASSERT_TRUE(RunStep(*cache, seq, tokens, 2048, [&](int, int) {
                  int64_t open_pages = 0;
                  for (const Cache::PoolCount& c : cache->pool_counts()) {
                    if (c.page_bytes == cache->open_layout(0).page_bytes)
                      open_pages += c.total_pages;
                  }
                  most_pages = std::max(most_pages, open_pages);
                }).ok());
    cache->Commit(seq, 2048);
    // 32 pages of the layer that is read, and 4 that stay of each other; slabs have 8 at least.
    EXPECT_LE(most_pages, 32 + 4 * kLayers + 16) << format;
    EXPECT_LE(cache->ledger().kv_bytes, kLayers * 4 * 2 * cache->open_layout(0).page_bytes);
    ExpectPoolsBalance(*cache);
  }
}

// A budget that the window fits in serves any length.
TEST(CacheWindow, ABudgetForTheWindowServesAnyLength) {
  const Windows windows = {128, 128};
  const KvGeometry geometry{2, 2, 64, 2};
  const Timeline tokens = Tokens(4000);
  for (const char* format : {"int4", "f16"}) {
    const KvSpec spec = MakeSpec(format, format);
    auto trial = MakeCache(geometry, spec, 4096, 0, windows);
    const SequenceId short_one = NewSequence(*trial);
    int64_t most = 0;
    while (trial->length(short_one) < 400) {
      ASSERT_TRUE(RunStep(*trial, short_one, tokens, 10, [&](int, int) {
                    most = std::max(most, trial->ledger().allocated_bytes);
                  }).ok());
      trial->Commit(short_one, 10);
    }
    auto cache = MakeCache(geometry, spec, 4096, most, windows);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, 4000, 10);
    EXPECT_EQ(cache->length(seq), 4000) << format;
    auto wide = MakeCache(geometry, spec, 4096, most);
    const SequenceId other = NewSequence(*wide);
    Status status;
    while (status.ok() && wide->length(other) < 4000) status = Extend(*wide, other, tokens, 10);
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << format;
  }
}

// ---- What queries see

TEST(CacheWindow, QueriesOfAnyChunkSeeWhatTheyWouldIfAllWereKept) {
  const KvGeometry geometry{4, 1, 16, 1};
  const Timeline tokens = Tokens(900);
  for (const char* format : kWindowFormats) {
    for (const int window : {0, 64, 128}) {
      for (const int64_t chunk : {1, 50, 64, 333}) {
        if (chunk == 1 && window != 64) continue;  // slow to look at
        Twins twins(geometry, MakeSpec(format, format, 5, window), {1, 65, 140, 300});
        const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
        while (twins.narrow->length(n) < 900) {
          const int64_t count = std::min(chunk, 900 - twins.narrow->length(n));
          twins.Step(n, w, tokens, count);
          if (HasFatalFailure()) return;
          twins.Commit(n, w, count);
        }
        twins.ExpectSame(n, w);
        ExpectPoolsBalance(*twins.narrow);
      }
    }
  }
}

// Rejected drafts right behind a window that is full, and everywhere else.
TEST(CacheWindow, ACutOfUpToAPageLeavesNoTrace) {
  const KvGeometry geometry{2, 1, 16, 1};
  for (const char* format : {"int4", "f16"}) {
    for (const int64_t length : {600, 576, 577, 513, 512, 640, 641}) {
      for (const int64_t cut : {1, 5, 63, 64}) {
        Twins twins(geometry, MakeSpec(format, format), {512, 70});
        Timeline tokens = Tokens(length), truth = tokens;
        truth.resize(static_cast<size_t>(length - cut));
        const Timeline rest = Tokens(300, 7);
        truth.insert(truth.end(), rest.begin(), rest.end());
        const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
        ExtendTo(*twins.narrow, n, tokens, length, 60);
        ASSERT_LE(twins.narrow->earliest_truncate(n), length - cut);
        ASSERT_TRUE(twins.narrow->Truncate(n, length - cut).ok());
        ExtendTo(*twins.wide, w, truth, length - cut, 60);  // never saw the draft
        twins.ExpectSame(n, w);
        for (int step = 0; step < 10; ++step) {
          twins.Step(n, w, truth, 17);
          if (HasFatalFailure()) return;
          twins.Commit(n, w, 17);
        }
        twins.ExpectSame(n, w);
      }
    }
  }
}

TEST(CacheWindow, ACutBehindWhatIsHeldIsRefusedAndChangesNothing) {
  Twins twins({2, 1, 16, 1}, MakeSpec("f16", "f16"), {128, 0});
  const Timeline tokens = Tokens(600);
  const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
  ExtendTo(*twins.narrow, n, tokens, 600, 64);
  ExtendTo(*twins.wide, w, tokens, 600, 64);
  const Status status = twins.narrow->Truncate(n, 512);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("513"), std::string::npos) << status.message();
  twins.ExpectSame(n, w);
  // A cut takes nothing back that was held: a second one reaches as far.
  ASSERT_TRUE(twins.narrow->Truncate(n, 520).ok());
  EXPECT_EQ(twins.narrow->earliest_truncate(n), 513);
  ASSERT_TRUE(twins.narrow->Truncate(n, 513).ok());
  ASSERT_TRUE(twins.wide->Truncate(w, 513).ok());
  twins.ExpectSame(n, w);
}

TEST(CacheWindow, APageGoesWhenTheLastForkHasPassedIt) {
  for (const char* format : {"int4", "f16"}) {
    Twins twins({2, 1, 16, 1}, MakeSpec(format, format), {100, 200});
    const Timeline tokens = Tokens(700);
    const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
    ExtendTo(*twins.narrow, n, tokens, 300, 50);
    ExtendTo(*twins.wide, w, tokens, 300, 50);
    const int64_t alone = UsedPages(*twins.narrow);
    const SequenceId fork = *twins.narrow->Fork(n);
    ExtendTo(*twins.narrow, n, tokens, 700, 50);
    twins.ExpectSame(fork, w);  // the parent has passed what the fork still sees
    ASSERT_TRUE(twins.narrow->Free(n).ok());
    EXPECT_EQ(UsedPages(*twins.narrow), alone) << format;
    twins.ExpectSame(fork, w);
    ASSERT_TRUE(twins.narrow->Free(fork).ok());
    EXPECT_EQ(UsedPages(*twins.narrow), 0) << format;
  }
}

TEST(CacheWindow, PagesOfAHeadThatGrewTokenByTokenAreNeighbours) {
  const Windows windows(3, 1000);
  auto cache = MakeCache({3, 2, 64, 2}, MakeSpec("int4", "int4"), 4096, 0, windows);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(4000), 4000, 1);
  const std::ptrdiff_t page_bytes = cache->stored_layout(0).page_bytes;
  int adjacent = 0, pairs = 0;
  for (int layer = 0; layer < 3; ++layer) {
    for (int head = 0; head < 2; ++head) {
      for (int64_t page = 48; page < 60; ++page) {
        const std::byte* const at = cache->StoredPage(seq, layer, head, page);
        ASSERT_NE(at, nullptr) << page;
        if (page % 8 == 7 || page >= 56) continue;
        adjacent += cache->StoredPage(seq, layer, head, page + 1) - at == page_bytes;
        ++pairs;
      }
    }
  }
  // Places come from what the window gave back: not all are beside each other.
  EXPECT_GE(2 * adjacent, pairs);
}

// ---- Anything in any order

class CacheWindowRandom : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CacheWindowRandom, EveryQuerySeesWhatItWouldIfAllWereKept) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  Twins twins = RandomTwins(below);
  Cache &narrow = *twins.narrow, &wide = *twins.wide;
  struct Line {
    SequenceId wide;
    Timeline tokens;
  };
  std::map<SequenceId, Line> live;
  for (int op = 0; op < 400; ++op) {
    if (live.empty() || (live.size() < 5 && below(20) == 0)) {
      live[NewSequence(narrow)] = {NewSequence(wide), {}};
      continue;
    }
    const auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(below(live.size())));
    const SequenceId n = it->first, w = it->second.wide;
    Timeline& tokens = it->second.tokens;
    const uint32_t what = below(20);
    if (what < 11) {
      const uint32_t count = 1 + below(below(4) == 0 ? 300 : 30);
      if (tokens.size() + count > 1500) continue;
      const size_t before = tokens.size();
      for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<uint32_t>(random()));
      twins.Step(n, w, tokens, count);
      if (HasFatalFailure()) return;
      if (below(5) == 0) {
        narrow.Rollback(n);
        wide.Rollback(w);
        tokens.resize(before);
      } else {
        twins.Commit(n, w, count);
      }
    } else if (what < 14 && live.size() < 5) {
      ASSERT_TRUE(live.emplace(*narrow.Fork(n), Line{*wide.Fork(w), tokens}).second);
    } else if (what < 18) {
      const size_t length = tokens.size() - std::min<size_t>(tokens.size(), below(150));
      const bool allowed =
          length == tokens.size() || static_cast<int64_t>(length) >= narrow.earliest_truncate(n);
      ASSERT_EQ(narrow.Truncate(n, static_cast<int64_t>(length)).ok(), allowed);
      if (!allowed) continue;
      ASSERT_TRUE(wide.Truncate(w, static_cast<int64_t>(length)).ok());
      tokens.resize(length);
    } else if (what == 18) {
      ASSERT_TRUE(narrow.Free(n).ok());
      ASSERT_TRUE(wide.Free(w).ok());
      live.erase(it);
    }
    if (op % 20 != 0) continue;
    ExpectPoolsBalance(narrow);
    for (const auto& [id, line] : live) twins.ExpectSame(id, line.wide);
    if (HasFatalFailure()) return;
  }
  for (const auto& [id, line] : live) ASSERT_TRUE(narrow.Free(id).ok());
  EXPECT_EQ(UsedPages(narrow), 0);
  ExpectPoolsBalance(narrow);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CacheWindowRandom, ::testing::Range(1u, 13u));

}  // namespace
}  // namespace kvant
