// The 16-lane vectors on AVX-512 (F BW VL DQ VNNI): one register each. Meaning: vec_scalar-inl.h.

// 32 registers: 4 x 4 accumulators, 4 units of codes and the constants fit.
constexpr int kTileBlocks = KVANT_TILE(4);
constexpr int kTileRows = KVANT_TILE(4);

using F = __m512;
using I = __m512i;
struct B {
  __m512i v;
};

inline F Zero() { return _mm512_setzero_ps(); }
inline F Set(float x) { return _mm512_set1_ps(x); }
inline F Load(const float* p) { return _mm512_loadu_ps(p); }
inline __m256i Load256(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline F LoadF16(const std::byte* p) { return _mm512_cvtph_ps(Load256(p)); }
inline F LoadBf16(const std::byte* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
}
inline I LoadI16(const std::byte* p) { return _mm512_cvtepi16_epi32(Load256(p)); }
inline void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
inline F Add(F a, F b) { return _mm512_add_ps(a, b); }
inline F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F Max(F a, F b) { return _mm512_max_ps(a, b); }
inline F Abs(F a) { return _mm512_abs_ps(a); }
inline F KeepLanes(F a, int first, int end, F other) {
  const unsigned below_end = end <= 0 ? 0u : end >= 16 ? 0xffffu : (1u << end) - 1;
  const unsigned below_first = first <= 0 ? 0u : first >= 16 ? 0xffffu : (1u << first) - 1;
  return _mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_first), other, a);
}
inline float ReduceAdd(F a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float ReduceMax(F a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline F Div(F a, F b) { return _mm512_div_ps(a, b); }
inline F KeepAbove(F a, F x, F limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), a);
}
// Sixteen rows of p at once: halves (i, i+8), then (i, i+4), (i, i+2), (i, i+1). The rows enter in
// the order that leaves lane i with row i.
template <typename Op>
inline __m512 Reduce16(const float* p, const Op& op) {
  const auto fold16 = [&](int row) {  // rows `row` and `row + 4`, 8 lanes each
    const __m512 a = _mm512_loadu_ps(p + 16 * row), b = _mm512_loadu_ps(p + 16 * (row + 4));
    return op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const auto fold8 = [&](int row) {  // and rows + 8, + 12
    const __m512 a = fold16(row), b = fold16(row + 8);
    return op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  const auto fold4 = [&](int row) {
    const __m512 a = fold8(row), b = fold8(row + 1);
    return op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  };
  const __m512 a = fold4(0), b = fold4(2);
  return op(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
inline F ReduceAdd16(const float* p) {
  return Reduce16(p, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
inline F ReduceMax16(const float* p) {
  return Reduce16(p, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}
inline I ZeroI() { return _mm512_setzero_si512(); }
inline F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
inline I Round(F a) { return _mm512_cvtps_epi32(a); }
inline F PowerOfTwo(I n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
inline void StoreI(int32_t* p, I a) { _mm512_storeu_si512(p, a); }
inline I AddI(I a, I b) { return _mm512_add_epi32(a, b); }
inline int32_t ReduceAddI(I a) {
  const __m256i eight =
      _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti32x8_epi32(a, 1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline I ReduceAddI16(const int32_t* p) {
  const auto add = [](__m512 a, __m512 b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  };
  return _mm512_castps_si512(Reduce16(reinterpret_cast<const float*>(p), add));
}
inline void StoreI8(int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a));
}
inline B LoadB(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline B SetB(uint8_t x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
inline B AndB(B a, B b) { return {_mm512_and_si512(a.v, b.v)}; }
inline B OrB(B a, B b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kBits>
inline B ShiftRight(B a) {
  return {_mm512_srli_epi16(a.v, kBits)};
}
template <int kBits>
inline B ShiftLeft(B a) {
  return {_mm512_slli_epi16(a.v, kBits)};
}
inline B LoadTable(const uint8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline B Lookup(B table, B index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
template <bool kWide>
inline I Dot(I acc, B codes, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  return _mm512_dpbusd_epi32(acc, codes.v, _mm512_set1_epi32(quad));
}
// Forced inline: g++ 12 takes a function that only prefetches for one without effect and drops its
// calls.
__attribute__((always_inline)) inline void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
