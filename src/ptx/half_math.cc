#include "ptx/half_math.h"

#include <cmath>

namespace kvant::ptx {
namespace {

__extension__ typedef __int128 Fixed;  // times 2^-48

constexpr int kUnitExponent = -24;  // of the smallest half

bool IsFinite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

// h / 2^-24, exact.
int64_t HalfUnits(uint16_t h) {
  return static_cast<int64_t>(std::ldexp(F16ToF32(h), -kUnitExponent));
}

int HighestBit(Fixed positive) {
  const auto high = static_cast<uint64_t>(positive >> 64);
  if (high != 0) return 127 - std::countl_zero(high);
  return 63 - std::countl_zero(static_cast<uint64_t>(positive));
}

// REQUIRES: magnitude > 0.
uint16_t RoundToHalf(Fixed magnitude, uint16_t sign) {
  // Bits below the last one that a half keeps: 11 bits of mantissa, but nothing under 2^-24.
  const int highest = HighestBit(magnitude);
  const int dropped = highest - 10 > 24 ? highest - 10 : 24;
  Fixed kept = magnitude >> dropped;
  const Fixed rest = magnitude - (kept << dropped);
  const Fixed half = Fixed{1} << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // kept is at most 2^11, times a power of two: exact in a float, and too large becomes infinite.
  const float value = std::ldexp(static_cast<float>(static_cast<int64_t>(kept)), dropped - 48);
  return static_cast<uint16_t>(F32ToF16(value) | sign);
}

}  // namespace

uint16_t FmaF16(uint16_t a, uint16_t b, uint16_t c) {
  if (!IsFinite(a) || !IsFinite(b) || !IsFinite(c)) {
    // Nothing is rounded where an operand is infinite or not a number.
    const float sum = F16ToF32(a) * F16ToF32(b) + F16ToF32(c);
    return std::isnan(sum) ? kF16Nan : F32ToF16(sum);
  }
  const Fixed sum = Fixed{HalfUnits(a)} * HalfUnits(b) + (Fixed{HalfUnits(c)} << 24);
  if (sum < 0) return RoundToHalf(-sum, 0x8000);
  if (sum > 0) return RoundToHalf(sum, 0);
  // Zero is negative only where both terms are.
  return static_cast<uint16_t>((a ^ b) & c & 0x8000);
}

}  // namespace kvant::ptx
