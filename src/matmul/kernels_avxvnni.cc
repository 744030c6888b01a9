// AVX-VNNI: AVX2 with the 256-bit vpdpbusd, 8 rows x 4 inputs.
#include <immintrin.h>

#include "matmul/kernels.h"

namespace kvant {
namespace {

#include "matmul/vector256-inl.h"

template <int kBits>
constexpr int kInt8Tokens = 4;

inline I32 DotBytes(I32 sum, I32 codes, I32 inputs) {
  return _mm256_dpbusd_avx_epi32(sum, codes, inputs);
}

#include "matmul/dpbusd-inl.h"
#include "matmul/kernels-inl.h"

}  // namespace

const MatMulKernels kMatMulAvxVnni = {Quantize, Int8Grouped, FloatGrouped, Plain};

}  // namespace kvant
