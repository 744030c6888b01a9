// f16 of single values as functions, for per-ISA files that must instantiate nothing of float16.h.
#pragma once

#include <cstdint>

namespace kvant {

uint16_t HalfOf(float value);  // to nearest even
float FloatOfHalf(uint16_t half);
// Of a step between codes. A subnormal one is rounded up: to nearest it could lose a third of its
// size (or all of it), and the codes could no longer span the range.
uint16_t StepHalfOf(float step);

}  // namespace kvant
