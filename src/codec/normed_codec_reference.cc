// The normed encoder for any CPU, and for open sides of any float type.
#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "codec/halves.h"
#include "codec/normed_plan.h"

namespace kvant {
namespace {

void LoadLanes(const NormedPlan& plan, const std::byte* from, float* out) {
  if (plan.source_type == FloatType::kF32) {
    __builtin_memcpy(out, from, 16 * sizeof(float));
    return;
  }
  for (int i = 0; i < 16; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, from + 2 * i, sizeof bits);
    out[i] = plan.source_type == FloatType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
  }
}

#include "codec/normed_codec-inl.h"

}  // namespace

void EncodeNormedScalar(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

}  // namespace kvant
