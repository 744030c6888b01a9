// The encoders of normed sides and of small floats with AVX-512. Nothing here may instantiate an
// inline function of another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"
#include "codec/small_float_plan.h"

namespace kvant {
namespace {

constexpr int kTileLanes = 16;
// clang-format off: in this order
#include "codec/lanes-inl.h"
#include "codec/normed_codec-inl.h"
#include "codec/small_float-inl.h"
// clang-format on

void LoadHalves(const std::byte* from, Floats& to) {
  to = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

void LoadLanes(const NormedPlan&, const std::byte* from, Floats& to) { LoadHalves(from, to); }

}  // namespace

void EncodeNormedAvx512(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

void EncodeSmallFloatAvx512(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                            std::byte* stored) {
  EncodeSmallFloat(plan, source, first_token, stored);
}

}  // namespace kvant
