#include "cache/cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/float16.h"
#include "cache/cache_testing.h"

namespace kvant {
namespace {

using namespace testing;  // NOLINT: kvant::testing, the helpers

constexpr KvGeometry kSmall{2, 1, 64, 2};
constexpr KvGeometry kSmolLm2{30, 3, 64, 9};

const char* const kFormats[] = {"f32",
                                "f16",
                                "bf16",
                                "int8",
                                "int4",
                                "int3",
                                "int2",
                                "q8_0",
                                "q4_0",
                                "tq4:n8",
                                "tcx2",
                                "int4:channel:g128",
                                "int2:channel:g16"};

// ---- Chunks and poison

class CachePairs : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(CachePairs, StoredBytesDoNotDependOnChunksOrOnWhatLayInThePages) {
  const auto [k, v] = GetParam();
  const KvGeometry geometry{1, 1, 80, 1};
  const KvSpec spec = MakeSpec(k, v);
  const Timeline tokens = Tokens(530);
  Picture expected;
  {
    const ScopedAllocate zeroed(AllocateZeroed);
    expected = SoloPicture(geometry, spec, tokens, 530, 512);
  }
  const ScopedAllocate poisoned(AllocatePoisoned);
  for (int64_t chunk : {1, 32, 512}) {
    EXPECT_EQ(SoloPicture(geometry, spec, tokens, 530, chunk), expected) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CachePairs,
                         ::testing::Combine(::testing::ValuesIn(kFormats),
                                            ::testing::ValuesIn(kFormats)));

TEST(Cache, HeadSizesThatDoNotDivideStoreTheSameBytesPoisonedOrNot) {
  for (int head_dim : {64, 80, 96, 100, 128}) {
    const KvGeometry geometry{1, 2, head_dim, 2};
    for (const auto& [k, v] :
         {std::pair{"f32", "f32"}, std::pair{"f16", "f16"}, std::pair{"int4", "int4"},
          std::pair{"q4_0", "q4_0"}, std::pair{"tq3:mean:n8", "tc2:n8"},
          std::pair{"int3:token:g64:zero", "int3"}, std::pair{"f16", "int4"},
          std::pair{"int4", "f32"}}) {
      const KvSpec spec = MakeSpec(k, v);
      const Timeline tokens = Tokens(200);
      Picture expected;
      {
        const ScopedAllocate zeroed(AllocateZeroed);
        expected = SoloPicture(geometry, spec, tokens, 200);
      }
      const ScopedAllocate poisoned(AllocatePoisoned);
      for (int64_t chunk : {1, 33, 200}) {
        EXPECT_EQ(SoloPicture(geometry, spec, tokens, 200, chunk), expected)
            << k << ' ' << v << " head_dim " << head_dim << " chunk " << chunk;
      }
    }
  }
}

TEST(Cache, PromptInOneStepEqualsPromptThenSingleTokens) {
  KvSpec spec = MakeSpec("int2:channel:g32", "int2:token:g32");
  const Timeline tokens = Tokens(200);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, 32, 32);
  ExtendTo(*cache, seq, tokens, 200, 1);
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, 200));
  EXPECT_NE(cache->StoredPage(seq, 0, 0, 1), nullptr);
}

// ---- The precision rule

// Checks every position against the rule, for one query page of one head.
void ExpectRuleHolds(const Cache& cache, SequenceId seq, int layer, int head, int64_t query_page,
                     int64_t written, const Timeline& tokens) {
  const HeadView view = cache.View(seq, layer, head, query_page);
  const int64_t page_tokens = cache.page_tokens();
  const int64_t visible = std::min(written, (query_page + 1) * page_tokens);
  const bool coded = !(cache.stored_layout(layer) == cache.open_layout(layer));
  int64_t next = 0;
  for (int r = 0; r < kMaxRuns; ++r) {
    const Run& run = view.runs[static_cast<size_t>(r)];
    if (run.empty()) continue;
    for (int t = run.first_token; t < run.end_token; ++t, ++next) {
      const int64_t position = run.first_position + t;
      ASSERT_EQ(position, next);
      int wanted = 2;
      if (coded && position / page_tokens + cache.window_pages() < query_page) wanted = 1;
      if (coded && position < cache.spec().sinks_tokens) wanted = 0;
      ASSERT_EQ(r, wanted) << "position " << position << " of query page " << query_page;
      ASSERT_LT(t / run.layout->tokens, run.num_pages);
      if (r == 1) continue;
      const std::byte* page = run.pages[t / run.layout->tokens];
      const uint32_t token = tokens[static_cast<size_t>(position)];
      for (int c : {0, 5, cache.geometry().head_dim - 1}) {
        const float k = TokenValue(token, position, layer, head, Side::kK, c);
        const float v = TokenValue(token, position, layer, head, Side::kV, c);
        const int row = t % run.layout->tokens;
        ASSERT_EQ(LoadFloatValue(run.layout->k, page, row, c), F16ToF32(F32ToF16(k)));
        ASSERT_EQ(LoadFloatValue(run.layout->v, page + run.layout->v_offset_bytes, row, c),
                  F16ToF32(F32ToF16(v)));
      }
    }
  }
  ASSERT_EQ(next, visible);
}

TEST(Cache, EveryQueryPageReadsEachPositionAtThePrecisionOfTheRule) {
  const Timeline tokens = Tokens(700);
  for (int sinks : {0, 4, 17, 64}) {
    for (int window : {0, 64, 128}) {
      for (int64_t chunk : {1, 7, 64, 200, 700}) {
        KvSpec spec = MakeSpec("int4", "int4", sinks, window);
        spec.skip_layers = {1};
        auto cache = MakeCache(kSmall, spec);
        const SequenceId seq = NewSequence(*cache);
        while (cache->length(seq) < 700) {
          const int64_t before = cache->length(seq), count = std::min(chunk, 700 - before);
          const Status status = RunStep(*cache, seq, tokens, count, [&](int layer, int head) {
            for (int64_t p = before / 64; p <= (before + count - 1) / 64; ++p) {
              ExpectRuleHolds(*cache, seq, layer, head, p, before + count, tokens);
            }
          });
          ASSERT_TRUE(status.ok()) << status.message();
          cache->Commit(seq, count);
          ExpectRuleHolds(*cache, seq, 0, 0, (before + count - 1) / 64, before + count, tokens);
          ASSERT_FALSE(HasFatalFailure());
        }
      }
    }
  }
}

TEST(Cache, EndOfAPromptStaysAsWrittenForAtLeastTheWindowAndAtMostTwoPagesMore) {
  for (int64_t chunk : {1, 64, 300}) {
    for (int64_t length : {256, 257, 300, 320}) {
      auto cache = MakeCache(kSmall, MakeSpec("int4", "int4", 4, 128));
      const SequenceId seq = NewSequence(*cache);
      ExtendTo(*cache, seq, Tokens(length), length, chunk);
      const HeadView view = cache->View(seq, 0, 0, (length - 1) / 64);
      EXPECT_GE(view.runs[2].tokens(), 128);
      EXPECT_LE(view.runs[2].tokens(), 128 + 64);
      EXPECT_EQ(view.runs[2].first_position + view.runs[2].end_token, length);
    }
  }
}

TEST(Cache, SinksAreReadFromTheirOwnPageAndStayOutOfTheRangesOfPageZero) {
  const KvGeometry geometry{1, 1, 64, 1};
  auto cache = MakeCache(geometry, MakeSpec("int4", "int4", 4, 0));
  const SequenceId seq = NewSequence(*cache);
  std::vector<float> k(65 * 64, 1.0f), v(65 * 64, 1.0f);
  std::fill_n(k.begin(), 4 * 64, 1000.0f);
  for (size_t i = 4 * 64; i < k.size(); ++i) k[i] = 1.0f + static_cast<float>(i / 64 % 16) / 15.0f;
  ASSERT_TRUE(cache->Reserve(seq, 65).ok());
  ASSERT_TRUE(cache->Append(seq, 0, 0, k.data(), 64, v.data(), 64, 65).ok());
  ASSERT_TRUE(cache->Seal(seq, 0, 0).ok());
  cache->Commit(seq, 65);
  const HeadView view = cache->View(seq, 0, 0, 1);
  EXPECT_EQ(view.runs[0].tokens(), 4);
  EXPECT_EQ(LoadFloatValue(view.runs[0].layout->k, view.runs[0].pages[0], 3, 0), 1000.0f);
  std::vector<float> decoded(64 * 64);
  DecodeSide(view.runs[1].layout->k, view.runs[1].pages[0], decoded.data(), 64);
  for (size_t i = 4 * 64; i < decoded.size(); ++i) {
    ASSERT_NEAR(decoded[i], k[i], 1.0f / 15 / 2 + 1e-3f);
  }
}

TEST(Cache, ConstantGroupsComeBackExactly) {
  for (const char* format : {"int8", "int4", "int3", "int2"}) {
    for (float constant : {0.0f, 100.0f, -100.0f, 65504.0f}) {
      const KvGeometry geometry{1, 1, 64, 1};
      auto cache = MakeCache(geometry, MakeSpec(format, std::string(format) + ":token:g64:min"));
      const SequenceId seq = NewSequence(*cache);
      const std::vector<float> rows(129 * 64, constant);
      ASSERT_TRUE(cache->Reserve(seq, 129).ok());
      ASSERT_TRUE(cache->Append(seq, 0, 0, rows.data(), 64, rows.data(), 64, 129).ok());
      ASSERT_TRUE(cache->Seal(seq, 0, 0).ok());
      cache->Commit(seq, 129);
      const PageLayout& layout = cache->stored_layout(0);
      std::vector<float> decoded(64 * 64);
      const std::byte* page = cache->StoredPage(seq, 0, 0, 0);
      ASSERT_NE(page, nullptr);
      for (const auto& [side, at] :
           {std::pair{&layout.k, page}, std::pair{&layout.v, page + layout.v_offset_bytes}}) {
        DecodeSide(*side, at, decoded.data(), 64);
        for (size_t i = 4 * 64; i < decoded.size(); ++i) ASSERT_EQ(decoded[i], constant) << format;
      }
    }
  }
}

// ---- Refusals

TEST(Cache, UnstorableValueIsNamedAndLeavesEverythingAsItWas) {
  const float nan = std::nanf(""), inf = INFINITY;
  for (const auto& [bad, format] :
       {std::pair{nan, "int4"}, std::pair{inf, "f32"}, std::pair{-inf, "f16"},
        std::pair{65520.0f, "int4"}, std::pair{3.4e38f, "bf16"}}) {
    const KvSpec spec = MakeSpec(format, format);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    const Timeline tokens = Tokens(400);
    ExtendTo(*cache, seq, tokens, 130, 50);
    const Picture before = PictureOf(*cache, seq);
    const int64_t used = UsedPages(*cache);
    std::vector<float> k(200 * 64, 1.0f), v(200 * 64, 1.0f);
    v[70 * 64 + 9] = bad;
    ASSERT_TRUE(cache->Reserve(seq, 200).ok());
    ASSERT_TRUE(cache->Append(seq, 0, 0, k.data(), 64, k.data(), 64, 200).ok());
    ASSERT_TRUE(cache->Seal(seq, 0, 0).ok());
    cache->Release(seq, 0, 0);
    const Status status = cache->Append(seq, 1, 0, k.data(), 64, v.data(), 64, 200);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("V of layer 1, KV head 0, position 200, channel 9"),
              std::string::npos)
        << status.message();
    cache->Rollback(seq);
    EXPECT_EQ(PictureOf(*cache, seq), before);
    EXPECT_EQ(UsedPages(*cache), used);
    ExtendTo(*cache, seq, tokens, 400, 90);
    EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, 400));
  }
}

TEST(Cache, LargestValueOfEachTypeIsAccepted) {
  for (const auto& [value, format] : {std::pair{65519.0f, "f16"}, std::pair{65504.0f, "int4"},
                                      std::pair{3.38e38f, "bf16"}, std::pair{3.4e38f, "f32"}}) {
    const KvGeometry geometry{1, 1, 64, 1};
    auto cache = MakeCache(geometry, MakeSpec(format, format));
    const SequenceId seq = NewSequence(*cache);
    const std::vector<float> rows(64, value);
    ASSERT_TRUE(cache->Reserve(seq, 1).ok());
    EXPECT_TRUE(cache->Append(seq, 0, 0, rows.data(), 64, rows.data(), 64, 1).ok()) << format;
    const HeadView view = cache->View(seq, 0, 0, 0);
    const kvant::Run& run = view.runs[view.runs[0].empty() ? 2 : 0];
    EXPECT_TRUE(std::isfinite(LoadFloatValue(run.layout->k, run.pages[0], 0, 0)));
    cache->Rollback(seq);
  }
}

TEST(Cache, ImpossibleRequestsAreRefusedInOneSentence) {
  const auto refused = [](const KvGeometry& geometry, const CacheOptions& options) {
    EXPECT_EQ(Cache::Create(geometry, KvSpec{}, options).status().code(),
              StatusCode::kInvalidArgument);
  };
  refused({0, 1, 64, 1}, {.context_tokens = 64});
  refused(kSmall, {.context_tokens = 0});
  refused(kSmall, {.context_tokens = 64, .budget_bytes = -1});
  const std::vector<int64_t> too_few = {0}, negative = {0, -1};
  refused(kSmall, {.context_tokens = 64, .layer_windows = too_few});
  refused(kSmall, {.context_tokens = 64, .layer_windows = negative});
  auto cache = MakeCache(kSmall, MakeSpec("int4", "int4"), 100);
  EXPECT_EQ(cache->Reserve(7, 1).code(), StatusCode::kNotFound);
  EXPECT_EQ(cache->Free(-1).code(), StatusCode::kNotFound);
  const SequenceId seq = NewSequence(*cache);
  EXPECT_EQ(cache->Reserve(seq, 101).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(cache->Reserve(seq, 0).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(cache->Reserve(seq, 10).ok());
  EXPECT_EQ(cache->Reserve(seq, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Fork(seq).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Truncate(seq, 0).code(), StatusCode::kInvalidArgument);
  const std::vector<float> rows(64 * 11, 0.0f);
  EXPECT_EQ(cache->Seal(seq, 0, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Append(seq, 0, 0, rows.data(), 64, rows.data(), 64, 11).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Append(seq, 2, 0, rows.data(), 64, rows.data(), 64, 10).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(cache->Append(seq, 0, 0, rows.data(), 64, rows.data(), 64, 10).ok());
  EXPECT_EQ(cache->Append(seq, 0, 0, rows.data(), 64, rows.data(), 64, 10).code(),
            StatusCode::kInvalidArgument);
  cache->Rollback(seq);
  EXPECT_EQ(cache->length(seq), 0);
  EXPECT_TRUE(cache->Reserve(seq, 100).ok());
}

// ---- Bytes

TEST(CacheLedger, F16CacheOf8192TokensIsExactToTheByte) {
  auto cache = MakeCache(kSmolLm2, MakeSpec("f16", "f16"), 8192);
  const SequenceId seq = NewSequence(*cache);
  ASSERT_TRUE(cache->Reserve(seq, 8192).ok());
  const std::vector<float> rows(8192 * 64, 1.0f);
  for (int layer = 0; layer < 30; ++layer) {
    for (int head = 0; head < 3; ++head) {
      ASSERT_TRUE(cache->Append(seq, layer, head, rows.data(), 64, rows.data(), 64, 8192).ok());
      ASSERT_TRUE(cache->Seal(seq, layer, head).ok());
      cache->Release(seq, layer, head);
    }
  }
  cache->Commit(seq, 8192);
  const CacheLedger l = cache->ledger();
  EXPECT_EQ(l.kv_bytes, 188'743'680);
  EXPECT_EQ(l.code_bytes, 188'743'680);
  EXPECT_EQ(l.allocated_bytes, 188'743'680);
  EXPECT_EQ(l.effective_bits, 16.0);
  EXPECT_EQ(l.stored_tokens, 8192);
  EXPECT_EQ(cache->bytes_read_per_token(seq), 188'743'680);
}

// What the pools hold is within 1 % of what the ledger prints, whatever the steps were.
TEST(CacheLedger, AllocatedBytesStayWithinOnePercentOfThePrintedFigureAtDepth) {
  const std::vector<float> rows(512 * 64, 1.0f);
  for (const auto& [format, chunk] : {std::pair{"int4", 512}, std::pair{"int2", 100}}) {
    auto cache = MakeCache(kSmolLm2, MakeSpec(format, format), 8400);
    const SequenceId seq = NewSequence(*cache);
    const auto step = [&](int64_t count) {
      ASSERT_TRUE(cache->Reserve(seq, count).ok());
      for (int layer = 0; layer < 30; ++layer) {
        for (int h = 0; h < 3; ++h) {
          ASSERT_TRUE(cache->Append(seq, layer, h, rows.data(), 64, rows.data(), 64, count).ok());
          ASSERT_TRUE(cache->Seal(seq, layer, h).ok());
          cache->Release(seq, layer, h);
        }
      }
      cache->Commit(seq, count);
    };
    while (cache->length(seq) < 8192) step(std::min<int64_t>(chunk, 8192 - cache->length(seq)));
    for (int i = 0; i < 200; ++i) {
      const CacheLedger l = cache->ledger();
      ASSERT_GE(l.allocated_bytes, l.kv_bytes);
      ASSERT_LE(static_cast<double>(l.allocated_bytes), 1.01 * static_cast<double>(l.kv_bytes))
          << format << " at " << l.tokens << " tokens";
      step(1);
    }
  }
}

TEST(CacheLedger, PartsAreTheLayoutsSumsAndSharedPagesCountOnce) {
  KvSpec spec = MakeSpec("int4", "q4_0");
  spec.skip_layers = {1};
  const KvGeometry geometry{2, 2, 100, 2};
  auto cache = MakeCache(geometry, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(300), 300, 77);
  // Page 4 is open: pages 0..2 are stored, 2 (spare), 3 and 4 are held as written.
  const PageLayout &stored = cache->stored_layout(0), &open = cache->open_layout(0);
  const PageLayout& kept = cache->open_layout(1);
  const CacheLedger one = cache->ledger();
  EXPECT_EQ(one.window_bytes, 2 * 3 * open.page_bytes);
  EXPECT_EQ(one.sink_bytes, 2 * (16 * 100 + 16 * 112) * 2);
  EXPECT_EQ(one.metadata_bytes, 2 * 3 * (100 * 4 + 64 * 4 * 2));
  EXPECT_EQ(one.code_bytes, 2 * 3 * (64 * 100) + 2 * 300 * 100 * 4);
  EXPECT_EQ(one.code_bytes + one.metadata_bytes + one.padding_bytes,
            2 * 3 * stored.page_bytes + 2 * 5 * kept.page_bytes);
  EXPECT_EQ(one.kv_bytes, one.code_bytes + one.metadata_bytes + one.padding_bytes +
                              one.window_bytes + one.sink_bytes);
  EXPECT_EQ(one.stored_tokens, 3 * 64 - 4);

  const Result<SequenceId> fork = cache->Fork(seq);
  ASSERT_TRUE(fork.ok());
  const CacheLedger two = cache->ledger();
  EXPECT_EQ(two.tokens, 600);
  EXPECT_EQ(two.window_bytes - one.window_bytes, 2 * open.page_bytes);
  EXPECT_EQ(two.code_bytes - one.code_bytes, 2 * (300 - 256) * 100 * 4);
  EXPECT_EQ(two.metadata_bytes, one.metadata_bytes);
  EXPECT_EQ(two.sink_bytes, one.sink_bytes);
  ASSERT_TRUE(cache->Free(*fork).ok());
  EXPECT_EQ(cache->ledger().kv_bytes, one.kv_bytes);
  ASSERT_TRUE(cache->Free(seq).ok());
  EXPECT_EQ(cache->ledger().kv_bytes, 0);
}

TEST(CacheLedger, OpenPagesOfALongChunkBelongToOneLayerAtATime) {
  const KvGeometry geometry{8, 1, 64, 1};
  auto cache = MakeCache(geometry, MakeSpec("int4", "int4"));
  const SequenceId seq = NewSequence(*cache);
  CacheLedger peak;
  ASSERT_TRUE(RunStep(*cache, seq, Tokens(2048), 2048, [&](int, int) {
                if (cache->ledger().kv_bytes > peak.kv_bytes) peak = cache->ledger();
              }).ok());
  cache->Commit(seq, 2048);
  const int64_t page = cache->open_layout(0).page_bytes;
  // Three pages stay of each of the first seven layers.
  EXPECT_EQ(peak.window_bytes, (7 * 3 + 32) * page);
  EXPECT_LE(peak.allocated_bytes, peak.kv_bytes + 16 * page);
  EXPECT_EQ(cache->ledger().window_bytes, 8 * 3 * page);
}

TEST(CacheLedger, BudgetIsNeverExceededAndNamesItself) {
  const KvSpec spec = MakeSpec("int4", "int4");
  const Timeline tokens = Tokens(4000);
  auto cache = MakeCache(kSmall, spec, 4096, 400'000);
  const SequenceId seq = NewSequence(*cache);
  Status status;
  while ((status = Extend(*cache, seq, tokens, 10)).ok()) {
    ASSERT_LE(cache->ledger().allocated_bytes, 400'000);
  }
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("400000"), std::string::npos) << status.message();
  const int64_t length = cache->length(seq);
  EXPECT_GT(length, 1000);
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kSmall, spec, tokens, length));
  ExpectPoolsBalance(*cache);
}

TEST(CacheLedger, RefusedStepsLeaveNothingReserved) {
  auto cache = MakeCache(kSmall, MakeSpec("int4", "int4"), 4096, 400'000);
  const SequenceId seq = NewSequence(*cache);
  const Timeline tokens = Tokens(4000);
  ExtendTo(*cache, seq, tokens, 300, 300);
  const int64_t before = cache->ledger().allocated_bytes;
  for (int64_t count : {800, 1000, 1200, 1400, 2000}) {
    ASSERT_EQ(cache->Reserve(seq, count).code(), StatusCode::kOutOfMemory) << count;
    EXPECT_EQ(cache->ledger().allocated_bytes, before);
  }
  EXPECT_TRUE(Extend(*cache, seq, tokens, 200).ok());
}

}  // namespace
}  // namespace kvant
