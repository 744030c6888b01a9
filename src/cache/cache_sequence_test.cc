// Several timelines in one cache: fork, cut, roll back, free, in any order, must leave each
// sequence exactly what it would be alone.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeRows;
using testing::MakeSpec;
using testing::NewSequence;
using testing::Picture;
using testing::PictureOf;
using testing::RunStep;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 2, 64, 2};

Timeline Concat(Timeline head, size_t keep, const Timeline& tail) {
  head.resize(keep);
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// ---- Rollback and truncation

TEST(CacheSequence, DraftsAcrossASealLeaveNoTrace) {
  const KvSpec spec = MakeSpec("int4:channel:g32", "int4:token:g32", 4, 128);
  const Timeline tokens = Tokens(1000);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  std::mt19937 random(3);
  Timeline truth = tokens;
  int64_t length = 120;
  ExtendTo(*cache, seq, truth, length, 64);
  for (int round = 0; round < 200; ++round) {
    Timeline draft =
        Concat(truth, static_cast<size_t>(length), Tokens(8, 77u + static_cast<uint32_t>(round)));
    const int64_t accepted = random() % 9;
    for (int64_t i = 0; i < accepted; ++i) {
      draft[static_cast<size_t>(length + i)] = truth[static_cast<size_t>(length + i)];
    }
    if (round % 3 == 0) {  // the step is abandoned before its last layer
      const Status status = RunStep(*cache, seq, draft, 8, [](int, int) {});
      ASSERT_TRUE(status.ok());
      cache->Rollback(seq);
      ASSERT_EQ(cache->length(seq), length);
      ExtendTo(*cache, seq, truth, length + accepted, 3);
    } else {
      ASSERT_TRUE(Extend(*cache, seq, draft, 8).ok());
      ASSERT_TRUE(cache->Truncate(seq, length + accepted).ok());
    }
    length += accepted;
    if (round % 10 == 0 || length % 64 < 8) {
      ASSERT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, truth, length)) << length;
    }
  }
  EXPECT_GT(length, 600);
  ExpectPoolsBalance(*cache);
}

TEST(CacheSequence, CutOfUpToAPageIsExactAtEveryLength) {
  const KvSpec spec = MakeSpec("int4", "int3");
  const KvGeometry geometry{1, 1, 64, 1};
  const Timeline tokens = Tokens(400), other = Tokens(400, 9);
  const Picture extended = SoloPicture(geometry, spec, tokens, 330);
  for (int64_t length : {63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 320, 321}) {
    for (int64_t cut : {0, 1, 2, 63, 64}) {
      if (cut > length) continue;
      auto cache = MakeCache(geometry, spec);
      const SequenceId seq = NewSequence(*cache);
      ExtendTo(*cache, seq, Concat(tokens, static_cast<size_t>(length - cut), other), length, 50);
      ASSERT_LE(cache->earliest_truncate(seq), length - cut);
      ASSERT_TRUE(cache->Truncate(seq, length - cut).ok());
      if (cut < length) {
        ASSERT_EQ(PictureOf(*cache, seq), SoloPicture(geometry, spec, tokens, length - cut))
            << length << " - " << cut;
      }
      ExtendTo(*cache, seq, tokens, 330, 13);
      ASSERT_EQ(PictureOf(*cache, seq), extended) << length << " - " << cut;
    }
  }
}

TEST(CacheSequence, CutTooFarBackIsRefusedWithTheEarliestLengthAndChangesNothing) {
  const KvSpec spec = MakeSpec("int4", "int4", 4, 128);
  const Timeline tokens = Tokens(600);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, 192, 64);
  EXPECT_EQ(cache->earliest_truncate(seq), 0);  // nothing is stored yet
  ExtendTo(*cache, seq, tokens, 600, 64);
  // Page 9 is open; 7 and 8 are window, 6 is the spare one, so page 8 may become the last.
  EXPECT_EQ(cache->earliest_truncate(seq), 8 * 64 + 1);
  const Picture before = PictureOf(*cache, seq);
  for (int64_t length : {0, 64, 512}) {
    const Status status = cache->Truncate(seq, length);
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_NE(status.message().find("513"), std::string::npos) << status.message();
  }
  EXPECT_EQ(cache->Truncate(seq, 601).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(cache->Truncate(seq, -1).code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(cache->Truncate(seq, 600).ok());
  EXPECT_EQ(PictureOf(*cache, seq), before);
  ASSERT_TRUE(cache->Truncate(seq, 513).ok());
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, 513));
}

TEST(CacheSequence, FloatCacheCutsAnywhere) {
  const KvSpec spec = MakeSpec("f16", "bf16");
  const Timeline tokens = Tokens(500);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Concat(tokens, 70, Tokens(430, 5)), 500, 100);
  EXPECT_EQ(cache->earliest_truncate(seq), 0);
  ASSERT_TRUE(cache->Truncate(seq, 70).ok());
  ExtendTo(*cache, seq, tokens, 500, 31);
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, 500));
  ASSERT_TRUE(cache->Truncate(seq, 0).ok());
  EXPECT_EQ(UsedPages(*cache), 0);
}

// ---- Fork

TEST(CacheSequence, ForksAppendApartFromEachOther) {
  for (const char* format : {"int4", "f16"}) {
    const KvSpec spec = MakeSpec(format, format, 17);
    for (int64_t at : {1, 10, 16, 17, 40, 63, 64, 65, 128, 200}) {
      const Timeline base = Tokens(at);
      const Timeline left = Concat(base, base.size(), Tokens(300, 2));
      const Timeline right = Concat(base, base.size(), Tokens(300, 3));
      auto cache = MakeCache(kSmall, spec);
      const SequenceId a = NewSequence(*cache);
      ExtendTo(*cache, a, base, at, 64);
      const Result<SequenceId> b = cache->Fork(a);
      ASSERT_TRUE(b.ok());
      EXPECT_EQ(PictureOf(*cache, *b), PictureOf(*cache, a));
      while (cache->length(a) < at + 150) {
        ASSERT_TRUE(Extend(*cache, a, left, 10).ok());
        ASSERT_TRUE(Extend(*cache, *b, right, 15).ok());
      }
      EXPECT_EQ(PictureOf(*cache, a), SoloPicture(kSmall, spec, left, cache->length(a)));
      EXPECT_EQ(PictureOf(*cache, *b), SoloPicture(kSmall, spec, right, cache->length(*b)));
      ASSERT_TRUE(cache->Free(a).ok());
      EXPECT_EQ(PictureOf(*cache, *b), SoloPicture(kSmall, spec, right, cache->length(*b)));
      ASSERT_TRUE(cache->Free(*b).ok());
      EXPECT_EQ(UsedPages(*cache), 0);
    }
  }
}

TEST(CacheSequence, CutThatReopensASharedPageCopiesIt) {
  for (const char* format : {"int4", "f16"}) {
    const KvSpec spec = MakeSpec(format, format, 20);
    for (int64_t cut : {5, 15, 64, 100, 127, 128}) {
      const Timeline base = Tokens(128);
      auto cache = MakeCache(kSmall, spec);
      const SequenceId a = NewSequence(*cache);
      ExtendTo(*cache, a, base, 128, 128);
      const Result<SequenceId> b = cache->Fork(a);
      ASSERT_TRUE(b.ok());
      ASSERT_TRUE(cache->Truncate(*b, cut).ok());
      const Timeline other = Concat(base, static_cast<size_t>(cut), Tokens(300, 4));
      ExtendTo(*cache, *b, other, 200, 9);
      EXPECT_EQ(PictureOf(*cache, a), SoloPicture(kSmall, spec, base, 128)) << cut;
      EXPECT_EQ(PictureOf(*cache, *b), SoloPicture(kSmall, spec, other, 200)) << cut;
    }
  }
}

TEST(CacheSequence, ForkSharesFullPagesAndCopiesOnlyTheOpenOne) {
  auto cache = MakeCache(kSmall, MakeSpec("int4", "int4"));
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(1000), 1000, 200);
  const int64_t used = UsedPages(*cache);
  ASSERT_TRUE(cache->Fork(seq).ok());
  EXPECT_EQ(UsedPages(*cache) - used, kSmall.layers * kSmall.kv_heads);
  ExtendTo(*cache, seq, Tokens(1024), 1024, 24);
  const int64_t full = UsedPages(*cache);
  ASSERT_TRUE(cache->Fork(seq).ok());
  EXPECT_EQ(UsedPages(*cache), full);
}

// ---- Batches

TEST(CacheSequence, RaggedSequencesInOneBatchEqualTheirSoloRuns) {
  const KvSpec spec = MakeSpec("int4", "int4");
  auto cache = MakeCache(kSmall, spec);
  std::map<SequenceId, Timeline> live;
  for (int64_t length : {1, 7, 64, 500}) {
    const SequenceId id = NewSequence(*cache);
    live[id] = Tokens(700, static_cast<uint32_t>(length));
    ExtendTo(*cache, id, live[id], length, 512);
  }
  // One decode step for all of them at once: reserve all, then layer by layer.
  const auto batch_step = [&] {
    std::vector<float> k, v;
    for (const auto& [id, tokens] : live) ASSERT_TRUE(cache->Reserve(id, 1).ok());
    for (int layer = 0; layer < kSmall.layers; ++layer) {
      for (int head = 0; head < kSmall.kv_heads; ++head) {
        for (const auto& [id, tokens] : live) {
          MakeRows(tokens, cache->length(id), 1, layer, head, 64, &k, &v);
          ASSERT_TRUE(cache->Append(id, layer, head, k.data(), 64, v.data(), 64, 1).ok());
          ASSERT_TRUE(cache->Seal(id, layer, head).ok());
          cache->Release(id, layer, head);
        }
      }
    }
    for (const auto& [id, tokens] : live) cache->Commit(id, 1);
  };
  const auto check = [&] {
    for (const auto& [id, tokens] : live) {
      ASSERT_EQ(PictureOf(*cache, id), SoloPicture(kSmall, spec, tokens, cache->length(id)));
    }
    ExpectPoolsBalance(*cache);
  };
  for (SequenceId leaving : {3, 0, 2, 1}) {  // the longest first, then in no order
    for (int i = 0; i < 40; ++i) batch_step();
    check();
    ASSERT_TRUE(cache->Free(leaving).ok());
    live.erase(leaving);
    check();
    const SequenceId admitted = NewSequence(*cache);
    EXPECT_LT(admitted, 4);  // ids are reused
    ASSERT_TRUE(cache->Free(admitted).ok());
  }
  EXPECT_EQ(UsedPages(*cache), 0);
}

// Heads of trellis codes take turns meanwhile.
TEST(CacheSequence, HeadsOfOneStepMayRunOnDifferentThreads) {
  const KvGeometry geometry{3, 4, 64, 4};
  const Timeline tokens = Tokens(700);
  for (const auto& [format, most] : {std::pair("int4", 130), std::pair("tc2:n8", 7)}) {
    const KvSpec spec = MakeSpec(format, format);
    auto cache = MakeCache(geometry, spec);
    const SequenceId seq = NewSequence(*cache);
    while (cache->length(seq) < 700) {
      const int64_t count = std::min<int64_t>(most, 700 - cache->length(seq));
      ASSERT_TRUE(cache->Reserve(seq, count).ok());
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          std::vector<float> k, v;
          for (int layer = 0; layer < geometry.layers; ++layer) {
            MakeRows(tokens, cache->length(seq), count, layer, t, 64, &k, &v);
            EXPECT_TRUE(cache->Append(seq, layer, t, k.data(), 64, v.data(), 64, count).ok());
            EXPECT_TRUE(cache->Seal(seq, layer, t).ok());
            cache->View(seq, layer, t, cache->length(seq) / 64);
            cache->Release(seq, layer, t);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      cache->Commit(seq, count);
    }
    EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(geometry, spec, tokens, 700)) << format;
  }
}

// ---- Anything in any order

class CacheRandom : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CacheRandom, EverySequenceEqualsItsStraightRun) {
  std::mt19937 random(GetParam());
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const KvGeometry geometry{2, 1, 16 + 4 * static_cast<int>(below(5)), 1};
  const char* formats[] = {"int4", "q4_0", "f16", "int2:channel:g16", "f32"};
  KvSpec spec = MakeSpec(formats[below(5)], formats[below(5)], static_cast<int>(below(65)),
                         64 * static_cast<int>(below(3)));
  if (below(3) == 0) spec.skip_layers = {1};
  auto cache = MakeCache(geometry, spec, 1000);
  struct Line {
    Timeline tokens;
  };
  std::map<SequenceId, Line> live;
  for (int op = 0; op < 600; ++op) {
    if (live.empty() || (live.size() < 6 && below(20) == 0)) {
      live[NewSequence(*cache)] = {};
      continue;
    }
    auto it = std::next(live.begin(),
                        static_cast<std::ptrdiff_t>(below(static_cast<uint32_t>(live.size()))));
    const SequenceId id = it->first;
    Timeline& tokens = it->second.tokens;
    const uint32_t what = below(20);
    if (what < 10) {
      const size_t before = tokens.size();
      const uint32_t count = 1 + below(below(4) == 0 ? 200 : 20);
      for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<uint32_t>(random()));
      const bool abandon = below(5) == 0;
      const Status status = RunStep(*cache, id, tokens, count, [](int, int) {});
      if (tokens.size() > 1000) {
        ASSERT_EQ(status.code(), StatusCode::kOutOfRange);
        tokens.resize(before);
      } else {
        ASSERT_TRUE(status.ok());
        if (abandon) {
          cache->Rollback(id);
          tokens.resize(before);
        } else {
          cache->Commit(id, count);
        }
      }
    } else if (what < 13 && live.size() < 6) {
      const Result<SequenceId> child = cache->Fork(id);
      ASSERT_TRUE(child.ok());
      ASSERT_TRUE(live.emplace(*child, Line{tokens}).second);
    } else if (what < 18) {
      const size_t length = tokens.size() - std::min<size_t>(tokens.size(), below(150));
      const int64_t earliest = cache->earliest_truncate(id);
      const Status status = cache->Truncate(id, static_cast<int64_t>(length));
      ASSERT_EQ(status.ok(), length == tokens.size() || static_cast<int64_t>(length) >= earliest);
      if (status.ok()) tokens.resize(length);
    } else if (what == 18) {
      ASSERT_TRUE(cache->Free(id).ok());
      live.erase(it);
    }
    if (op % 25 != 0) continue;
    ExpectPoolsBalance(*cache);
    for (const auto& [other, line] : live) {
      ASSERT_EQ(PictureOf(*cache, other),
                SoloPicture(geometry, spec, line.tokens, static_cast<int64_t>(line.tokens.size())))
          << "op " << op << " sequence " << other;
    }
  }
  for (const auto& [id, line] : live) ASSERT_TRUE(cache->Free(id).ok());
  EXPECT_EQ(UsedPages(*cache), 0);
  ExpectPoolsBalance(*cache);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CacheRandom, ::testing::Range(1u, 13u));

}  // namespace
}  // namespace kvant
