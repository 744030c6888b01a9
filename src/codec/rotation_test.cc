#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <algorithm>
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
    Rotate({.multiplier = to_k.data(), .hadamard = true}, d, k.data());
    Rotate({.multiplier = to_q.data(), .hadamard = true}, d, q.data());
    EXPECT_NEAR(Dot(k, q), want, 1e-4 * d) << d;
    const auto signs = Signs(d);
    Rotate({.multiplier = signs.data(), .hadamard = true}, d, v.data());
    EXPECT_NEAR(Dot(v, v), square, 1e-5 * square) << d;
  }
}

TEST(Rotation, BackIsTheInverse) {
  for (const int d : kHeadDims) {
    const auto x = Normal(d, 3), signs = Signs(d);
    auto y = x;
    const Rotation rotation{.multiplier = signs.data(), .hadamard = true};
    Rotate(rotation, d, y.data());
    EXPECT_NE(x, y);
    RotateBack(rotation, d, y.data());
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
    const auto signs = Signs(80);
    Rotate({.multiplier = signs.data(), .hadamard = true}, 80, x.data());
    const float share = channel < 64 ? 1.0f : 2.0f;  // blocks of 64 and 16
    for (int c = 0; c < 80; ++c) {
      const bool same_block = (c < 64) == (channel < 64);
      EXPECT_FLOAT_EQ(std::fabs(x[static_cast<size_t>(c)]), same_block ? share : 0.0f);
    }
  }
}

// A loaded rotation: x M forth and M x back, with factors in front of it.
TEST(Rotation, OfAMatrixIsItsProductAndBackIsTheInverse) {
  for (const int d : kHeadDims) {
    const auto n = static_cast<size_t>(d);
    std::vector<float> matrix(n * n), factors(n, -1.0f);
    for (size_t i = 0; i < n; ++i) {  // row i of the transform: orthonormal
      matrix[i * n + i] = 1;
      Rotate({.hadamard = true}, d, matrix.data() + i * n);
    }
    std::reverse(matrix.begin(), matrix.begin() + static_cast<std::ptrdiff_t>(n));  // of row 0
    const auto x = Normal(d, 4);
    auto y = x;
    const Rotation rotation{.multiplier = factors.data(), .matrix = matrix.data()};
    EXPECT_FALSE(rotation.is_identity());
    Rotate(rotation, d, y.data());
    for (size_t j = 0; j < n; ++j) {
      double want = 0;
      for (size_t i = 0; i < n; ++i) want -= static_cast<double>(x[i]) * matrix[i * n + j];
      EXPECT_NEAR(y[j], want, 1e-5) << d;
    }
    auto back = x;
    RotateBack(rotation, d, back.data());
    for (size_t i = 0; i < n; ++i) {
      double want = 0;
      for (size_t j = 0; j < n; ++j) want -= static_cast<double>(x[j]) * matrix[i * n + j];
      EXPECT_NEAR(back[i], want, 1e-5) << d;
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
