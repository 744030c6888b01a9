// The normed encoder for any CPU, and for open sides of any float type.
#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "codec/halves.h"
#include "codec/normed_plan.h"

namespace kvant {
namespace {

constexpr int kTileLanes = 16;
// clang-format off: in this order
#include "codec/lanes-inl.h"
#include "codec/normed_codec-inl.h"
// clang-format on

void LoadLanes(const NormedPlan& plan, const std::byte* from, Floats& to) {
  if (plan.source_type == FloatType::kF32) {
    __builtin_memcpy(&to, from, sizeof to);
    return;
  }
  for (int i = 0; i < kTileLanes; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = plan.source_type == FloatType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
  }
}

}  // namespace

void EncodeNormedScalar(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

}  // namespace kvant
