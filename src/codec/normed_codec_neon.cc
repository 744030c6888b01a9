// The normed encoder on aarch64. Nothing here may instantiate an inline function of
// another header: the linker could keep this copy for every CPU.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"

namespace kvant {
namespace {

#include "codec/normed_codec-inl.h"

void LoadLanes(const NormedPlan&, const std::byte* from, Floats& to) {
  float32x4_t x[4];
  for (int i = 0; i < 4; ++i) {
    const uint16x4_t halves = vld1_u16(reinterpret_cast<const uint16_t*>(from) + 4 * i);
    x[i] = vcvt_f32_f16(vreinterpret_f16_u16(halves));
  }
  __builtin_memcpy(&to, x, sizeof to);
}

}  // namespace

void EncodeNormedNeon(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

}  // namespace kvant
