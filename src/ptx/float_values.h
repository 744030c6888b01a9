// Floats of PTX as raw bits, and the rules that every float instruction shares: .ftz, .sat and the
// canonical NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/float16.h"
#include "ptx/half_math.h"
#include "ptx/instruction.h"

namespace kvant::ptx {

inline constexpr uint32_t kF32Nan = 0x7fffffff;

inline float BitsToF32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline double BitsToF64(uint64_t bits) { return std::bit_cast<double>(bits); }

// A subnormal keeps nothing but its sign.
inline float FlushSubnormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// .sat: to [0, 1], a NaN to 0.
inline float Saturate(float value) { return value > 0.0f ? std::fmin(value, 1.0f) : 0.0f; }

// A source as .ftz would have it.
inline float F32Source(const Instruction& op, uint64_t bits) {
  const float value = BitsToF32(bits);
  return op.Has(Names("ftz")) ? FlushSubnormal(value) : value;
}

inline uint64_t F32Result(const Instruction& op, float value) {
  if (op.Has(Names("sat"))) value = Saturate(value);
  if (op.Has(Names("ftz"))) value = FlushSubnormal(value);
  return std::isnan(value) ? kF32Nan : std::bit_cast<uint32_t>(value);
}

inline uint64_t F16Result(float value) { return std::isnan(value) ? kF16Nan : F32ToF16(value); }
inline uint64_t Bf16Result(float value) { return std::isnan(value) ? kF16Nan : F32ToBf16(value); }
inline uint64_t F64Result(double value) { return std::bit_cast<uint64_t>(value); }

inline uint16_t LowHalf(uint64_t pair) { return static_cast<uint16_t>(pair); }
inline uint16_t HighHalf(uint64_t pair) { return static_cast<uint16_t>(pair >> 16); }
inline uint64_t PackHalves(uint64_t low, uint64_t high) { return low | high << 16; }

}  // namespace kvant::ptx
