// The normed encoder with AVX-512. Nothing here may instantiate an inline function of
// another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/halves.h"
#include "codec/normed_plan.h"

namespace kvant {
namespace {

#include "codec/normed_codec-inl.h"

void LoadLanes(const NormedPlan&, const std::byte* from, Floats& to) {
  to = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

}  // namespace

void EncodeNormedAvx512(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored) {
  EncodeNormed(plan, source, first_token, stored);
}

}  // namespace kvant
