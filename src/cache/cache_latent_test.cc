// A cache of latents (KvGeometry::latent_dim): the V side of a page is the latent, the K side the
// RoPE key, and K of attention is a view of both.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/cache_testing.h"
#include "cache/snapshot.h"
#include "cache/snapshot_testing.h"
#include "kvant/mixed_spec.h"

namespace kvant {
namespace {

using testing::Extend;
using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::RestoreInto;
using testing::Saved;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;

// 2 layers, a latent of 48 channels and a RoPE key of 16 for 4 heads.
constexpr KvGeometry kShape{2, 1, 64, 4, 48};
constexpr int kTokenValues =
    2 * 64;  // that one token leaves: of K and V apart, it would be 2 * 112

const std::pair<const char*, const char*> kPairs[] = {
    {"f16", "f16"},
    {"f16", "int8:token:g32:none"},
    {"int8:channel:g64:min", "int4:token:g16:min"},
    {"fp8_e4m3", "nvfp4"}};

TEST(LatentCache, LatentsCountOnce) {
  const auto cache = MakeCache(kShape, MakeSpec("f16", "f16"));
  EXPECT_EQ(cache->stored_layout(0).k.head_dim, 16);
  EXPECT_EQ(cache->stored_layout(0).v.head_dim, 48);
  const SequenceId seq = NewSequence(*cache);
  const Timeline tokens = Tokens(200);
  for (const int64_t length : {1, 64, 100, 200}) {
    ExtendTo(*cache, seq, tokens, length, 70);
    const CacheLedger ledger = cache->ledger();
    EXPECT_EQ(ledger.code_bytes, length * kTokenValues * 2);
    EXPECT_EQ(cache->bytes_read_per_token(seq), length * kTokenValues * 2);
    // Pages are whole: the open one's end is padding.
    const double pages = static_cast<double>((length + 63) / 64);
    EXPECT_EQ(ledger.effective_bits, 16 * pages * 64 / static_cast<double>(length));
  }
}

TEST(LatentCache, CodedPagesCostTheirCodesAndScales) {
  const auto cache = MakeCache(kShape, MakeSpec("f16", "int4:token:g16:min", 0, 0));
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(65), 65, 65);
  const CacheLedger ledger = cache->ledger();
  EXPECT_EQ(ledger.stored_tokens, 64);
  EXPECT_EQ(ledger.code_bytes, 64 * 2 * (16 * 2 + 48 / 2));
  EXPECT_EQ(ledger.metadata_bytes, 64 * 2 * (48 / 16) * 4);
}

TEST(LatentCache, StoredBytesDoNotDependOnChunks) {
  const Timeline tokens = Tokens(500);
  for (const auto& [k, v] : kPairs) {
    const KvSpec spec = MakeSpec(k, v);
    const auto whole = SoloPicture(kShape, spec, tokens, 500);
    for (const int64_t chunk : {1, 7, 64}) {
      EXPECT_EQ(SoloPicture(kShape, spec, tokens, 500, chunk), whole) << k << " " << v;
    }
  }
}

TEST(LatentCache, ForksCutsAndSnapshotsAreExact) {
  const Timeline tokens = Tokens(500);
  for (const auto& [k, v] : kPairs) {
    const KvSpec spec = MakeSpec(k, v);
    const auto cache = MakeCache(kShape, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, tokens, 400, 400);
    const Result<SequenceId> fork = cache->Fork(seq);
    ASSERT_TRUE(fork.ok());
    ExtendTo(*cache, *fork, tokens, 410, 10);
    ASSERT_TRUE(cache->Truncate(*fork, 380).ok());
    EXPECT_EQ(PictureOf(*cache, *fork), SoloPicture(kShape, spec, tokens, 380)) << k << " " << v;
    EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kShape, spec, tokens, 400)) << k << " " << v;

    const auto other = MakeCache(kShape, spec);
    const Result<SequenceId> restored = RestoreInto(*other, Saved(*cache, seq));
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_EQ(PictureOf(*other, *restored), PictureOf(*cache, seq));
    ExtendTo(*other, *restored, tokens, 500, 33);
    EXPECT_EQ(PictureOf(*other, *restored), SoloPicture(kShape, spec, tokens, 500));
  }
}

// Without its latent the shape has as many channels, and other pages.
TEST(LatentCache, ASnapshotSaysThatItIsOfLatents) {
  const auto cache = MakeCache(kShape, MakeSpec("f16", "f16"));
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(10), 10, 10);
  const testing::Bytes bytes = Saved(*cache, seq);
  EXPECT_EQ(static_cast<int>(bytes[8]), 3);  // the version
  const Result<Snapshot> snapshot = ParseSnapshot(bytes);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->header.geometry, kShape);
  KvGeometry plain = kShape;
  plain.latent_dim = 0;
  const auto other = MakeCache(plain, MakeSpec("f16", "f16"));
  const Status status = RestoreInto(*other, bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("48 of them a latent"), std::string::npos) << status.message();
}

// The RoPE key is all that turns, and in f16 it is turned with one more rounding.
TEST(LatentCache, AShiftTurnsTheRopeKeyAlone) {
  const Timeline tokens = Tokens(400);
  const auto cache = MakeCache(kShape, MakeSpec("f16", "f16", 0));
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, 400, 400);
  const std::vector<Rope> ropes = testing::UsualRopes(kShape);
  ASSERT_EQ(ropes[0].frequencies.size(), 8u);
  ASSERT_TRUE(cache->Shift(seq, 64, 128, ropes).ok());
  EXPECT_EQ(cache->length(seq), 272);
  std::vector<float> k, v;
  const HeadView view = cache->View(seq, 0, 0, 271 / 64);
  for (const kvant::Run& run : view.runs) {
    for (int t = run.first_token; t < run.end_token; ++t) {
      const int64_t position = run.first_position + t,
                    before = position < 64 ? position : position + 128;
      testing::MakeRows(tokens, before, 1, 0, 0, kShape, &k, &v);
      const std::byte* const page = run.pages[t / run.layout->tokens];
      const int slot = t % run.layout->tokens;
      for (int c = 0; c < 48; ++c) {
        ASSERT_NEAR(LoadFloatValue(run.layout->v, page + run.layout->v_offset_bytes, slot, c),
                    v[static_cast<size_t>(c)], 0x1p-11 * std::abs(v[static_cast<size_t>(c)]));
      }
      for (int i = 0; i < 8; ++i) {
        const double angle =
            position < 64 ? 0 : -128 * ropes[0].frequencies[static_cast<size_t>(i)];
        const double a = k[static_cast<size_t>(i)], b = k[static_cast<size_t>(i + 8)];
        // Two roundings to 11 bits of what is no longer than the pair.
        ASSERT_NEAR(LoadFloatValue(run.layout->k, page, slot, i),
                    a * std::cos(angle) - b * std::sin(angle), 0x1p-10 * std::hypot(a, b));
      }
    }
  }
}

TEST(LatentCache, WhatTreatsKeysAndValuesApartIsRefused) {
  for (const auto& [k, v] : {std::pair{"f16", "tq4"}, std::pair{"tq4", "f16"},
                             std::pair{"f16", "int4:token:g16:min:had"},
                             std::pair{"int4:channel:g64:min:prerope", "f16"},
                             std::pair{"tq3:mean:bal:n8", "int8:token"}}) {
    const Status status = CheckKvSpec(MakeSpec(k, v), kShape);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << k << " " << v;
    EXPECT_NE(status.message().find("the latent is K and V in one"), std::string::npos)
        << status.message();
  }
  KvSpec layers;
  layers.layers = {{kFormatF16, kFormatF16}, testing::MakePair("f16", "tq4")};
  EXPECT_FALSE(CheckKvSpec(layers, kShape).ok());
}

TEST(LatentCache, MixedWidthsAreRefused) {
  KvSpec spec;
  ASSERT_TRUE(CheckKvSpec(spec, kShape).ok());
  const Result<MixedSpec> mixed = ParseMixedSpec("mixed:8=int8:token+4=int4:token");
  ASSERT_TRUE(mixed.ok()) << mixed.status().message();
  SetMixed(*mixed, &spec);
  const Status status = CheckKvSpec(spec, kShape);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("its heads share one latent"), std::string::npos)
      << status.message();
}

TEST(LatentCache, ImpossibleLatentsAreRefused) {
  for (const KvGeometry& g : {KvGeometry{2, 2, 64, 4, 48}, KvGeometry{2, 1, 64, 4, 64},
                              KvGeometry{2, 1, 64, 4, 62}, KvGeometry{2, 1, 64, 4, -4}}) {
    EXPECT_EQ(CheckGeometry(g).code(), StatusCode::kInvalidArgument)
        << g.kv_heads << " " << g.latent_dim;
  }
}

}  // namespace
}  // namespace kvant
