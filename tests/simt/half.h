// Arithmetic on pairs of halves, the lower in the low 16 bits, each result rounded once to nearest
// even. Sums and products may pass through float: 24 bits are more than 2 * 11 + 1, so the second
// rounding changes nothing. A fused multiply-add may not (its exact value has more bits), so that
// one passes through double with the sum rounded to odd.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/float16.h"

namespace kvant::simt {

inline float LowHalf(uint32_t halves) { return F16ToF32(static_cast<uint16_t>(halves)); }
inline float HighHalf(uint32_t halves) { return F16ToF32(static_cast<uint16_t>(halves >> 16)); }
inline uint32_t PackHalves(float low, float high) {
  return F32ToF16(low) | (static_cast<uint32_t>(F32ToF16(high)) << 16);
}

// a + b rounded to odd: to the neighbour whose last bit is 1 where the sum is not exact.
inline double AddToOdd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// double -> float to odd: what is cut off stays visible in the last bit, for F32ToF16 to round.
inline float FloatToOdd(double x) {
  const float nearest = static_cast<float>(x);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == x) return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if ((bits & 1) != 0) return nearest;
  return std::bit_cast<float>(std::fabs(static_cast<double>(nearest)) < std::fabs(x) ? bits + 1
                                                                                     : bits - 1);
}

inline uint16_t HalfFma(uint16_t a, uint16_t b, uint16_t c) {
  const double product = static_cast<double>(F16ToF32(a)) * static_cast<double>(F16ToF32(b));
  return F32ToF16(FloatToOdd(AddToOdd(product, static_cast<double>(F16ToF32(c)))));
}

inline uint32_t HalfFma2(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t low =
      HalfFma(static_cast<uint16_t>(a), static_cast<uint16_t>(b), static_cast<uint16_t>(c));
  const uint32_t high = HalfFma(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16),
                                static_cast<uint16_t>(c >> 16));
  return low | (high << 16);
}
inline uint32_t HalfMul2(uint32_t a, uint32_t b) {
  return PackHalves(LowHalf(a) * LowHalf(b), HighHalf(a) * HighHalf(b));
}
inline uint32_t HalfAdd2(uint32_t a, uint32_t b) {
  return PackHalves(LowHalf(a) + LowHalf(b), HighHalf(a) + HighHalf(b));
}
inline uint32_t HalfSub2(uint32_t a, uint32_t b) {
  return PackHalves(LowHalf(a) - LowHalf(b), HighHalf(a) - HighHalf(b));
}

}  // namespace kvant::simt
