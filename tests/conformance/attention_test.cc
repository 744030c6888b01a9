// Every format x head size x group ratio x length x ISA level against an f64 attention over the
// decoded values, and against itself: levels, threads and chunking must not change a bit.
#include <gtest/gtest.h>

#include "attention_world.h"
#include "base/byte_permute.h"
#include "format_pairs.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

using testing::AttendHead;
using testing::FormatNames;
using testing::HeadSetup;
using testing::kSanitized;
using testing::LevelsToTest;
using testing::PagedHead;
using testing::Parse;
using testing::RandomValues;
using testing::ReferenceAttention;

class EveryPair : public ::testing::TestWithParam<FormatNames> {
 protected:
  HeadSetup Setup(int head_dim, int tokens, int sinks = 4) const {
    HeadSetup s{
        Parse(GetParam().k, Side::kK), Parse(GetParam().v, Side::kV), head_dim, tokens, sinks, 1};
    if (s.k.is_float() && s.v.is_float()) s.sinks = 0;
    return s;
  }
  void TearDown() override { ASSERT_TRUE(SetActiveIsa(before_).ok()); }
  std::unique_ptr<ThreadPool> pool_ = std::move(ThreadPool::Create(2).value());
  const Isa before_ = ActiveIsa();
};

// The integer path rounds the folded query to 8 bits (step amax/127 a page) and the folded
// probabilities likewise. With N(0,1) data a folded query entry is off by at most amax/254, about
// 0.011 of its rms; centred codes of rms ~1 then put an error of 0.011 / sqrt(3) * |k| on a score
// of scale |q||k| / sqrt(D): below 0.02 absolute on scores of rms 1. A probability-weighted mean
// moves by at most that fraction of the spread of v (rms 1): the bounds below hold with a factor
// two to spare, and a swapped nibble, a lost offset or a dropped page exceeds them tenfold. Where
// the query has a second term its step is 254 times smaller.
double KernelTolerance(const HeadSetup& s) {
  double tolerance = 2e-5;
  const bool second_term = s.k.bits == 8 && s.k.axis == Axis::kChannel && s.head_dim > 64;
  // K before RoPE is read in f32: what is left are f32 roundings of angles, turns and dots.
  if (!s.k.is_float() && !s.k.is_float8() && !s.k.pre_rope) {
    tolerance += second_term ? 0.02 / 254 : 0.02;
  }
  if (!s.v.is_float() && !s.v.is_float8()) tolerance += 0.02;
  return tolerance;
}

void ExpectClose(const HeadSetup& s, const PagedHead& head, const std::vector<float>& q,
                 const std::vector<float>& out, int queries, int ratio, const std::string& what) {
  ASSERT_EQ(out.size(), q.size()) << what;
  const int d = s.head_dim;
  double square = 0, worst = 0;
  for (int i = 0; i < queries * ratio; ++i) {
    // Earlier query pages read some pages as written; the reference holds for the last page only.
    const int position = s.tokens - queries + i / ratio;
    ASSERT_EQ(position / head.page_tokens(), (s.tokens - 1) / head.page_tokens());
    const auto want = ReferenceAttention(&q[static_cast<size_t>(i) * d], head.seen_k, head.seen_v,
                                         d, position + 1, 1.0 / std::sqrt(d));
    for (int c = 0; c < d; ++c) {
      const double error =
          std::fabs(out[static_cast<size_t>(i) * d + c] - want[static_cast<size_t>(c)]);
      ASSERT_TRUE(std::isfinite(error)) << what << " row " << i << " channel " << c;
      square += error * error;
      worst = std::max(worst, error);
    }
  }
  EXPECT_LT(std::sqrt(square / (static_cast<double>(queries) * ratio * d)), KernelTolerance(s))
      << what;
  EXPECT_LT(worst, 8 * KernelTolerance(s)) << what;
}

TEST_P(EveryPair, MatchesF64OverDecodedValuesAtEveryLength) {
  for (const int tokens : {1, 2, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 640, 1100}) {
    const HeadSetup s = Setup(64, tokens);
    const size_t values = static_cast<size_t>(tokens) * 64;
    const PagedHead head(s, RandomValues(values, 1), RandomValues(values, 2), std::byte{0xff});
    const auto q = RandomValues(3 * 64, 3);
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      ExpectClose(s, head, q, AttendHead(*pool_, head, s, q, 1, 3), 1, 3,
                  std::string(IsaName(isa)) + " tokens " + std::to_string(tokens));
    }
  }
}

TEST_P(EveryPair, MatchesF64AtEveryHeadSize) {
  for (const int d : {16, 64, 72, 80, 96, 100, 112, 120, 128, 192, 256, 320, 576}) {
    if (kSanitized && d > 128) continue;
    const HeadSetup s = Setup(d, 333);
    const size_t values = static_cast<size_t>(333) * d;
    const PagedHead head(s, RandomValues(values, 4), RandomValues(values, 5), std::byte{0xff});
    const auto q = RandomValues(static_cast<size_t>(2) * d, 6);
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      ExpectClose(s, head, q, AttendHead(*pool_, head, s, q, 1, 2), 1, 2,
                  std::string(IsaName(isa)) + " head_dim " + std::to_string(d));
    }
  }
}

TEST_P(EveryPair, MatchesF64AtEveryGroupRatio) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 32, 64}) {
    if (kSanitized && ratio > 5) continue;
    const HeadSetup s = Setup(64, 333);
    const size_t values = static_cast<size_t>(333) * 64;
    const PagedHead head(s, RandomValues(values, 7), RandomValues(values, 8), std::byte{0xff});
    const auto q = RandomValues(static_cast<size_t>(ratio) * 64, 9);
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      ExpectClose(s, head, q, AttendHead(*pool_, head, s, q, 1, ratio), 1, ratio,
                  std::string(IsaName(isa)) + " ratio " + std::to_string(ratio));
    }
  }
}

// Each number of threads and each length of chunk at least once, not each with each: an order of
// folding that went wrong shows in either.
struct Way {
  int threads, chunk;
};
constexpr Way kWays[] = {{1, 7}, {1, 150}, {2, 1}, {2, 64}, {5, 150}};

TEST_P(EveryPair, LevelsThreadsAndChunkingGiveTheSameBits) {
  for (const int d : {64, 80, 100}) {
    if (kSanitized && d != 80) continue;
    const HeadSetup s = Setup(d, 777);
    const size_t values = static_cast<size_t>(777) * d;
    const PagedHead head(s, RandomValues(values, 10), RandomValues(values, 11), std::byte{0xff});
    constexpr int kQueries = kSanitized ? 12 : 150, kRatio = 3;
    const auto q = RandomValues(static_cast<size_t>(kQueries) * kRatio * d, 12);
    ASSERT_TRUE(SetActiveIsa(Isa::kScalar).ok());
    const auto want = AttendHead(*pool_, head, s, q, kQueries, kRatio);
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      for (const auto& [threads, chunk] : kWays) {
        if (kSanitized && (chunk == 1 || threads == 5)) continue;
        const auto pool = std::move(ThreadPool::Create(threads).value());
        const auto out = AttendHead(*pool, head, s, q, kQueries, kRatio, chunk);
        ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * 4), 0)
            << IsaName(isa) << " threads " << threads << " chunk " << chunk << " head_dim " << d;
      }
    }
  }
}

TEST_P(EveryPair, UnusedStorageNeverReachesAResult) {
  for (const int tokens : {1, 31, 33, 65, 130, 577}) {
    const HeadSetup s = Setup(64, tokens, 3);
    const size_t values = static_cast<size_t>(tokens) * 64;
    const auto k = RandomValues(values, 13), v = RandomValues(values, 14);
    const auto q = RandomValues(3 * 64, 15);
    const PagedHead clean(s, k, v, std::byte{0}), poisoned(s, k, v, std::byte{0xff});
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      const auto a = AttendHead(*pool_, clean, s, q, 1, 3),
                 b = AttendHead(*pool_, poisoned, s, q, 1, 3);
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0) << IsaName(isa) << " " << tokens;
    }
  }
}

// CPUs of the avx512 level look 64 levels up in two ways.
TEST_P(EveryPair, LookingLevelsUpByQuartersGivesTheSameBits) {
  if (!CanPermuteBytes() || !IsaAvailable(Isa::kAvx512)) GTEST_SKIP() << "there is one way here";
  const HeadSetup s = Setup(80, 700);
  const size_t values = static_cast<size_t>(700) * 80;
  const PagedHead head(s, RandomValues(values, 20), RandomValues(values, 21), std::byte{0xff});
  const auto q = RandomValues(3 * 80, 22);
  ASSERT_TRUE(SetActiveIsa(Isa::kAvx512).ok());
  const auto want = AttendHead(*pool_, head, s, q, 1, 3);
  SetCanPermuteBytes(false);
  const auto got = AttendHead(*pool_, head, s, q, 1, 3);
  SetCanPermuteBytes(true);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0);
}

INSTANTIATE_TEST_SUITE_P(Conformance, EveryPair, ::testing::ValuesIn(testing::kFormatPairs),
                         testing::NameOfPair);

// Nested codes of 4 bits are those of tq4 in other planes, so attention over them gives the same
// bits. The bounds above are too wide to see that a code's last bits changed places.
TEST(NestedCodes, OfFourBitsGiveTheBitsOfTheirPlainForm) {
  const auto pool = std::move(ThreadPool::Create(2).value());
  const Isa before = ActiveIsa();
  for (const int d : {64, 80, 100, 128}) {
    const size_t values = static_cast<size_t>(300) * d;
    const auto k = RandomValues(values, 30), v = RandomValues(values, 31);
    const auto q = RandomValues(static_cast<size_t>(3) * d, 32);
    const auto attend = [&](const char* k_spec, const char* v_spec) {
      const HeadSetup s{Parse(k_spec, Side::kK), Parse(v_spec, Side::kV), d, 300, 4, 1};
      return AttendHead(*pool, PagedHead(s, k, v, std::byte{0xff}), s, q, 1, 3);
    };
    for (Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      const auto want = attend("tq4:mean:n8", "tq4:n8"), got = attend("nest4:mean:n8", "nest4:n8");
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0)
          << IsaName(isa) << " head_dim " << d;
    }
  }
  ASSERT_TRUE(SetActiveIsa(before).ok());
}

// C21: logits far outside f16 and a long flat sum.
TEST(AttentionNumerics, LogitsOfHundredThousandAndLongFlatSumsStayExact) {
  const auto pool = std::move(ThreadPool::Create(2).value());
  HeadSetup s{kFormatF16, kFormatF16, 64, kSanitized ? 4096 : 65536, 0, 1};
  std::vector<float> k(static_cast<size_t>(s.tokens) * 64, 0.0f), v(k.size(), 8.0f);
  const std::vector<float> q(64, 1.0f);
  const PagedHead flat(s, k, v);
  for (float x : AttendHead(*pool, flat, s, q, 1, 1)) EXPECT_NEAR(x, 8.0f, 8e-3f);

  s.tokens = 300;
  k.assign(static_cast<size_t>(s.tokens) * 64, 1000.0f);
  v = RandomValues(k.size(), 16);
  for (int c = 0; c < 64; ++c) k[static_cast<size_t>(77) * 64 + c] = 1016.0f;
  const std::vector<float> big(64, 1.5625f);  // q . k = 100,000 before scaling; token 77 wins
  const PagedHead head(s, k, v);
  const auto out = AttendHead(*pool, head, s, big, 1, 1);
  for (int c = 0; c < 64; ++c) {
    EXPECT_NEAR(out[static_cast<size_t>(c)], head.seen_v[static_cast<size_t>(77) * 64 + c], 1e-3);
  }
}

// C27: scaling K by a and q by 1/a must not change the answer.
TEST(AttentionNumerics, RescalingKeysAgainstTheQueryChangesNothing) {
  const auto pool = std::move(ThreadPool::Create(1).value());
  for (const char* spec : {"int8:channel", "int8:token:none", "q8_0", "int4:channel"}) {
    const HeadSetup s{Parse(spec, Side::kK), Parse("int8:token", Side::kV), 64, 500, 4, 1};
    const auto k = RandomValues(500 * 64, 17), v = RandomValues(500 * 64, 18),
               q = RandomValues(64, 19);
    const PagedHead plain(s, k, v);
    const auto want = AttendHead(*pool, plain, s, q, 1, 1);
    for (const float a : {1e-3f, 1e3f}) {
      auto ka = k, qa = q;
      for (float& x : ka) x *= a;
      for (float& x : qa) x /= a;
      const PagedHead scaled(s, ka, v);
      const auto got = AttendHead(*pool, scaled, s, qa, 1, 1);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 0.02) << spec << " " << a;
    }
  }
}

// The worked example of the softmax state: scores 1 2 3 -1, halves merged equal the whole.
TEST(AttentionNumerics, WorkedExampleOfFourTokens) {
  const auto pool = std::move(ThreadPool::Create(1).value());
  const HeadSetup s{kFormatF32, kFormatF32, 4, 4, 0, 1};
  const std::vector<float> k = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, -1, 0, 0, 0};
  const std::vector<float> v = {1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 2, -1, 0, 0};
  const PagedHead head(s, k, v);
  const auto out = AttendHead(*pool, head, s, {2, 0, 0, 0}, 1, 1);  // times 1 / sqrt(4)
  EXPECT_NEAR(out[0], 0.770255, 1e-5);
  EXPECT_NEAR(out[1], 0.886978, 1e-5);
}

}  // namespace
}  // namespace kvant
