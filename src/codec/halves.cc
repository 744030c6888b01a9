#include "codec/halves.h"

#include <cmath>

#include "base/float16.h"

namespace kvant {
namespace {

// Below this magnitude an f16 is subnormal: a whole multiple of 2^-24.
constexpr float kSmallestNormalF16 = 6.103515625e-5f;
constexpr float kSubnormalF16PerUnit = 16777216.0f;

}  // namespace

uint16_t HalfOf(float value) { return F32ToF16(value); }
float FloatOfHalf(uint16_t half) { return F16ToF32(half); }

uint16_t StepHalfOf(float step) {
  const float magnitude = std::fabs(step);
  if (magnitude >= kSmallestNormalF16) return F32ToF16(step);
  const auto units = static_cast<uint16_t>(std::ceil(magnitude * kSubnormalF16PerUnit));
  return static_cast<uint16_t>(units | (step < 0.0f ? 0x8000 : 0));
}

}  // namespace kvant
