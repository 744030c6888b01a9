// The encoders of normed sides and of small floats with AVX2 and F16C. Nothing here may instantiate
// an inline function of another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"
#include "codec/small_float_plan.h"

namespace kvant {
namespace {

constexpr int kTileLanes = 8;
// clang-format off: in this order
#include "codec/lanes-inl.h"
#include "codec/normed_codec-inl.h"
#include "codec/small_float-inl.h"
// clang-format on

void LoadHalves(const std::byte* from, Floats& to) {
  const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  __builtin_memcpy(&to, &x, sizeof to);
}

void LoadLanes(const NormedPlan&, const std::byte* from, Floats& to) { LoadHalves(from, to); }

}  // namespace

void EncodeNormedAvx2(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

void EncodeSmallFloatAvx2(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                          std::byte* stored) {
  EncodeSmallFloat(plan, source, first_token, stored);
}

}  // namespace kvant
