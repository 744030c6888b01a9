// The 256-bit half of what kernels-inl.h asks for, shared by the AVX2 and AVX-VNNI files, each of
// which includes it inside its own anonymous namespace.
//
// No #pragma once: a part of its includer, not a header of its own.

constexpr int kLanes = 8;
constexpr int kInt8Blocks = 1;
constexpr int kFloatTokens = 2;

using F32 = __m256;
using I32 = __m256i;

inline F32 ZeroF32() { return _mm256_setzero_ps(); }
inline F32 SetF32(float v) { return _mm256_set1_ps(v); }
inline F32 LoadF32(const float* p) { return _mm256_loadu_ps(p); }
inline void StoreF32(float* p, F32 v) { _mm256_storeu_ps(p, v); }
inline __m128i LoadWords(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F32 LoadF16(const uint8_t* p) { return _mm256_cvtph_ps(LoadWords(p)); }
inline F32 LoadBf16(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadWords(p)), 16));
}
inline F32 Fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline F32 Mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
inline F32 Add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
inline F32 ToF32(I32 v) { return _mm256_cvtepi32_ps(v); }

inline I32 SetI32(int32_t v) { return _mm256_set1_epi32(v); }
inline I32 LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I32 LoadI32(const float* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I32 AddI32(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
inline I32 SubI32(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
inline I32 MaxI32(I32 a, I32 b) { return _mm256_max_epi32(a, b); }
inline I32 And(I32 a, I32 b) { return _mm256_and_si256(a, b); }
template <int j>
inline I32 Byte(I32 v) {
  return And(_mm256_srli_epi32(v, 8 * j), SetI32(255));
}
inline I32 Low4(I32 v) { return And(v, _mm256_set1_epi8(15)); }
inline I32 High4(I32 v) { return And(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
inline I32 RoundI32(F32 v) { return _mm256_cvtps_epi32(v); }
inline void StoreI8(int8_t* p, I32 v) {  // values within -128..127
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
inline I32 BroadcastQuad(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return SetI32(four);
}
inline int32_t HorizontalMax(I32 v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
inline int32_t SumOfCodes(const int8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}
