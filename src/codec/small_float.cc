#include "codec/small_float.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float16.h"
#include "base/float8.h"
#include "codec/halves.h"

namespace kvant {
namespace {

constexpr float kE2M1Values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
constexpr float kE2M1Max = 6.0f;
constexpr uint16_t kSmallestE4M3 = 1;     // 2^-9
constexpr uint16_t kWholeNumbers = 0x80;  // flag in an if4 scale
constexpr float kWholeStep = 6.0f / 7.0f;
constexpr float kWholeStepInverse = 7.0f / 6.0f;

// Half to even: a midpoint belongs to the code without a last bit.
uint8_t E2M1Of(float x) {
  const float a = std::fabs(x);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

bool HasWholeNumbers(const Format& format, uint16_t scale) {
  return format.levels == Levels::kIf4 && (scale & kWholeNumbers) != 0;
}

uint8_t WholeNumberOf(float x) {
  const float q = std::clamp(std::rint(x * kWholeStepInverse), -7.0f, 7.0f);
  return static_cast<uint8_t>(static_cast<int>(q) & 15);
}

// The byte of 2^exponent.
uint16_t E8M0Of(int exponent) { return static_cast<uint16_t>(std::clamp(exponent + 127, 1, 254)); }

uint16_t ScaleOf(const Format& format, float amax, float largest_code) {
  switch (format.scale) {
    case Scale::kF16:
      return StepHalfOf(amax / largest_code);
    case Scale::kE8M0:
      return E8M0Of(std::ilogb(amax) - 2);
    case Scale::kE8M0Nearest: {
      // log2 + .5 passes a whole number where the mantissa passes sqrt(2).
      int exponent;
      const float mantissa = std::frexp(0.2f * amax, &exponent);  // in [.5, 1)
      return E8M0Of(mantissa < 0.70710678f ? exponent - 1 : exponent);
    }
    case Scale::kE4M3:
    case Scale::kE4M3FourOrSix:
      return std::max<uint16_t>(F32ToE4M3(amax / largest_code), kSmallestE4M3);
  }
  return 0;
}

void CodesOf(const Format& format, std::span<const float> values, uint16_t stored,
             std::span<uint8_t> codes) {
  const float scale = std::fabs(SmallFloatScale(format, stored));
  const bool whole = HasWholeNumbers(format, stored);
  for (size_t i = 0; i < values.size(); ++i) {
    const float unit = values[i] / scale;
    codes[i] = format.levels == Levels::kE4M3   ? F32ToE4M3(unit)
               : format.levels == Levels::kE5M2 ? F32ToE5M2(unit)
               : whole                          ? WholeNumberOf(unit)
                                                : E2M1Of(unit);
  }
}

// Squared error of a group with this scale; codes are scratch.
double ErrorOf(const Format& format, std::span<const float> values, uint16_t stored,
               std::span<uint8_t> codes) {
  CodesOf(format, values, stored, codes);
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double off = static_cast<double>(values[i]) - SmallFloatValue(format, stored, codes[i]);
    error += off * off;
  }
  return error;
}

float LargestCode(const Format& format) {
  return format.levels == Levels::kE4M3   ? kE4M3Max
         : format.levels == Levels::kE5M2 ? kE5M2Max
                                          : kE2M1Max;
}

}  // namespace

uint16_t EncodeSmallFloats(const Format& format, std::span<const float> values,
                           std::span<uint8_t> codes) {
  float amax = 0;
  for (float x : values) amax = std::max(amax, std::fabs(x));
  if (amax == 0.0f) {
    std::fill_n(codes.begin(), values.size(), uint8_t{0});
    return 0;
  }
  uint16_t scale = ScaleOf(format, amax, LargestCode(format));
  const bool by_four = format.scale == Scale::kE4M3FourOrSix;
  if (by_four || format.levels == Levels::kIf4) {
    const uint16_t other =
        by_four ? ScaleOf(format, amax, 4.0f) : static_cast<uint16_t>(scale | kWholeNumbers);
    const double error = ErrorOf(format, values, scale, codes);
    if (ErrorOf(format, values, other, codes) < error) scale = other;
  }
  CodesOf(format, values, scale, codes);
  return scale;
}

float SmallFloatScale(const Format& format, uint16_t stored) {
  switch (format.scale) {
    case Scale::kF16:
      return F16ToF32(stored);
    case Scale::kE8M0:
    case Scale::kE8M0Nearest:
      return std::ldexp(1.0f, static_cast<int>(stored) - 127);
    case Scale::kE4M3:
    case Scale::kE4M3FourOrSix:
      return E4M3ToF32(static_cast<uint8_t>(stored));
  }
  return 0.0f;
}

float SmallFloatValue(const Format& format, uint16_t stored, uint8_t code) {
  const float scale = std::fabs(SmallFloatScale(format, stored));
  if (HasWholeNumbers(format, stored)) {
    return scale * (kWholeStep * static_cast<float>((code ^ 8) - 8));
  }
  switch (format.levels) {
    case Levels::kE4M3:
      return scale * E4M3ToF32(code);
    case Levels::kE5M2:
      return scale * E5M2ToF32(code);
    default:
      return scale * ((code & 8) != 0 ? -kE2M1Values[code & 7] : kE2M1Values[code & 7]);
  }
}

}  // namespace kvant
