// RMS norm of rows, and the sum of squares behind it in an order that is always the same.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>

namespace kvant {

// out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i]. out may be x.
void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out);

// x[i] += delta[i].
void AddTo(const float* delta, int64_t n, float* x);

}  // namespace kvant
