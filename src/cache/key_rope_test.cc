// Keys before RoPE in a cache: tables at large positions, what Append refuses, and pages that do
// not depend on how a sequence came to be.
#include "cache/key_rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;

constexpr KvGeometry kHeads{2, 2, 64, 2};
const char* const kPre = "int4:channel:g64:min:prerope:out1";

// A key of known values is turned in double to position p, stored, and turned back. Left are two
// roundings to f16 of a pair of length 3 or less: 2 * 2^-11 * 3, and f32's of the tables.
TEST(KeyRope, TurningBackFindsTheKeyAtAMillionAsAtZero) {
  constexpr int kDim = 80, kTurning = 48;
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
    const Rope rope{pairs, RopeFrequencies(500000, kTurning)};
    KeyRopeTable table(rope);
    ASSERT_TRUE(table.Grow(64).ok());
    ASSERT_TRUE(table.Grow((1 << 20) + 128).ok());  // a second growth keeps what is there
    const KeyRope view = table.view();
    const PageLayout open = MakePageLayout(kFormatF16, kFormatF16, kDim, 128);
    for (const int64_t first : {int64_t{0}, int64_t{64}, int64_t{1} << 20}) {
      std::vector<std::byte> page(static_cast<size_t>(open.k.bytes)), back(page.size());
      const auto key = [](int t, int c) { return std::sin(0.37 * t + 1.9 * c) * 2; };
      for (int t = 0; t < 128; ++t) {
        for (int c = kTurning; c < kDim; ++c) {
          StoreFloatValue(open.k, page.data(), t, c, static_cast<float>(key(t, c)));
        }
        for (int i = 0; i < kTurning / 2; ++i) {
          const int a = view.step * i, b = a + view.to_partner;
          const double angle =
              static_cast<double>(first + t) * rope.frequencies[static_cast<size_t>(i)];
          const double cosine = std::cos(angle), sine = std::sin(angle);
          StoreFloatValue(open.k, page.data(), t, a,
                          static_cast<float>(key(t, a) * cosine - key(t, b) * sine));
          StoreFloatValue(open.k, page.data(), t, b,
                          static_cast<float>(key(t, a) * sine + key(t, b) * cosine));
        }
      }
      TurnBack(view, open.k, page.data(), first, back.data());
      for (int t = 0; t < 128; ++t) {
        for (int c = 0; c < kDim; ++c) {
          ASSERT_NEAR(LoadFloatValue(open.k, back.data(), t, c), key(t, c), 6.0 / 2048)
              << "position " << first + t << " channel " << c;
        }
      }
    }
  }
}

TEST(KeyRope, ACacheWithoutTheRopeOfItsLayersIsRefused) {
  const KvSpec spec = MakeSpec(kPre, "int4");
  const auto refused = [&](std::span<const Rope> ropes, const std::string& named) {
    const auto cache = Cache::Create(kHeads, spec, {.context_tokens = 1000, .ropes = ropes});
    ASSERT_FALSE(cache.ok()) << named;
    EXPECT_EQ(cache.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(cache.status().message().find(named), std::string::npos) << cache.status().message();
  };
  refused({}, "there are 0");
  const std::vector<Rope> one(1, UsualRope(64)), wide(2, UsualRope(80));
  refused(one, "there are 1");
  refused(wide, "80 channels of a head of 64");
  const std::vector<Rope> infinite(2, Rope{RopePairs::kHalves, {INFINITY}});
  refused(infinite, "not finite");
}

TEST(KeyRope, APairThatF16CannotHoldBeforeRopeIsRefusedWithItsPlace) {
  auto cache = MakeCache(kHeads, MakeSpec(kPre, "int4"));
  const SequenceId seq = NewSequence(*cache);
  ASSERT_TRUE(cache->Reserve(seq, 3).ok());
  std::vector<float> k(3 * 64, 1.0f), v(3 * 64, 1.0f);
  k[2 * 64 + 5] = k[2 * 64 + 37] = 60000.0f;  // f16 holds either, not their length
  const Status status = cache->Append(seq, 1, 0, k.data(), 64, v.data(), 64, 3);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("layer 1, KV head 0, position 2, channels 5 and 37"),
            std::string::npos)
      << status.message();
  cache->Rollback(seq);
}

// Chunks, forks and cuts leave the pages and views of a sequence that came in one piece.
TEST(KeyRope, PagesDependOnPositionsOnly) {
  const KvSpec spec = MakeSpec(kPre, "int3:token:min:out2");
  const Timeline tokens = Tokens(700);
  const auto solo = [&](int64_t length) { return SoloPicture(kHeads, spec, tokens, length); };
  for (const int64_t chunk : {1, 7, 64, 300}) {
    ASSERT_EQ(SoloPicture(kHeads, spec, tokens, 515, chunk), solo(515)) << chunk;
  }
  auto cache = MakeCache(kHeads, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, 400, 100);
  const SequenceId fork = cache->Fork(seq).value();
  ExtendTo(*cache, fork, tokens, 600, 9);
  ExtendTo(*cache, seq, tokens, 450, 450);
  ASSERT_TRUE(cache->Truncate(fork, 560).ok());
  EXPECT_EQ(PictureOf(*cache, fork), solo(560));
  ExtendTo(*cache, fork, tokens, 620, 1);
  EXPECT_EQ(PictureOf(*cache, fork), solo(620));
  EXPECT_EQ(PictureOf(*cache, seq), solo(450));
}

}  // namespace
}  // namespace kvant
