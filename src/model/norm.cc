#include "model/norm.h"

#include <cmath>

namespace kvant {
namespace {

constexpr int kLanes = 16;  // partial sums: enough for the compiler to vectorise, in a fixed order

float SumOfSquares(const float* x, int64_t n) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += x[i] * x[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

}  // namespace

void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void AddTo(const float* delta, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] += delta[i];
}

}  // namespace kvant
