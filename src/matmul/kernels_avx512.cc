// AVX-512 with VNNI: one vpdpbusd does 16 rows x 4 inputs, the quad of activations broadcast from
// memory.

// GCC 12's own _mm512_undefined_* read an uninitialised variable on purpose (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "matmul/kernels.h"

namespace kvant {
namespace {

constexpr int kLanes = 16;
template <int kBits>
constexpr int kInt8Tokens = 4;
constexpr int kInt8Blocks = 2;
constexpr int kFloatTokens = 4;
constexpr int kTableTokens = 128;  // fewer do not pay for the table

using F32 = __m512;
using I32 = __m512i;

inline F32 ZeroF32() { return _mm512_setzero_ps(); }
inline F32 SetF32(float v) { return _mm512_set1_ps(v); }
inline F32 LoadF32(const float* p) { return _mm512_loadu_ps(p); }
inline void StoreF32(float* p, F32 v) { _mm512_storeu_ps(p, v); }
inline __m256i LoadWords(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline F32 LoadF16(const uint8_t* p) { return _mm512_cvtph_ps(LoadWords(p)); }
inline F32 LoadBf16(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadWords(p)), 16));
}
inline F32 Fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32 Mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 Add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 ToF32(I32 v) { return _mm512_cvtepi32_ps(v); }

inline I32 SetI32(int32_t v) { return _mm512_set1_epi32(v); }
inline I32 LoadBytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline I32 LoadI32(const float* p) { return _mm512_loadu_si512(p); }
inline I32 SubI32(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
inline I32 MaxI32(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
inline I32 And(I32 a, I32 b) { return _mm512_and_si512(a, b); }
template <int j>
inline I32 Byte(I32 v) {
  return And(_mm512_srli_epi32(v, 8 * j), SetI32(255));
}
inline I32 Low4(I32 v) { return And(v, _mm512_set1_epi8(15)); }
inline I32 High4(I32 v) { return And(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
inline I32 RoundI32(F32 v) { return _mm512_cvtps_epi32(v); }
inline void StoreI8(int8_t* p, I32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}
inline I32 BroadcastQuad(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return SetI32(four);
}
inline int32_t HorizontalMax(I32 v) { return _mm512_reduce_max_epi32(v); }
inline int32_t SumOfCodes(const int8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}
inline I32 DotBytes(I32 sum, I32 codes, I32 inputs) {
  return _mm512_dpbusd_epi32(sum, codes, inputs);
}
inline F32 ScaleByPower(F32 x, F32 y) { return _mm512_scalef_ps(x, _mm512_getexp_ps(y)); }
#define KVANT_SCALE_TABLE

#include "matmul/dpbusd-inl.h"
#include "matmul/kernels-inl.h"

}  // namespace

const MatMulKernels kMatMulAvx512 = {Quantize, Int8Grouped, FloatGrouped, Plain};

}  // namespace kvant
