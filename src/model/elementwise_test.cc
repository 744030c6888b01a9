// The small functions of a forward pass against double: elementwise.h, rope.h.
#include "model/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kvant/isa.h"
#include "kvant/sampler.h"
#include "model/rope.h"

namespace kvant {
namespace {

std::vector<float> RandomFloats(size_t n, float spread, uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = spread * static_cast<float>(2 * random.NextUnit() - 1);
  return values;
}

TEST(RmsNorm, AgreesWithDoubleForEveryLength) {
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 33, 576, 2049}) {
    const auto x = RandomFloats(static_cast<size_t>(n), 3, 1);
    const auto weight = RandomFloats(static_cast<size_t>(n), 2, 2);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    std::vector<float> out(static_cast<size_t>(n));
    RmsNorm(x.data(), weight.data(), n, 1e-5f, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_NEAR(out[i], x[i] * scale * weight[i], 2e-6) << n << " " << i;
    }
  }
}

TEST(RmsNorm, AZeroRowStaysZero) {
  const std::vector<float> x(20, 0.0f), weight(20, 1.0f);
  std::vector<float> out(20, 9.0f);
  RmsNorm(x.data(), weight.data(), 20, 1e-5f, out.data());
  EXPECT_EQ(out, x);
}

TEST(Silu, AgreesWithDoubleOverItsWholeRange) {
  std::vector<float> gate, up;
  for (double x = -85; x < 85; x += 0.00317) gate.push_back(static_cast<float>(x));
  up.assign(gate.size(), 1.0f);
  std::vector<float> out = gate;
  SiluTimes(up.data(), static_cast<int64_t>(out.size()), out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const double x = gate[i], expected = x / (1 + std::exp(-x));
    ASSERT_NEAR(out[i], expected, std::abs(expected) * 3e-7 + 1e-44) << x;
  }
}

TEST(Silu, ExtremesAreQuietAndFaultsStayVisible) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> out = {0.0f, -0.0f, 1e30f, -1e30f, -200.0f, std::nanf(""), kInf};
  const std::vector<float> up(out.size(), 2.0f);
  SiluTimes(up.data(), static_cast<int64_t>(out.size()), out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 2e30f);
  EXPECT_LE(std::abs(out[3]), 1e-6f);
  EXPECT_LE(std::abs(out[4]), 1e-30f);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_EQ(out[6], kInf);
}

TEST(Rope, RotatesNeighboursByTheirAngleAtDepth) {
  RopeTable table(MakeRope({.base = 100000, .position_scale = 2}, 8, RopePairs::kNeighbours, {}),
                  2);
  for (const int64_t position : {0, 1, 511, 131071}) {
    table.Fill(1, position);
    std::vector<float> x = RandomFloats(12, 1, 5);
    const std::vector<float> before = x;
    table.Rotate(1, x.data());
    for (size_t i = 0; i < 4; ++i) {
      const double angle =
          static_cast<double>(position) / 2 * std::pow(100000.0, -static_cast<double>(i) / 4);
      const double c = std::cos(angle), s = std::sin(angle);
      EXPECT_NEAR(x[2 * i], before[2 * i] * c - before[2 * i + 1] * s, 3e-7) << position;
      EXPECT_NEAR(x[2 * i + 1], before[2 * i] * s + before[2 * i + 1] * c, 3e-7) << position;
    }
    for (size_t i = 8; i < 12; ++i) EXPECT_EQ(x[i], before[i]) << "not a rotating channel";
  }
}

// Compilers contract and reorder when they may: a fused multiply-add on one level would show here.
TEST(Elementwise, EveryIsaGivesTheSameBits) {
  const Isa before = ActiveIsa();
  for (const size_t n : {1u, 7u, 16u, 33u, 4099u}) {
    const auto x = RandomFloats(n, 9, 7), y = RandomFloats(n, 3, 8);
    std::vector<float> expected;
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      const int64_t count = static_cast<int64_t>(n);
      std::vector<float> all, out(n);
      RmsNorm(x.data(), y.data(), count, 1e-5f, out.data());
      all.insert(all.end(), out.begin(), out.end());
      out = x;
      SiluTimes(y.data(), count, out.data());
      AddTo(y.data(), count, out.data());
      all.insert(all.end(), out.begin(), out.end());
      if (expected.empty()) expected = all;
      EXPECT_EQ(all, expected) << IsaName(isa) << " " << n;
    }
  }
  EXPECT_TRUE(SetActiveIsa(before).ok());
}

}  // namespace
}  // namespace kvant
