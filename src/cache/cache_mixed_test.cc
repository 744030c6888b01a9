// Layers whose tokens have several widths: who stands where, with which values, after anything that
// may happen to a sequence.
#include <gtest/gtest.h>

#include "base/float16.h"
#include "cache/hole_filling.h"
#include "cache/mixed_testing.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

using testing::ExpectKeptAsChosen;
using testing::ExpectPoolsBalance;
using testing::ExtendMixed;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::Picture;
using testing::RunStep;
using testing::SeeHead;
using testing::SoloMixedPictureOf;
using testing::Timeline;
using testing::Tokens;
using testing::TokenValue;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 2, 64, 2};
constexpr char kPresetPools[] = "16+8=int8+4=int4+2=int2";

std::shared_ptr<const Policy> PolicyOf(const char* spec) { return ParsePolicy(spec).value(); }

// ---- Holes

TEST(HoleFilling, SurvivorsBehindTheNewSizeFillTheHolesBeforeIt) {
  // Keep 1 0 1 1 0 1: four stay, slot 1 is the hole among the first four, slot 5 the one behind.
  EXPECT_EQ(HoleFillingMoves({true, false, true, true, false, true}),
            (std::vector<SlotMove>{{5, 1}}));
  EXPECT_EQ(HoleFillingMoves({false, false, true, true, true}),
            (std::vector<SlotMove>{{3, 0}, {4, 1}}));
  EXPECT_TRUE(HoleFillingMoves({true, true, false}).empty());
  EXPECT_TRUE(HoleFillingMoves({false, false}).empty());
  EXPECT_TRUE(HoleFillingMoves({}).empty());
}

// ---- Who stands where

struct Mode {
  const char* pools;
  WidthOf width_of;
  bool once;
};
const Mode kModes[] = {{kPresetPools, HashedWidth, true},
                       {kTokenPools, HashedWidth, false},
                       {kTokenPools, AgeingWidth, false}};

TEST(CacheMixed, EveryPositionStandsOnceAtTheWidthOfThePolicy) {
  const Timeline tokens = Tokens(1500);
  for (const Mode& mode : kModes) {
    for (const int sinks : {0, 4, 64}) {
      for (const int window : {0, 64, 128}) {
        KvSpec spec = MakeMixedSpec(mode.pools, mode.width_of, mode.once, sinks, window);
        spec.skip_layers = {1};
        auto cache = MakeCache(kSmall, spec);
        const SequenceId seq = NewSequence(*cache);
        for (const int64_t length : {1, 63, 64, 65, 128, 129, 193, 500, 640, 641, 1500}) {
          ExtendMixed(*cache, seq, tokens, length);
          ExpectKeptAsChosen(*cache, seq, mode.width_of);
        }
        ExpectPoolsBalance(*cache);
        ASSERT_TRUE(cache->Free(seq).ok());
        EXPECT_EQ(UsedPages(*cache), 0);
      }
    }
  }
}

TEST(CacheMixed, ChunksOfAPromptDoNotMatter) {
  const Timeline tokens = Tokens(900);
  for (const Mode& mode : kModes) {
    const KvSpec spec = MakeMixedSpec(mode.pools, mode.width_of, mode.once);
    const Picture whole = SoloMixedPictureOf(kSmall, spec, tokens, 900);
    EXPECT_EQ(SoloMixedPictureOf(kSmall, spec, tokens, 900, 1), whole);
    EXPECT_EQ(SoloMixedPictureOf(kSmall, spec, tokens, 900, 13), whole);
  }
}

// A token that keeps its width has the bits that an array of its format gives it, wherever it lies.
TEST(CacheMixed, CodedTokensAreWhatTheirFormatMakesOfThem) {
  const Timeline tokens = Tokens(2000);
  auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, HashedWidth));
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, tokens, 2000);
  const auto decoded = [](const Format& format, Side side, std::vector<float> row) {
    row.resize(64 * 64);
    for (float& x : row) x = F16ToF32(F32ToF16(x));
    std::vector<std::byte> bytes(static_cast<size_t>(*EncodedArrayBytes(format, side, 64, 64)));
    EXPECT_TRUE(EncodeArray(format, side, row, 64, 64, bytes).ok());
    EXPECT_TRUE(DecodeArray(format, side, bytes, 64, 64, row).ok());
    row.resize(64);
    return row;
  };
  const HeadView view = cache->View(seq, 1, 0, 1999 / 64);
  const testing::SeenHead seen = SeeHead(*cache, seq, 1, 0);
  int checked = 0;
  size_t run = 1;
  for (const MixedPool& pool : cache->spec().mixed->pools) {
    const auto positions = cache->PoolPositions(seq, 1, 0, pool.width);
    ASSERT_GT(view.runs[run].tokens(), 256);
    for (int t = 0; t < view.runs[run].tokens(); ++t, ++checked) {
      const int64_t position = positions[static_cast<size_t>(t)];
      std::vector<float> k, v;
      testing::MakeRows(tokens, position, 1, 1, 0, 64, &k, &v);
      const testing::SeenHead::Row& row = seen.rows.at(position);
      ASSERT_EQ(row.k, decoded(pool.formats.k, Side::kK, k)) << position;
      ASSERT_EQ(row.v, decoded(pool.formats.v, Side::kV, v)) << position;
    }
    run += 2;
  }
  EXPECT_GT(checked, 1000);
}

// Moving up inside a pool rounds nothing: a token that never changes its width is bit for bit the
// same however many others left.
TEST(CacheMixed, TokensThatStayKeepTheirBits) {
  const Timeline tokens = Tokens(1600);
  const auto never = [](int64_t position, int64_t) { return HashOf(position) % 3 == 0 ? 4 : 8; };
  const auto leaving = [&](int64_t position, int64_t length) {
    const bool goes = HashOf(position) / 3 % 2 == 0;
    return goes && length - position > 300 ? 0 : never(position, length);
  };
  const auto see = [&](const WidthOf& width_of) {
    auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, width_of));
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, tokens, 1600);
    return SeeHead(*cache, seq, 0, 1);
  };
  const testing::SeenHead full = see(never), thinned = see(leaving);
  EXPECT_LT(thinned.rows.size(), full.rows.size() * 2 / 3);
  int coded_in_both = 0;
  for (const auto& [position, row] : thinned.rows) {
    const testing::SeenHead::Row& other = full.rows.at(position);
    ASSERT_EQ(row.width, other.width);
    if (position > 1000) continue;  // may wait in one tail and be coded in the other
    ASSERT_EQ(row.k, other.k) << position;
    ASSERT_EQ(row.v, other.v) << position;
    coded_in_both += row.width != 16;
  }
  EXPECT_GT(coded_in_both, 400);
}

// ---- Steps, cuts, forks

TEST(CacheMixed, StepThatLeavesItsPageIsRefused) {
  auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, HashedWidth));
  const SequenceId seq = NewSequence(*cache);
  EXPECT_EQ(cache->max_step_tokens(seq), 64);
  ExtendMixed(*cache, seq, Tokens(100), 100);
  EXPECT_EQ(cache->max_step_tokens(seq), 28);
  const Status status = cache->Reserve(seq, 29);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("at most 28"), std::string::npos) << status.message();
  EXPECT_TRUE(cache->Reserve(seq, 28).ok());
}

TEST(CacheMixed, CutsOfUpToAPageAreExactWhileNoTokenLeaves) {
  const Timeline tokens = Tokens(500), other = Tokens(500, 9);
  const KvGeometry one{1, 1, 64, 1};
  for (const Mode& mode : {kModes[0], kModes[1]}) {
    const KvSpec spec = MakeMixedSpec(mode.pools, mode.width_of, mode.once);
    for (const int64_t length : {65, 128, 129, 192, 193, 200, 256, 257, 400}) {
      for (const int64_t cut : {1, 2, 63, 64}) {
        Timeline mixed = tokens;
        std::copy(other.begin() + length - cut, other.end(), mixed.begin() + length - cut);
        auto cache = MakeCache(one, spec);
        const SequenceId seq = NewSequence(*cache);
        ExtendMixed(*cache, seq, mixed, length, 50);
        const Status status = cache->Truncate(seq, length - cut);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(MixedPictureOf(*cache, seq), SoloMixedPictureOf(one, spec, tokens, length - cut))
            << length << " - " << cut;
        ExtendMixed(*cache, seq, tokens, 500, 13);
        ASSERT_EQ(MixedPictureOf(*cache, seq), SoloMixedPictureOf(one, spec, tokens, 500));
      }
    }
  }
}

TEST(CacheMixed, CutBehindTokensThatLeftIsRefusedWithTheEarliestLength) {
  const Timeline tokens = Tokens(1000);
  auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, AgeingWidth));
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, tokens, 970);
  EXPECT_EQ(cache->earliest_truncate(seq), 960);
  const Picture before = MixedPictureOf(*cache, seq);
  const Status status = cache->Truncate(seq, 959);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("960"), std::string::npos) << status.message();
  EXPECT_EQ(MixedPictureOf(*cache, seq), before);
  ASSERT_TRUE(cache->Truncate(seq, 960).ok());
  ExtendMixed(*cache, seq, tokens, 970, 3);
  EXPECT_EQ(MixedPictureOf(*cache, seq), before);
}

TEST(CacheMixed, AbandonedStepsLeaveNoTrace) {
  const Timeline tokens = Tokens(1000), draft = Tokens(1000, 5);
  for (const Mode& mode : kModes) {
    const KvSpec spec = MakeMixedSpec(mode.pools, mode.width_of, mode.once);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    while (cache->length(seq) < 900) {
      ASSERT_TRUE(RunStep(*cache, seq, draft, std::min<int64_t>(3, cache->max_step_tokens(seq)),
                          [](int, int) {})
                      .ok());
      cache->Rollback(seq);
      ExtendMixed(*cache, seq, tokens, cache->length(seq) + 20, 20);
    }
    EXPECT_EQ(MixedPictureOf(*cache, seq),
              SoloMixedPictureOf(kSmall, spec, tokens, cache->length(seq)));
    ExpectPoolsBalance(*cache);
  }
}

TEST(CacheMixed, ForksGrowApartAndShareWhatNeitherChanges) {
  const Timeline base = Tokens(700);
  for (const Mode& mode : kModes) {
    const KvSpec spec = MakeMixedSpec(mode.pools, mode.width_of, mode.once);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId a = NewSequence(*cache);
    ExtendMixed(*cache, a, base, 650);
    const int64_t used = UsedPages(*cache);
    const Result<SequenceId> b = cache->Fork(a);
    ASSERT_TRUE(b.ok());
    EXPECT_EQ(UsedPages(*cache) - used, kSmall.layers * kSmall.kv_heads);  // the open pages
    EXPECT_EQ(MixedPictureOf(*cache, *b), MixedPictureOf(*cache, a));
    Timeline left = base, right = base;
    left.resize(650);
    right.resize(650);
    for (uint32_t t : Tokens(700, 2)) left.push_back(t);
    for (uint32_t t : Tokens(700, 3)) right.push_back(t);
    for (int64_t length = 660; length < 1200; length += 30) {
      ExtendMixed(*cache, a, left, length);
      ExtendMixed(*cache, *b, right, length + 11);
    }
    EXPECT_EQ(MixedPictureOf(*cache, a), SoloMixedPictureOf(kSmall, spec, left, cache->length(a)));
    EXPECT_EQ(MixedPictureOf(*cache, *b),
              SoloMixedPictureOf(kSmall, spec, right, cache->length(*b)));
    ASSERT_TRUE(cache->Free(a).ok());
    EXPECT_EQ(MixedPictureOf(*cache, *b),
              SoloMixedPictureOf(kSmall, spec, right, cache->length(*b)));
    ASSERT_TRUE(cache->Free(*b).ok());
    EXPECT_EQ(UsedPages(*cache), 0);
    ExpectPoolsBalance(*cache);
  }
}

// ---- Budget

// Each head of the layers that are not skipped has the same share, and "full" fills it: it lowers
// one token at a time, so that less is left than the widest token takes.
TEST(CacheMixed, HeadsShareTheBudgetEvenly) {
  constexpr int64_t kShareBytes = 60'000, kPositionBytes = 4;
  const std::vector<MixedPool> pools = *ParseMixedPools(kTokenPools);
  KvSpec spec;
  spec.sinks_tokens = 4;
  spec.window_tokens = 64;
  spec.skip_layers = {1};
  SetMixed({.pools = pools,
            .policy = PolicyOf("full:2,4,8"),
            .budget_bytes = kShareBytes * kSmall.kv_heads},
           &spec);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(641), 641);
  const auto token_bytes = [](const FormatPair& formats) {
    return MakePageLayout(formats.k, formats.v, kSmall.head_dim, 64).page_bytes / 64 +
           kPositionBytes;
  };
  const int64_t widest = token_bytes({kFormatF16, kFormatF16});
  for (int head = 0; head < kSmall.kv_heads; ++head) {
    // Asked at length 640: page 8 was closing, page 9 is the window.
    int64_t bytes = (4 + 64) * widest;
    for (const MixedPool& pool : pools) {
      bytes +=
          std::ssize(cache->PoolPositions(seq, 0, head, pool.width)) * token_bytes(pool.formats);
    }
    EXPECT_LE(bytes, kShareBytes);
    EXPECT_GT(bytes, kShareBytes - widest);
  }
}

// ---- What is refused

TEST(CacheMixed, ImpossibleSpecsAreRefusedByName) {
  const auto refusal = [](const std::string& pools, bool once, int64_t budget = 0) {
    const Result<std::vector<MixedPool>> parsed = ParseMixedPools(pools);
    if (!parsed.ok()) return parsed.status().message();
    KvSpec spec;
    SetMixed({.pools = *parsed,
              .policy = std::make_shared<WidthPolicy>(HashedWidth),
              .once = once,
              .budget_bytes = budget},
             &spec);
    return Cache::CreateWithoutModel(kSmall, spec, {.context_tokens = 1000}).status().message();
  };
  const auto expect = [&](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks " << part;
  };
  EXPECT_EQ(refusal(kPresetPools, true), "");
  EXPECT_EQ(refusal(kTokenPools, false, 1000), "");
  expect(refusal("5=int4", true), "'5'");
  expect(refusal("4", true), "width 4 has no format");
  expect(refusal("4=int4+4=int3", true), "width 4 stands twice");
  expect(refusal("16=int4", true), "width 16");
  expect(refusal("8=f32", true), "f32");
  expect(refusal("4=int4:channel:g64:min:prerope/int4", true), "prerope");
  expect(refusal("4=int4:channel:g128:min/int4:token", true), "128 tokens");
  expect(refusal("4=tq4:bal/tq4+2=tq2/tq2", true), "different ways");
  expect(refusal("8=int8+4=int4:token/int4:token", false), "share");
  expect(refusal("4=int4:token/int4:token", true, 1000), "budget");
  expect(refusal("8=int4:token/int4:token+4=int8:token/int8:token", false),
         "width 4 takes 8704 bytes, more than the 4608");
  EXPECT_EQ(*ParseMixedPools(MixedPoolsText(*ParseMixedPools(kTokenPools))),
            *ParseMixedPools(kTokenPools));
}

TEST(CacheMixed, SpecsOfTheCommandLineAreRead) {
  const Result<MixedSpec> spec = ParseMixedSpec("mixed:2=int2:token:g32+16+8=int8+once");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_TRUE(spec->once);
  EXPECT_EQ(spec->pools, *ParseMixedPools("16+8=int8+2=int2:token:g32"));
  EXPECT_FALSE(ParseMixedSpec("mixed:8=int8")->once);
  for (const char* wrong :
       {"mixed:", "mixed:once", "mixed:8=int8+", "8=int8", "mixed:8=int8,2=int2"}) {
    EXPECT_EQ(ParseMixedSpec(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(CacheMixed, PoliciesThatNoPoolCanFollowAreRefusedByName) {
  class Threes : public WidthPolicy {
   public:
    Threes() : WidthPolicy([](int64_t, int64_t) { return 4; }) {}
    std::vector<int> widths() const override { return {3, 4}; }
  };
  const auto refusal = [](std::shared_ptr<const Policy> policy) {
    KvSpec spec;
    SetMixed({.pools = *ParseMixedPools(kTokenPools), .policy = std::move(policy)}, &spec);
    return CheckKvSpec(spec, kSmall).message();
  };
  EXPECT_NE(refusal(std::make_shared<Threes>()).find("gives width 3, of which there is no pool"),
            std::string::npos);
  EXPECT_EQ(refusal(PolicyOf("keydiff:0.5")), "");
}

TEST(CacheMixed, PolicyThatJudgesByAttentionAsksToBeToldOfIt) {
  KvSpec spec;
  SetMixed({.pools = *ParseMixedPools(kTokenPools), .policy = PolicyOf("h2o")}, &spec);
  auto cache = MakeCache(kSmall, spec);
  EXPECT_TRUE(cache->measures_attention(1));
  const SequenceId seq = NewSequence(*cache);
  testing::ExtendTo(*cache, seq, Tokens(400), 128, 64);
  const Status status = RunStep(*cache, seq, Tokens(400), 5, [](int, int) {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("h2o:0.1,0.1 judges tokens by the attention they get"),
            std::string::npos)
      << status.message();
  cache->Rollback(seq);
  EXPECT_EQ(cache->Truncate(seq, 100).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(cache->earliest_truncate(seq), 128);
}

TEST(CacheMixed, WidthWithoutAPoolFailsTheStepAndChangesNothing) {
  int wanted = 4;
  auto cache =
      MakeCache(kSmall, MakeMixedSpec(kTokenPools, [&](int64_t, int64_t) { return wanted; }));
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(400), 192);
  const Picture before = MixedPictureOf(*cache, seq);
  wanted = 3;
  const Status status = RunStep(*cache, seq, Tokens(400), 5, [](int, int) {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("width 3"), std::string::npos) << status.message();
  cache->Rollback(seq);
  EXPECT_EQ(MixedPictureOf(*cache, seq), before);
  ExpectPoolsBalance(*cache);
}

}  // namespace
}  // namespace kvant
