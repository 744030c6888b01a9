// The AVX-512 level: a Vec is one register. Nothing here may instantiate an
// inline function of another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "codec/iq4_nl.h"
#include "codec/side_plan.h"

namespace kvant {
namespace {

using Vec = __m512;
using Int = __m512i;
using Mask = __mmask16;

Vec Set(float x) { return _mm512_set1_ps(x); }
Vec Load(const float* p) { return _mm512_loadu_ps(p); }
void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
void StoreWhere(Mask m, float* p, Vec v) { _mm512_mask_storeu_ps(p, m, v); }
Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
Vec Abs(Vec a) { return _mm512_abs_ps(a); }
Vec Negate(Vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
Vec Ceil(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
Vec RoundEven(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
float SmallestOf(Vec a) { return _mm512_reduce_min_ps(a); }
float LargestOf(Vec a) { return _mm512_reduce_max_ps(a); }

Mask Less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
Mask Equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
bool Any(Mask m) { return m != 0; }
Vec Select(Mask m, Vec a, Vec b) { return _mm512_mask_blend_ps(m, b, a); }
Int SelectInt(Mask m, Int a, Int b) { return _mm512_mask_blend_epi32(m, b, a); }
// Lanes begin <= i < end; either may lie outside 0 .. 16.
Mask MaskOf(int begin, int end) {
  const unsigned below_end = end <= 0 ? 0u : end >= 16 ? 0xffffu : (1u << end) - 1;
  const unsigned from_begin = begin <= 0 ? 0xffffu : begin >= 16 ? 0u : ~0u << begin;
  return static_cast<Mask>(below_end & from_begin);
}

Int SetInt(int x) { return _mm512_set1_epi32(x); }
Int LoadInts(const void* p) { return _mm512_loadu_si512(p); }
void StoreInts(void* p, Int v) { _mm512_storeu_si512(p, v); }
Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
Int ShiftLeft(Int a, int n) { return _mm512_sllv_epi32(a, _mm512_set1_epi32(n)); }
Int ShiftRight(Int a, int n) { return _mm512_srlv_epi32(a, _mm512_set1_epi32(n)); }
Int AddOneWhere(Mask m, Int a) { return _mm512_mask_add_epi32(a, m, a, _mm512_set1_epi32(1)); }
Int BitsOf(Vec a) { return _mm512_castps_si512(a); }
Int ToInt(Vec a) { return _mm512_cvtps_epi32(a); }
Vec ToFloat(Int a) { return _mm512_cvtepi32_ps(a); }

Vec LoadHalves(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
Int HalvesOf(Vec a) {
  return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
Vec FloatsOf(Int halves) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)); }
Int LoadShorts(const void* p) {
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
void StoreShorts(void* p, Int v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
Int LoadBytes(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

// The four dwords of lane 4 * k + j, one of each input, go to bytes 64 * j + 16 * k.
void StoreTransposed(std::byte* out, const Int (&q)[4]) {
  const Int low01 = _mm512_unpacklo_epi32(q[0], q[1]), high01 = _mm512_unpackhi_epi32(q[0], q[1]);
  const Int low23 = _mm512_unpacklo_epi32(q[2], q[3]), high23 = _mm512_unpackhi_epi32(q[2], q[3]);
  StoreInts(out, _mm512_unpacklo_epi64(low01, low23));
  StoreInts(out + 64, _mm512_unpackhi_epi64(low01, low23));
  StoreInts(out + 128, _mm512_unpacklo_epi64(high01, high23));
  StoreInts(out + 192, _mm512_unpackhi_epi64(high01, high23));
}

Vec LookUpIq4Nl(Int codes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlLevels));
  return _mm512_permutexvar_ps(codes, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(levels)));
}

}  // namespace
}  // namespace kvant

#include "codec/codec-inl.h"

namespace kvant {

void EncodeCodedAvx512(const SidePlan& plan, const std::byte* source, int first_token,
                       std::byte* stored) {
  EncodeCoded(plan, source, first_token, stored);
}

void DecodeCodedAvx512(const SidePlan& plan, const std::byte* stored, float* out,
                       int64_t out_stride) {
  DecodeCoded(plan, stored, out, out_stride);
}

}  // namespace kvant
