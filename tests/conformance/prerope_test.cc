// Keys before RoPE and the side-band: every pairing and part of a head that turns, what attention
// refuses, and what both are for: the figures of KVQuant (arXiv 2401.18079).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention_world.h"
#include "kvant/codec.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

using testing::AttendHead;
using testing::HeadSetup;
using testing::PagedHead;
using testing::RandomValues;
using testing::ReferenceAttention;

constexpr int kRatio = 3;

Format Parse(const std::string& spec, Side side) { return ParseFormat(spec, side).value(); }

HeadSetup SetupOf(const std::string& k, const std::string& v, int head_dim, int tokens) {
  return {Parse(k, Side::kK), Parse(v, Side::kV), head_dim, tokens, 4, 1};
}

// Largest difference from f64 attention over the decoded values.
double WorstError(const HeadSetup& s, const PagedHead& head, const std::vector<float>& q,
                  const std::vector<float>& out) {
  double worst = 0;
  const int d = s.head_dim;
  for (int r = 0; r < kRatio; ++r) {
    const auto want = ReferenceAttention(q.data() + r * d, head.seen_k, head.seen_v, d, s.tokens,
                                         1.0 / std::sqrt(d));
    for (int c = 0; c < d; ++c) {
      worst = std::max(worst, std::fabs(static_cast<double>(out[static_cast<size_t>(r * d + c)]) -
                                        want[static_cast<size_t>(c)]));
    }
  }
  return worst;
}

// V in f16, so that only K's f32 roundings are left: tables, turns and a dot of 128 terms of size
// 1 stay below 2e-5 of a score, and an output moves by at most that times the spread of V.
TEST(PreRope, EveryPairingAndPartOfAHeadMatchesF64OnEveryLevel) {
  const auto pool = std::move(ThreadPool::Create(2).value());
  const Isa before = ActiveIsa();
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
    for (const auto& [head_dim, turning] :
         {std::pair{64, 64}, {64, 32}, {80, 80}, {100, 20}, {128, 96}, {72, 2}}) {
      HeadSetup s = SetupOf("int4:channel:g64:min:prerope", "f16", head_dim, 777);
      s.rope = {pairs, RopeFrequencies(10000, turning)};
      const size_t values = static_cast<size_t>(s.tokens) * head_dim;
      const PagedHead head(s, RandomValues(values, 1), RandomValues(values, 2), std::byte{0xff});
      const auto q = RandomValues(static_cast<size_t>(kRatio) * head_dim, 3);
      for (const Isa isa : AvailableIsas()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        EXPECT_LT(WorstError(s, head, q, AttendHead(*pool, head, s, q, 1, kRatio)), 1e-4)
            << IsaName(isa) << " head " << head_dim << " turning " << turning;
      }
      ASSERT_TRUE(SetActiveIsa(before).ok());
    }
  }
}

TEST(PreRope, AViewWithoutTablesOrWithPagesInBetweenIsRefused) {
  const auto pool = std::move(ThreadPool::Create(1).value());
  const HeadSetup s = SetupOf("int4:prerope", "f16", 64, 400);
  const PagedHead head(s, RandomValues(400 * 64, 1), RandomValues(400 * 64, 2));
  const auto q = RandomValues(64, 3);
  std::vector<float> out(64);
  AttentionWorkspace workspace;
  const auto attend = [&](const auto& change) {
    AttentionTask task;
    task.view = head.View(399 / 64);
    task.first_position = 399;
    task.queries = 1;
    task.q = q.data();
    task.out = out.data();
    change(task.view);
    return Attend(*pool, std::span(&task, 1), 64, 0.125f, workspace);
  };
  EXPECT_TRUE(attend([](HeadView&) {}).ok());
  const Status bare = attend([](HeadView& view) { view.rope = {}; });
  EXPECT_EQ(bare.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bare.message().find("no RoPE tables"), std::string::npos) << bare.message();
  const Status moved = attend([](HeadView& view) { view.runs[1].first_position += 7; });
  EXPECT_EQ(moved.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(moved.message().find("position 7"), std::string::npos) << moved.message();
}

// One value in a hundred twenty times as large: kernels on every level against f64, within the
// rounding of queries and probabilities to 8 bits (attention_test.cc), and the side-band keeps the
// format's own error down.
TEST(SideBand, SpikesReachScoresAndOutputsOnEveryLevel) {
  const auto pool = std::move(ThreadPool::Create(2).value());
  const Isa before = ActiveIsa();
  const auto spiky = [](uint32_t seed) {
    std::vector<float> x = RandomValues(700 * 64, seed);
    for (size_t i = seed * 7; i < x.size(); i += 97) x[i] *= 20;
    return x;
  };
  const auto k = spiky(1), v = spiky(2);
  const auto q = RandomValues(kRatio * 64, 3, 0.3f);
  for (const char* spec :
       {"int4:channel:g64:min:prerope", "int4:channel:g64:min", "int4:token:min"}) {
    for (const char* v_spec : {"int4:token:min", "int4:channel:g64:min"}) {
      double format_error[2] = {};
      for (const int slots : {0, 4}) {
        const std::string band = slots == 0 ? "" : ":out" + std::to_string(slots);
        const HeadSetup s = SetupOf(spec + band, v_spec + band, 64, 700);
        const PagedHead head(s, k, v);
        for (size_t i = 0; i < k.size(); ++i) {
          format_error[slots / 4] +=
              std::pow(head.seen_k[i] - k[i], 2) + std::pow(head.seen_v[i] - v[i], 2);
        }
        if (slots == 0) continue;
        for (const Isa isa : AvailableIsas()) {
          ASSERT_TRUE(SetActiveIsa(isa).ok());
          EXPECT_LT(WorstError(s, head, q, AttendHead(*pool, head, s, q, 1, kRatio)), 0.1)
              << IsaName(isa) << " " << spec << " " << v_spec;
        }
        ASSERT_TRUE(SetActiveIsa(before).ok());
      }
      EXPECT_LT(format_error[1], 0.2 * format_error[0]) << spec << " " << v_spec;
    }
  }
}

struct Rms {
  double all = 0, hot = 0;
};

// Codes every channel's tokens as one group.
Rms CodingError(const std::vector<float>& k, int tokens, int dim, const Format& format) {
  Rms rms;
  for (int c = 0; c < dim; ++c) {
    std::vector<float> channel;
    for (int t = 0; t < tokens; ++t) channel.push_back(k[static_cast<size_t>(t * dim + c)]);
    const auto decoded = EncodeGroup(format, channel).value().decoded;
    double square = 0;
    for (int t = 0; t < tokens; ++t) {
      square += std::pow(decoded[static_cast<size_t>(t)] - channel[static_cast<size_t>(t)], 2);
    }
    rms.all += square / (tokens * dim);
    if (c == 5 || c == 69) rms.hot += square / (tokens * 2);
  }
  return {std::sqrt(rms.all), std::sqrt(rms.hot)};
}

// 512 tokens of N(0, 1), channels 5 and 69 (one pair) with means 8 and -6. The figures were
// computed from other random numbers: a range of 512 normal values moves by 5 % from channel to
// channel, its mean over 128 of them by .5 %, over the two hot ones by 4 %; the bounds are twice
// that. After RoPE the hot channels have a fifth of the square, so all move by 2 % more.
TEST(PreRope, ChannelsWithAMeanLoseAThirdOrLessBeforeRope) {
  constexpr int kTokens = 512, kDim = 128;
  std::vector<float> before = RandomValues(kTokens * kDim, 5);
  std::vector<float> after(before.size());
  const std::vector<double> frequencies = RopeFrequencies(10000, kDim);
  for (int t = 0; t < kTokens; ++t) {
    float* const k = before.data() + t * kDim;
    k[5] += 8;
    k[69] -= 6;
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = t * frequencies[static_cast<size_t>(i)], a = k[i], b = k[i + kDim / 2];
      after[static_cast<size_t>(t * kDim + i)] =
          static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      after[static_cast<size_t>(t * kDim + i + kDim / 2)] =
          static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
    }
  }
  const struct {
    int bits;
    double before, after, hot_before, hot_after;
  } computed[] = {
      {4, .117, .129, .113, .456}, {3, .249, .277, .247, .990}, {2, .586, .659, .574, 2.489}};
  for (const auto& want : computed) {
    const Format format = Parse("int" + std::to_string(want.bits) + ":channel:g256:min", Side::kK);
    const Rms a = CodingError(before, kTokens, kDim, format);
    const Rms b = CodingError(after, kTokens, kDim, format);
    EXPECT_NEAR(a.all, want.before, 0.01 * want.before) << want.bits;
    EXPECT_NEAR(b.all, want.after, 0.03 * want.after) << want.bits;
    EXPECT_NEAR(a.hot, want.hot_before, 0.08 * want.hot_before) << want.bits;
    EXPECT_NEAR(b.hot, want.hot_after, 0.08 * want.hot_after) << want.bits;
    EXPECT_GT(b.hot / a.hot, 3) << want.bits;
  }
}

}  // namespace
}  // namespace kvant
