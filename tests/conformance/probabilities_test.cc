// The probabilities that attention hands out: against f64, against the outputs that they explain,
// and against themselves.
#include <gtest/gtest.h>

#include <bit>

#include "attention_world.h"
#include "format_pairs.h"

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
using testing::ReferenceProbabilities;

constexpr float kUntouched = -7.0f;

// Keys that every float format of a sink or an open page holds as they are, so that the reference
// sees those of the sinks too: 8 significant bits.
std::vector<float> ShortValues(size_t count, uint32_t seed) {
  std::vector<float> values = RandomValues(count, seed);
  for (float& x : values) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
  return values;
}

class Probabilities : public ::testing::TestWithParam<FormatNames> {
 protected:
  HeadSetup Setup(int head_dim, int tokens) const {
    HeadSetup s{
        Parse(GetParam().k, Side::kK), Parse(GetParam().v, Side::kV), head_dim, tokens, 4, 1};
    if (s.k.is_float() && s.v.is_float()) s.sinks = 0;
    return s;
  }
  void TearDown() override { ASSERT_TRUE(SetActiveIsa(before_).ok()); }

  // [queries][ratio][tokens] of the last queries.
  std::vector<float> Of(const PagedHead& head, const HeadSetup& s, const std::vector<float>& q,
                        int queries, int ratio, int chunk = 1 << 30, int64_t window = 0,
                        std::vector<float>* out = nullptr) {
    std::vector<float> p(static_cast<size_t>(queries) * ratio * s.tokens, kUntouched);
    auto outputs = AttendHead(*pool_, head, s, q, queries, ratio, chunk, p.data(), window);
    EXPECT_EQ(outputs.size(), q.size());
    if (out != nullptr) *out = std::move(outputs);
    return p;
  }

  std::unique_ptr<ThreadPool> pool_ = std::move(ThreadPool::Create(2).value());
  const Isa before_ = ActiveIsa();
};

// How much a probability may be off, as a share of itself: e^d - 1 where its score is off by d. Of
// coded K the query is rounded to 8 bits. With N(0, 1) data its largest entry is below 4 of its
// rms, so entries are off by a step of 4 / 127 over sqrt(12), 0.009 rms, and scores by as much; 6
// standard deviations, and a third more for scales that differ between channels, are 0.072.
// Elsewhere f32 roundings of dots are left, and for all those of 2^x (2.2e-7), of the merged sum
// and the quotient.
double Share(const HeadSetup& s) {
  return s.k.is_float() || s.k.is_float8() || s.k.pre_rope ? 2e-5 : 0.075;
}

// Rows of the last query page: the reference holds for that one only.
void ExpectF64(const HeadSetup& s, const PagedHead& head, const std::vector<float>& q,
               const std::vector<float>& p, int queries, int ratio, int64_t window,
               const std::string& what) {
  for (int i = 0; i < queries * ratio; ++i) {
    const int position = s.tokens - queries + i / ratio;
    ASSERT_EQ(position / head.page_tokens(), (s.tokens - 1) / head.page_tokens());
    const int first =
        window == 0 ? 0 : static_cast<int>(std::max<int64_t>(0, position + 1 - window));
    const auto want =
        ReferenceProbabilities(&q[static_cast<size_t>(i) * s.head_dim], head.seen_k, s.head_dim,
                               position + 1, 1.0 / std::sqrt(s.head_dim), first);
    const float* const row = &p[static_cast<size_t>(i) * s.tokens];
    double sum = 0;
    for (int t = 0; t < s.tokens; ++t) {
      sum += static_cast<double>(row[t]);
      if (t < first || t > position) {
        ASSERT_EQ(row[t], 0.0f) << what << " row " << i << " token " << t;
      } else {
        const double expected = want[static_cast<size_t>(t)];
        ASSERT_NEAR(row[t], expected, Share(s) * expected + 1e-7)
            << what << " row " << i << " token " << t;
      }
    }
    // 1,100 probabilities, each off by a few 2^-24 of itself, over a sum of 1,100 / 16 steps.
    ASSERT_NEAR(sum, 1.0, 1e-5) << what << " row " << i;
  }
}

TEST_P(Probabilities, MatchF64AtEveryLength) {
  for (const int tokens : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 640, 1100}) {
    if (kSanitized && tokens > 200) continue;
    const HeadSetup s = Setup(64, tokens);
    const size_t values = static_cast<size_t>(tokens) * 64;
    const PagedHead head(s, ShortValues(values, 1), RandomValues(values, 2), std::byte{0xff});
    const int queries =
        std::min(tokens % head.page_tokens() == 0 ? 5 : tokens % head.page_tokens(), 5);
    const auto q = RandomValues(static_cast<size_t>(queries) * 3 * 64, 3);
    for (const int64_t window : {0, 50}) {
      for (Isa isa : LevelsToTest()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        const auto p = Of(head, s, q, queries, 3, 1 << 30, window);
        ExpectF64(s, head, q, p, queries, 3, window,
                  std::string(IsaName(isa)) + " tokens " + std::to_string(tokens) + " window " +
                      std::to_string(window));
      }
    }
  }
}

TEST_P(Probabilities, MatchF64AtEveryHeadSizeAndGroupRatio) {
  for (const int d : {64, 80, 128, 256}) {
    if (kSanitized && d > 128) continue;
    const HeadSetup s = Setup(d, 333);
    const size_t values = static_cast<size_t>(333) * d;
    const PagedHead head(s, ShortValues(values, 4), RandomValues(values, 5), std::byte{0xff});
    for (int ratio = 1; ratio <= 9; ++ratio) {
      if (d != 64 && ratio != 3 && ratio != 8) continue;
      const auto q = RandomValues(static_cast<size_t>(ratio) * d, 6);
      for (Isa isa : LevelsToTest()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        ExpectF64(s, head, q, Of(head, s, q, 1, ratio), 1, ratio, 0,
                  std::string(IsaName(isa)) + " head_dim " + std::to_string(d) + " ratio " +
                      std::to_string(ratio));
      }
    }
  }
}

// With V in f32 the outputs are sum(p v) up to f32 roundings, whatever K's format does to p: a
// bound two thousand times as narrow as that for scores.
TEST_P(Probabilities, ExplainTheOutputs) {
  HeadSetup s = Setup(64, 700);
  s.v = kFormatF32;
  const size_t values = static_cast<size_t>(s.tokens) * 64;
  const PagedHead head(s, RandomValues(values, 7), RandomValues(values, 8), std::byte{0xff});
  const auto q = RandomValues(4 * 64, 9);
  for (Isa isa : LevelsToTest()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    std::vector<float> out;
    const auto p = Of(head, s, q, 1, 4, 1 << 30, 0, &out);
    for (int row = 0; row < 4; ++row) {
      for (int c = 0; c < 64; ++c) {
        double want = 0;
        for (int t = 0; t < s.tokens; ++t) {
          want += static_cast<double>(p[static_cast<size_t>(row * s.tokens + t)]) *
                  head.seen_v[static_cast<size_t>(t * 64 + c)];
        }
        ASSERT_NEAR(out[static_cast<size_t>(row * 64 + c)], want, 5e-6)
            << IsaName(isa) << " row " << row << " channel " << c;
      }
    }
  }
}

TEST_P(Probabilities, AreTheSameBitsForLevelsThreadsAndChunksAndLeaveTheOutputsAlone) {
  const HeadSetup s = Setup(80, 777);
  const size_t values = static_cast<size_t>(777) * 80;
  const PagedHead head(s, RandomValues(values, 10), RandomValues(values, 11), std::byte{0xff});
  constexpr int kQueries = kSanitized ? 12 : 70, kRatio = 3;  // more than a page
  const auto q = RandomValues(static_cast<size_t>(kQueries) * kRatio * 80, 12);
  const auto without = AttendHead(*pool_, head, s, q, kQueries, kRatio);
  const auto want = Of(head, s, q, kQueries, kRatio);
  for (Isa isa : LevelsToTest()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const int threads : {1, 2}) {
      pool_ = std::move(ThreadPool::Create(threads).value());
      for (const int chunk : {1, 7, 64}) {
        if (isa == Isa::kScalar && chunk == 1) continue;  // slow, adds nothing
        std::vector<float> out;
        const auto p = Of(head, s, q, kQueries, kRatio, chunk, 0, &out);
        ASSERT_EQ(std::memcmp(out.data(), without.data(), out.size() * 4), 0);
        ASSERT_EQ(std::memcmp(p.data(), want.data(), want.size() * 4), 0)
            << IsaName(isa) << " threads " << threads << " chunk " << chunk;
      }
    }
  }
}

TEST_P(Probabilities, AreNotMadeOfUnusedStorage) {
  for (const int tokens : {1, 33, 130, 577}) {
    if (kSanitized && tokens > 130) continue;
    const HeadSetup s = Setup(64, tokens);
    const size_t values = static_cast<size_t>(tokens) * 64;
    const auto k = RandomValues(values, 13), v = RandomValues(values, 14);
    const auto q = RandomValues(3 * 64, 15);
    const PagedHead clean(s, k, v, std::byte{0}), poisoned(s, k, v, std::byte{0xff});
    for (Isa isa : LevelsToTest()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      ASSERT_EQ(Of(clean, s, q, 1, 3), Of(poisoned, s, q, 1, 3)) << IsaName(isa) << " " << tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, Probabilities, ::testing::ValuesIn(testing::kFormatPairs),
                         testing::NameOfPair);

}  // namespace
}  // namespace kvant
