// The encoders of normed sides and of small floats on aarch64. Nothing here may instantiate an
// inline function of another header: the linker could keep this copy for every CPU.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"
#include "codec/small_float_plan.h"

namespace kvant {
namespace {

constexpr int kTileLanes = 4;
// clang-format off: in this order
#include "codec/lanes-inl.h"
#include "codec/normed_codec-inl.h"
#include "codec/small_float-inl.h"
// clang-format on

void LoadHalves(const std::byte* from, Floats& to) {
  const uint16x4_t halves = vld1_u16(reinterpret_cast<const uint16_t*>(from));
  const float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(halves));
  __builtin_memcpy(&to, &x, sizeof to);
}

void LoadLanes(const NormedPlan&, const std::byte* from, Floats& to) { LoadHalves(from, to); }

}  // namespace

void EncodeNormedNeon(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

void EncodeSmallFloatNeon(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                          std::byte* stored) {
  EncodeSmallFloat(plan, source, first_token, stored);
}

}  // namespace kvant
