// The normed encoder with AVX2 and F16C. Nothing here may instantiate an inline function of
// another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"

namespace kvant {
namespace {

void LoadLanes(const NormedPlan&, const std::byte* from, float* out) {
  const auto* halves = reinterpret_cast<const __m128i*>(from);
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(halves)));
  _mm256_storeu_ps(out + 8, _mm256_cvtph_ps(_mm_loadu_si128(halves + 1)));
}

#include "codec/normed_codec-inl.h"

}  // namespace

void EncodeNormedAvx2(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

}  // namespace kvant
