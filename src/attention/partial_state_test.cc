// The algebra of partial states, at every ISA level.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/kernels.h"

namespace kvant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A state that owns its weighted sums, of 16 lanes.
struct Owned {
  std::vector<float> lanes = std::vector<float>(16, 0.0f);
  PartialState state{-kInf, 0.0f, nullptr};

  Owned() { state.weighted = lanes.data(); }
  Owned(const Owned& o) : lanes(o.lanes), state(o.state) { state.weighted = lanes.data(); }
  // Natural-log scores and values of two channels.
  Owned(const std::vector<float>& scores, const std::vector<std::vector<float>>& v) : Owned() {
    const float log2e = 1.44269504f;
    for (float s : scores) state.max = std::max(state.max, s * log2e);
    for (size_t t = 0; t < scores.size(); ++t) {
      const float p = std::exp2(scores[t] * log2e - state.max);
      state.sum += p;
      for (size_t c = 0; c < v[t].size(); ++c) lanes[c] += p * v[t][c];
    }
  }
};

class EveryLevel : public ::testing::TestWithParam<Isa> {
 protected:
  const AttentionKernels& kernels() const { return AttentionKernelsFor(GetParam()); }
  std::vector<float> Finish(const Owned& o) const {
    std::vector<float> out(2);
    kernels().finish(o.state, 2, out.data());
    return out;
  }
};

// Scores 1 2 3 -1 in two halves: each half, and the halves merged, against worked numbers.
TEST_P(EveryLevel, MergedHalvesEqualTheWhole) {
  Owned a({1, 2}, {{1, 0}, {0, 1}});
  const Owned b({3, -1}, {{1, 1}, {2, -1}});
  EXPECT_NEAR(Finish(a)[0], 0.268941, 1e-6);
  EXPECT_NEAR(Finish(b)[1], 0.964028, 1e-6);
  kernels().merge(a.state, b.state, 16);
  EXPECT_NEAR(Finish(a)[0], 0.770255, 2e-6);
  EXPECT_NEAR(Finish(a)[1], 0.886978, 2e-6);
  EXPECT_NEAR(a.state.max + std::log2(a.state.sum), 4.933608, 1e-5);  // log-sum-exp, base 2
}

TEST_P(EveryLevel, MergingTheEmptyStateChangesNothing) {
  const Owned whole({1, 2, 3}, {{1, 0}, {0, 1}, {5, -7}});
  Owned left(whole), right, both;
  kernels().merge(left.state, Owned().state, 16);
  kernels().merge(right.state, whole.state, 16);
  EXPECT_EQ(left.lanes, whole.lanes);
  EXPECT_EQ(right.lanes, whole.lanes);
  EXPECT_EQ(left.state.sum, whole.state.sum);
  EXPECT_EQ(right.state.sum, whole.state.sum);
  EXPECT_EQ(right.state.max, whole.state.max);
  kernels().merge(both.state, Owned().state, 16);
  EXPECT_EQ(both.state.sum, 0.0f);  // and not (-inf) - (-inf)
  for (float x : both.lanes) EXPECT_EQ(x, 0.0f);
}

TEST_P(EveryLevel, FarApartMaximaStayFinite) {
  Owned low({-90000}, {{3, 3}});
  const Owned high({90000}, {{4, 5}});
  kernels().merge(low.state, high.state, 16);
  EXPECT_FLOAT_EQ(Finish(low)[0], 4.0f);
  EXPECT_FLOAT_EQ(Finish(low)[1], 5.0f);
}

// At any address and of any count; 2^x is good to 2.2e-7.
TEST_P(EveryLevel, ScoresBecomeProbabilitiesAndNothingBesideThem) {
  const PartialState row{3.5f, 10.0f, nullptr};
  for (int64_t count = 1; count < 70; ++count) {
    for (const int64_t first : {0, 1, 5}) {
      std::vector<float> scores(80, -7.0f);
      for (int64_t i = 0; i < count; ++i)
        scores[static_cast<size_t>(first + i)] = 3.5f - 0.3f * static_cast<float>(i);
      const std::vector<float> before = scores;
      kernels().weigh(row, count, scores.data() + first);
      for (int64_t i = 0; i < 80; ++i) {
        const float score = before[static_cast<size_t>(i)], p = scores[static_cast<size_t>(i)];
        if (i < first || i >= first + count) {
          ASSERT_EQ(p, score) << count << " from " << first << ", at " << i;
        } else {
          const double want = std::exp2(static_cast<double>(score) - 3.5) / 10;
          ASSERT_NEAR(p, want, 4e-7 * want) << count << " from " << first << ", at " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryLevel, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& each) { return std::string(IsaName(each.param)); });

}  // namespace
}  // namespace kvant
