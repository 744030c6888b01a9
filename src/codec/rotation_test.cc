#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvant {
namespace {

constexpr int kHeadDims[] = {4, 12, 64, 72, 80, 96, 100, 112, 128, 192, 256, 576};

std::vector<float> Normal(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

std::vector<float> Signs(int head_dim) {
  std::vector<float> signs(static_cast<size_t>(head_dim));
  for (int c = 0; c < head_dim; ++c) signs[static_cast<size_t>(c)] = RotationSign(c);
  return signs;
}

TEST(Rotation, KeepsDotsAndLengths) {
  for (const int d : kHeadDims) {
    auto k = Normal(d, 1), q = Normal(d, 2);
    const double want = Dot(k, q), square = Dot(k, k);
    std::vector<float> to_k = Signs(d), to_q = to_k;
    for (int c = 0; c < d; ++c) {
      const float balance = std::exp2(static_cast<float>(c % 7 - 3));
      to_k[static_cast<size_t>(c)] *= balance;
      to_q[static_cast<size_t>(c)] /= balance;
    }
    auto v = k;
    Rotate(to_k.data(), d, k.data());
    Rotate(to_q.data(), d, q.data());
    EXPECT_NEAR(Dot(k, q), want, 1e-4 * d) << d;
    Rotate(Signs(d).data(), d, v.data());
    EXPECT_NEAR(Dot(v, v), square, 1e-5 * square) << d;
  }
}

TEST(Rotation, BackIsTheInverse) {
  for (const int d : kHeadDims) {
    const auto x = Normal(d, 3), signs = Signs(d);
    auto y = x;
    Rotate(signs.data(), d, y.data());
    EXPECT_NE(x, y);
    RotateBack(signs.data(), d, y.data());
    for (int c = 0; c < d; ++c) {
      EXPECT_NEAR(y[static_cast<size_t>(c)], x[static_cast<size_t>(c)], 2e-6) << d;
    }
  }
}

// A spike spreads over its block: no channel keeps more than its share.
TEST(Rotation, SpreadsASpike) {
  for (const int channel : {0, 63, 64, 79}) {
    std::vector<float> x(80, 0.0f);
    x[static_cast<size_t>(channel)] = 8.0f;
    Rotate(Signs(80).data(), 80, x.data());
    const float share = channel < 64 ? 1.0f : 2.0f;  // blocks of 64 and 16
    for (int c = 0; c < 80; ++c) {
      const bool same_block = (c < 64) == (channel < 64);
      EXPECT_FLOAT_EQ(std::fabs(x[static_cast<size_t>(c)]), same_block ? share : 0.0f);
    }
  }
}

TEST(Rotation, SignsAreMixed) {
  int negative = 0;
  for (int c = 0; c < 64; ++c) negative += RotationSign(c) < 0 ? 1 : 0;
  EXPECT_GT(negative, 20);
  EXPECT_LT(negative, 44);
}

}  // namespace
}  // namespace kvant
