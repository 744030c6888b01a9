// The AVX2 + F16C level: a Vec is two registers. Nothing here may instantiate an
// inline function of another header: the linker could keep this copy for every CPU.
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "codec/iq4_nl.h"
#include "codec/side_plan.h"

namespace kvant {
namespace {

// Lanes 0 .. 7 and 8 .. 15.
struct Vec {
  __m256 low, high;
};
struct Int {
  __m256i low, high;
};
struct Mask {
  __m256i low, high;
};

Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
void Store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
void StoreWhere(Mask m, float* p, Vec v) {
  _mm256_maskstore_ps(p, m.low, v.low);
  _mm256_maskstore_ps(p + 8, m.high, v.high);
}
Vec Add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
Vec Sub(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
Vec Mul(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
Vec Div(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
Vec Negate(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
Vec Abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
Vec Ceil(Vec a) { return {_mm256_ceil_ps(a.low), _mm256_ceil_ps(a.high)}; }
Vec RoundEven(Vec a) {
  return {_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
float SmallestOf(Vec a) {
  const __m256 eight = _mm256_min_ps(a.low, a.high);
  __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_min_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_min_ss(four, _mm_movehdup_ps(four)));
}
float LargestOf(Vec a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

Mask Less(Vec a, Vec b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
Mask Equal(Vec a, Vec b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ))};
}
bool Any(Mask m) { return _mm256_movemask_epi8(_mm256_or_si256(m.low, m.high)) != 0; }
Vec Select(Mask m, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(m.low)),
          _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(m.high))};
}
Int SelectInt(Mask m, Int a, Int b) {
  return {_mm256_blendv_epi8(b.low, a.low, m.low), _mm256_blendv_epi8(b.high, a.high, m.high)};
}
__m256i Between(__m256i lanes, int begin, int end) {
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lanes),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lanes));
}
// Lanes begin <= i < end; either may lie outside 0 .. 16.
Mask MaskOf(int begin, int end) {
  return {Between(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), begin, end),
          Between(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), begin, end)};
}

Int SetInt(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
Int LoadInts(const void* p) {
  const __m256i* at = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
void StoreInts(void* p, Int v) {
  __m256i* at = static_cast<__m256i*>(p);
  _mm256_storeu_si256(at, v.low);
  _mm256_storeu_si256(at + 1, v.high);
}
Int And(Int a, Int b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
Int Or(Int a, Int b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
Int ShiftLeft(Int a, int n) {
  const __m256i count = _mm256_set1_epi32(n);
  return {_mm256_sllv_epi32(a.low, count), _mm256_sllv_epi32(a.high, count)};
}
Int ShiftRight(Int a, int n) {
  const __m256i count = _mm256_set1_epi32(n);
  return {_mm256_srlv_epi32(a.low, count), _mm256_srlv_epi32(a.high, count)};
}
Int AddOneWhere(Mask m, Int a) {
  return {_mm256_sub_epi32(a.low, m.low), _mm256_sub_epi32(a.high, m.high)};
}
Int BitsOf(Vec a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
Int ToInt(Vec a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
Vec ToFloat(Int a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }

Vec LoadHalves(const void* p) {
  const __m128i* at = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
Int HalvesOf(Vec a) {
  return {
      _mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
      _mm256_cvtepu16_epi32(
          _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
// The low halves of 8 dwords, which must be at most 0xffff.
__m128i Narrow(__m256i v) {
  return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
Vec FloatsOf(Int halves) {
  return {_mm256_cvtph_ps(Narrow(halves.low)), _mm256_cvtph_ps(Narrow(halves.high))};
}
Int LoadShorts(const void* p) {
  const __m128i* at = static_cast<const __m128i*>(p);
  return {_mm256_cvtepi16_epi32(_mm_loadu_si128(at)),
          _mm256_cvtepi16_epi32(_mm_loadu_si128(at + 1))};
}
void StoreShorts(void* p, Int v) {
  __m128i* at = static_cast<__m128i*>(p);
  _mm_storeu_si128(at, Narrow(v.low));
  _mm_storeu_si128(at + 1, Narrow(v.high));
}
Int LoadBytes(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

void StoreTransposedHalf(std::byte* out, __m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i low01 = _mm256_unpacklo_epi32(a, b), high01 = _mm256_unpackhi_epi32(a, b);
  const __m256i low23 = _mm256_unpacklo_epi32(c, d), high23 = _mm256_unpackhi_epi32(c, d);
  const auto store = [&](int at, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), v);
  };
  store(0, _mm256_unpacklo_epi64(low01, low23));
  store(64, _mm256_unpackhi_epi64(low01, low23));
  store(128, _mm256_unpacklo_epi64(high01, high23));
  store(192, _mm256_unpackhi_epi64(high01, high23));
}
// The four dwords of lane 4 * k + j, one of each input, go to bytes 64 * j + 16 * k.
void StoreTransposed(std::byte* out, const Int (&q)[4]) {
  StoreTransposedHalf(out, q[0].low, q[1].low, q[2].low, q[3].low);
  StoreTransposedHalf(out + 32, q[0].high, q[1].high, q[2].high, q[3].high);
}

__m256 LookUpHalf(__m256i codes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlLevels));
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(levels));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(levels, 8)));
  const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // bit 3 as the sign
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes),
                          _mm256_permutevar8x32_ps(high, codes), is_high);
}
Vec LookUpIq4Nl(Int codes) { return {LookUpHalf(codes.low), LookUpHalf(codes.high)}; }

}  // namespace
}  // namespace kvant

#include "codec/codec-inl.h"

namespace kvant {

void EncodeCodedAvx2(const SidePlan& plan, const std::byte* source, int first_token,
                     std::byte* stored) {
  EncodeCoded(plan, source, first_token, stored);
}

void DecodeCodedAvx2(const SidePlan& plan, const std::byte* stored, float* out,
                     int64_t out_stride) {
  DecodeCoded(plan, stored, out, out_stride);
}

}  // namespace kvant
