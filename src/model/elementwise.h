// The small functions of a forward pass, one row at a time. Every ISA level gives the same bits:
// all sums have one fixed order, and none of them calls libm.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"

namespace kvant {

// Rounded up, so that what follows is aligned (kAlignment).
constexpr int64_t PaddedFloats(int64_t count) {
  constexpr int64_t kPad = kAlignment / sizeof(float);
  return (count + kPad - 1) / kPad * kPad;
}

// x[i] += delta[i].
void AddTo(const float* delta, int64_t n, float* x);

// out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i]. out may be x.
void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out);

// gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)). Relative error of silu below 3e-7
// wherever it is a normal number.
void SiluTimes(const float* up, int64_t n, float* gate);

// The same with gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
void GeluTimes(const float* up, int64_t n, float* gate);

// x[i] *= scale.
void ScaleBy(float scale, int64_t n, float* x);

}  // namespace kvant
