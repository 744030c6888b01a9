#include "matmul/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kvant/isa.h"
#include "matmul/matmul_testing.h"

namespace kvant {
namespace {

using matmul_testing::MakePool;
using matmul_testing::RandomFloats;

class ActivationsTest : public testing::Test {
 protected:
  ~ActivationsTest() override { EXPECT_TRUE(SetActiveIsa(before_).ok()); }

  // The groups of one token.
  std::vector<ActivationGroup> Quantize(const std::vector<float>& x) {
    auto a = Activations::Create(1, static_cast<int64_t>(x.size()), ActivationMode::kInt8);
    EXPECT_TRUE(a.ok());
    a->Set(*pool_, x.data(), static_cast<int64_t>(x.size()), 1, static_cast<int64_t>(x.size()));
    return {a->groups(0), a->groups(0) + a->groups_per_token()};
  }

  const Isa before_ = ActiveIsa();
  const std::unique_ptr<ThreadPool> pool_ = MakePool(2);
};

TEST_F(ActivationsTest, RoundsHalfToEvenAndSumsWhatItStored) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // scale 1
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[17] = -126.6f;
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    const ActivationGroup g = Quantize(x)[0];
    EXPECT_EQ(g.scale, 1.0f);
    EXPECT_EQ(g.codes[0], 127);
    EXPECT_EQ(g.codes[1], 0);
    EXPECT_EQ(g.codes[2], 2);
    EXPECT_EQ(g.codes[3], -2);
    EXPECT_EQ(g.codes[17], -127);
    EXPECT_EQ(g.low_sum, 127);
    EXPECT_EQ(g.sum, 0);
    EXPECT_EQ(g.scaled_sum, 0.0f);
  }
}

TEST_F(ActivationsTest, ErrorIsAtMostHalfAStep) {
  const std::vector<float> x = RandomFloats(320, 1);
  const auto groups = Quantize(x);
  for (int i = 0; i < 320; ++i) {
    const ActivationGroup& g = groups[i / 32];
    const double back = static_cast<double>(g.scale) * g.codes[i % 32];
    // Half a step, and the roundings of 1 / scale and of its product (127 * 2^-24 steps each).
    EXPECT_LE(std::abs(back - x[i]), g.scale * (0.5 + 2e-5)) << i;
  }
}

TEST_F(ActivationsTest, EveryIsaWritesTheSameBytes) {
  for (const int64_t cols : {1, 15, 16, 31, 32, 33, 48, 576}) {
    std::vector<float> x = RandomFloats(cols, 2);
    for (int64_t i = 0; i < cols; ++i) x[i] *= std::ldexp(1.0f, static_cast<int>(i % 60) - 30);
    ASSERT_TRUE(SetActiveIsa(Isa::kScalar).ok());
    const auto expected = Quantize(x);
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      const auto got = Quantize(x);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(got[0])), 0)
          << IsaName(isa) << " cols " << cols;
    }
  }
}

// Rounding down would push the largest input past 127 steps.
TEST_F(ActivationsTest, ScaleHasFiveSignificantBitsAndHoldsTheLargestInput) {
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const float amax : {1.0f, 126.99f, 127.0f, 127.01f, 134.9f, 135.0f, 251.0f, 3e-20f}) {
      std::vector<float> x(32, -amax);
      x[5] = amax;
      const ActivationGroup g = Quantize(x)[0];
      int exponent;
      const float significant = std::frexp(g.scale, &exponent) * 32;
      EXPECT_EQ(significant, std::floor(significant)) << amax;
      EXPECT_GE(g.scale * 127.0f, amax);
      EXPECT_LT(g.scale * 127.0f * 15.9f / 17.0f, amax) << "not the next one up";
      const int expected = static_cast<int>(std::lrint(amax / g.scale));
      for (int i = 0; i < 32; ++i) EXPECT_EQ(g.codes[i], i == 5 ? expected : -expected) << amax;
      EXPECT_EQ(g.sum, -30 * expected) << amax;
      EXPECT_EQ(g.low_sum, -14 * expected) << amax;
    }
  }
}

TEST_F(ActivationsTest, ExtremeMagnitudesGiveANormalScaleOrZero) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float normal = std::numeric_limits<float>::min();
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const float amax : {0.0f, -0.0f, tiny, 190 * tiny, normal, 100 * normal, 127 * normal,
                             128 * normal, 1e38f, std::numeric_limits<float>::max()}) {
      std::vector<float> x(32, -amax);
      x[5] = amax;
      const ActivationGroup g = Quantize(x)[0];
      EXPECT_EQ(g.scale == 0.0f, amax <= 100 * normal) << amax;
      EXPECT_TRUE(g.scale == 0.0f || g.scale >= normal) << amax;
      EXPECT_EQ(g.codes[5] == 0, g.scale == 0.0f) << amax;
      EXPECT_EQ(g.sum, -30 * g.codes[5]) << amax;
    }
  }
}

TEST_F(ActivationsTest, ValueThatIsNotFiniteShowsInTheScaleOfItsGroupOnly) {
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 127.0f);
      x[40] = bad;
      const auto groups = Quantize(x);
      EXPECT_EQ(groups[0].codes[0], 127);
      EXPECT_TRUE(std::isnan(groups[1].scale));
      EXPECT_TRUE(std::isnan(groups[1].scaled_sum));
      EXPECT_EQ(groups[1].codes[0], 0);
      EXPECT_EQ(groups[1].sum, 0);
    }
  }
}

TEST_F(ActivationsTest, ManyTokensMatchOneAtATimeWhateverTheStride) {
  const int64_t tokens = 50, cols = 600, stride = 611;  // enough inputs to be shared by threads
  const std::vector<float> x = RandomFloats(tokens * stride, 3);
  auto a = Activations::Create(tokens, cols, ActivationMode::kInt8);
  ASSERT_TRUE(a.ok());
  a->Set(*pool_, x.data(), stride, tokens, cols);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto one = Quantize({x.data() + t * stride, x.data() + t * stride + cols});
    EXPECT_EQ(std::memcmp(one.data(), a->groups(t), one.size() * sizeof(one[0])), 0) << t;
  }
}

TEST_F(ActivationsTest, ImpossibleSizesAreRefused) {
  EXPECT_EQ(Activations::Create(0, 32, ActivationMode::kInt8).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Activations::Create(1, 0, ActivationMode::kFloat).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvant
