// The 8-bit floats of the OCP standard as bytes. E4M3: 1 sign, 4 exponent and 3 mantissa bits, bias
// 7, no infinity, NaN 0x7f and 0xff. E5M2: the high byte of an f16. Scalar; to a byte by rounding
// half to even and saturating, so that a finite number never becomes a NaN or an infinity.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float16.h"

namespace kvant {

inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kE5M2Max = 57344.0f;

// An f16 of 2^-8 times the value has the same fields, but for its sign and its NaN.
constexpr float E4M3ToF32(uint8_t byte) {
  const auto half = static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7);
  const bool is_nan = (byte & 0x7f) == 0x7f;
  return is_nan ? std::bit_cast<float>(0x7fc00000u) : 256.0f * F16ToF32(half);
}
constexpr float E5M2ToF32(uint8_t byte) { return F16ToF32(static_cast<uint16_t>(byte << 8)); }

// f32 -> a float of kMantissa bits of mantissa and the given bias, its last finite code `last`.
// REQUIRES: value is finite.
template <int kMantissa, int kBias, uint8_t kLast>
constexpr uint8_t F32ToFloat8(float value) {
  constexpr uint32_t kShift = 23 - kMantissa;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude < static_cast<uint32_t>(128 - kBias) << 23) {
    // Subnormal (or the smallest normal after rounding). Added to a power of two whose last bit is
    // their unit, the processor rounds it.
    constexpr uint32_t kUnit = static_cast<uint32_t>(127 + 23 + 1 - kBias - kMantissa) << 23;
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kUnit)) -
           kUnit;
  } else {
    const uint32_t odd = magnitude >> kShift & 1;
    const uint32_t rounded = (magnitude + (1u << (kShift - 1)) - 1 + odd) >> kShift;
    code = rounded - (static_cast<uint32_t>(127 - kBias) << kMantissa);
    if (code > kLast) code = kLast;
  }
  return static_cast<uint8_t>(code | bits >> 31 << 7);
}
constexpr uint8_t F32ToE4M3(float value) { return F32ToFloat8<3, 7, 0x7e>(value); }
constexpr uint8_t F32ToE5M2(float value) { return F32ToFloat8<2, 15, 0x7b>(value); }

}  // namespace kvant
