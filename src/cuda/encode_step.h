// StepHalf: a step between codes as it is stored (src/codec/halves.h, StepHalfOf).
#pragma once

#include "cuda/isa.h"

namespace kvant::cuda {

// As half; a subnormal one is rounded up.
KVANT_DEVICE uint32_t StepHalf(float step) {
  if (step >= 0x1p-14f) return PackHalves(step, 0.0f);
  return static_cast<uint32_t>(RoundUp(step * 0x1p24f));
}

}  // namespace kvant::cuda
