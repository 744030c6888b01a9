// AVX2: vpmaddubsw and vpmaddwd stand in for the dot instruction, without ever saturating.
#include <immintrin.h>

#include "matmul/kernels.h"

namespace kvant {
namespace {

#include "matmul/vector256-inl.h"

template <int kBits>
constexpr int kInt8Tokens = kBits == 4 ? 4 : 2;  // what 16 registers hold

template <int kBits>
struct Codes;

// 8-bit codes times int8 overflow the 16-bit pairs of vpmaddubsw (2 * 255 * 127), their nibbles do
// not: 8 quads of pairs add up to 8 * 2 * 15 * 127 = 30480 at most.
template <>
struct Codes<4> {
  I32 low;
};
template <>
struct Codes<8> {
  I32 low, high;
};

template <int kBits>
inline Codes<kBits> Prepare(I32 bytes) {
  if constexpr (kBits == 4) {
    return {bytes};
  } else {
    return {Low4(bytes), High4(bytes)};
  }
}

template <int kBits>
struct Dot;

template <>
struct Dot<4> {
  void Start(I32 first) {
    start = first;
    low = _mm256_setzero_si256();
  }
  void Step(const Codes<4>& codes, I32 quad) {
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes.low, quad));
  }
  I32 Finish() const { return AddI32(start, _mm256_madd_epi16(low, _mm256_set1_epi16(1))); }

  I32 start, low;
};

template <>
struct Dot<8> {
  void Start(I32 first) {
    start = first;
    low = high = _mm256_setzero_si256();
  }
  void Step(const Codes<8>& codes, I32 quad) {
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes.low, quad));
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(codes.high, quad));
  }
  I32 Finish() const {
    const I32 sum = AddI32(start, _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
    return AddI32(sum, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
  }

  I32 start, low, high;
};

#include "matmul/kernels-inl.h"

}  // namespace

const MatMulKernels kMatMulAvx2 = {Quantize, Int8Grouped, FloatGrouped, Plain};

}  // namespace kvant
