#include "calibrate/eigenvectors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvant {
namespace {

TEST(Eigenvectors, MakeASymmetricMatrixDiagonal) {
  constexpr size_t kN = 20;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> a(kN * kN);
  for (size_t i = 0; i < kN; ++i) {
    for (size_t j = 0; j <= i; ++j) a[i * kN + j] = a[j * kN + i] = normal(random);
  }
  const std::vector<double> u = Eigenvectors(a, kN);
  for (size_t i = 0; i < kN; ++i) {
    for (size_t j = 0; j < kN; ++j) {
      double dot = 0, product = 0;  // of U^T U, U^T A U
      for (size_t p = 0; p < kN; ++p) {
        dot += u[p * kN + i] * u[p * kN + j];
        for (size_t q = 0; q < kN; ++q) product += u[p * kN + i] * a[p * kN + q] * u[q * kN + j];
      }
      EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-12);
      if (i != j) {
        EXPECT_NEAR(product, 0, 1e-10);
      }
    }
  }
}

TEST(Eigenvectors, OfADiagonalMatrixAreTheAxes) {
  EXPECT_EQ(Eigenvectors({2, 0, 0, 5}, 2), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(Eigenvectors({0, 0, 0, 0}, 2), (std::vector<double>{1, 0, 0, 1}));
}

}  // namespace
}  // namespace kvant
