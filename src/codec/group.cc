// One group: how scale, offset and codes follow from its values under each convention.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/float16.h"
#include "codec/codec.h"
#include "codec/halves.h"

namespace kvant {
namespace {

// Largest |z| of the integer convention: int16 with room for the rounding of x / s.
constexpr float kMaxIntegerZero = 32000.0f;
// Largest |zeta| of the real convention: f16 resolves one step up to here, so that the rounding of
// zeta itself never costs more than the rounding of a code.
constexpr float kMaxRealZero = 2048.0f;

int MaxCode(const Format& f) { return (1 << f.bits) - 1; }
int Centre(const Format& f) { return 1 << (f.bits - 1); }

// A constant group under a convention without a real offset: value = +-|c| * (1 - 0) or (0 - 1).
// Exact, because c came from a 16-bit float (for f32 input: to the precision of the scale).
GroupParameters ConstantGroup(const Format& format, float c) {
  const uint16_t scale = StepHalfOf(std::fabs(c));
  uint16_t zero = 0;
  if (c < 0) zero = format.offset == Offset::kIntegerZero ? 1 : F32ToF16(1.0f);
  return UnpackParameters(format, scale, zero);
}

// The magnitude of rank floor(percent n / 100), from 0.
float ReachOf(int percent, std::span<const float> values) {
  std::array<float, kMaxGroupValues> magnitudes{};
  const auto end = std::transform(values.begin(), values.end(), magnitudes.begin(),
                                  [](float x) { return std::fabs(x); });
  const auto rank = magnitudes.begin() + percent * std::ssize(values) / 100;
  std::nth_element(magnitudes.begin(), rank, end);
  return *rank;
}

}  // namespace

GroupParameters UnpackParameters(const Format& format, uint16_t scale_bits, uint16_t offset_bits) {
  GroupParameters p;
  p.scale_bits = scale_bits;
  p.offset_bits = offset_bits;
  p.scale = F16ToF32(scale_bits);
  switch (format.offset) {
    case Offset::kNone:
    case Offset::kExtreme:
      p.offset =
          format.levels == Levels::kCodebook ? 0.0f : -p.scale * static_cast<float>(Centre(format));
      break;
    case Offset::kMin:
      p.offset = F16ToF32(offset_bits);
      break;
    case Offset::kIntegerZero:
      p.offset = -static_cast<float>(static_cast<int16_t>(offset_bits)) * p.scale;
      break;
    case Offset::kRealZero:
      p.offset = -F16ToF32(offset_bits) * p.scale;
      break;
  }
  return p;
}

GroupParameters FitGroup(const Format& format, float min, float max, float extreme) {
  min += 0.0f;  // -0 becomes +0: which zero is the smallest depends on the order of the values
  max += 0.0f;
  const float steps = static_cast<float>(MaxCode(format));
  switch (format.offset) {
    case Offset::kNone: {
      if (format.levels == Levels::kCodebook) {
        return UnpackParameters(format, StepHalfOf(extreme / kIq4NlLevels[0]), 0);
      }
      const float amax = std::max(std::fabs(min), std::fabs(max));
      return UnpackParameters(format, StepHalfOf(amax / static_cast<float>(Centre(format) - 1)), 0);
    }
    case Offset::kExtreme:
      return UnpackParameters(format, StepHalfOf(extreme / static_cast<float>(-Centre(format))), 0);
    case Offset::kMin:
      return UnpackParameters(format, StepHalfOf((max - min) / steps), F32ToF16(min));
    case Offset::kIntegerZero: {
      if (min == max) return ConstantGroup(format, min);
      const float reach = std::max(std::fabs(min), std::fabs(max)) / kMaxIntegerZero;
      const uint16_t scale = StepHalfOf(std::max((max - min) / steps, reach));
      const float z = std::rint(-min / F16ToF32(scale));
      return UnpackParameters(format, scale, static_cast<uint16_t>(static_cast<int16_t>(z)));
    }
    case Offset::kRealZero: {
      if (min == max) return ConstantGroup(format, min);
      const uint16_t scale =
          StepHalfOf(std::max((max - min) / steps, std::fabs(min) / kMaxRealZero));
      return UnpackParameters(format, scale, F32ToF16((0.0f - min) / F16ToF32(scale)));
    }
  }
  return {};
}

GroupParameters FitValues(const Format& format, std::span<const float> values) {
  if (values.empty()) return FitGroup(format, 0, 0, 0);
  float min = INFINITY, max = -INFINITY, extreme = 0;
  for (const float x : values) {
    min = std::min(min, x);
    max = std::max(max, x);
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  }
  if (format.clip_percent != 0) {
    const float reach = ReachOf(format.clip_percent, values);
    for (float* bound : {&min, &max, &extreme}) *bound = std::clamp(*bound, -reach, reach);
  }
  return FitGroup(format, min, max, extreme);
}

int CodeOf(const Format& format, const GroupParameters& p, float value) {
  if (p.scale == 0.0f) {  // a constant group of the min convention, or all zeros
    return format.offset == Offset::kMin || format.offset == Offset::kIntegerZero ||
                   format.offset == Offset::kRealZero
               ? 0
           : format.levels == Levels::kCodebook ? 8
                                                : Centre(format);
  }
  if (format.levels == Levels::kCodebook) {
    const float unit = value / p.scale;
    int best = 0;
    for (int i = 1; i < 16; ++i) {
      if (std::fabs(unit - kIq4NlLevels[i]) < std::fabs(unit - kIq4NlLevels[best])) best = i;
    }
    return best;
  }
  const float last = static_cast<float>(MaxCode(format));
  switch (format.offset) {
    case Offset::kNone: {
      const float limit = static_cast<float>(Centre(format) - 1);
      const float q = std::clamp(std::rint(value / p.scale), -limit, limit);
      return static_cast<int>(q) + Centre(format);
    }
    case Offset::kExtreme:
      return static_cast<int>(
          std::clamp(std::rint(value / p.scale) + static_cast<float>(Centre(format)), 0.0f, last));
    case Offset::kMin:
      return static_cast<int>(std::clamp(std::rint((value - p.offset) / p.scale), 0.0f, last));
    case Offset::kIntegerZero: {
      const float z = static_cast<float>(static_cast<int16_t>(p.offset_bits));
      return static_cast<int>(std::clamp(std::rint(value / p.scale) + z, 0.0f, last));
    }
    case Offset::kRealZero: {
      const float zeta = F16ToF32(p.offset_bits);
      return static_cast<int>(std::clamp(std::rint(value / p.scale + zeta), 0.0f, last));
    }
  }
  return 0;
}

float ValueOf(const Format& format, const GroupParameters& p, int code) {
  if (format.levels == Levels::kCodebook) return p.scale * kIq4NlLevels[code];
  return p.scale * static_cast<float>(code) + p.offset;
}

}  // namespace kvant
