// Half and bfloat16 stored as uint16_t, converted without compiler support (clang 14 has no
// _Float16 on x86). Scalar and exact: the vector files use F16C/AVX-512 and must agree bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace kvant {

// IEEE binary16 -> binary32, exact. NaN payloads keep their top bits and come back quiet, as the
// hardware conversion does.
constexpr float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24, which binary32 holds as a normal number.
  const int shift = std::countl_zero(mantissa) - 21;  // moves the leading bit to position 10
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) |
                              (((mantissa << shift) & 0x3ffu) << 13));
}

// binary32 -> binary16, round to nearest even; overflow gives infinity, NaN stays a quiet NaN.
constexpr uint16_t F32ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude < 0x33000001u) return sign;                                    // at most 2^-25
  uint32_t kept, rest, half;
  if (magnitude < 0x38800000u) {  // result is subnormal (or the smallest normal after rounding)
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    kept = mantissa >> shift;
    rest = mantissa & ((1u << shift) - 1);
    half = 1u << (shift - 1);
  } else {
    kept = (magnitude - 0x38000000u) >> 13;
    rest = magnitude & 0x1fffu;
    half = 0x1000u;
  }
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  return static_cast<uint16_t>(sign | kept);
}

// bfloat16 is the upper half of binary32.
constexpr float Bf16ToF32(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

// Round to nearest even; NaN stays a quiet NaN.
constexpr uint16_t F32ToBf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline constexpr float kF16Max = 65504.0f;

}  // namespace kvant
