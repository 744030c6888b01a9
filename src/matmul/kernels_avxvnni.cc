// AVX-VNNI: AVX2 with the 256-bit vpdpbusd, 8 rows x 4 inputs.
#include <immintrin.h>

#include "matmul/kernels.h"

namespace kvant {
namespace {

#include "matmul/vector256-inl.h"

template <int kBits>
constexpr int kInt8Tokens = 4;

template <int kBits>
struct Codes {
  I32 bytes;
};

template <int kBits>
inline Codes<kBits> Prepare(I32 bytes) {
  return {bytes};
}

template <int kBits>
struct Dot {
  void Start(I32 first) { sum = first; }
  void Step(const Codes<kBits>& codes, I32 quad) {
    sum = _mm256_dpbusd_avx_epi32(sum, codes.bytes, quad);
  }
  I32 Finish() const { return sum; }

  I32 sum;
};

#include "matmul/kernels-inl.h"

}  // namespace

const MatMulKernels kMatMulAvxVnni = {Quantize, Int8Grouped, FloatGrouped, Plain};

}  // namespace kvant
