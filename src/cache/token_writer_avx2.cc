#include <immintrin.h>

#include "cache/token_writer.h"

namespace kvant {

void NarrowF16Avx2(const float* from, int n, uint16_t* to) {
  constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), kNearestEven));
  }
  for (; i < n; ++i) {
    to[i] =
        static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_load_ss(from + i), kNearestEven)));
  }
}

}  // namespace kvant
