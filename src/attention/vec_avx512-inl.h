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
inline F SetF16(const std::byte* p) {
  int16_t half;
  __builtin_memcpy(&half, p, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}
inline __m128i Load128(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F LoadE5M2(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(Load128(p)), 8));
}
inline F LoadE4M3Over256(const std::byte* p) {
  const __m256i moved = _mm256_slli_epi16(_mm256_cvtepi8_epi16(Load128(p)), 7);  // the sign twice
  return _mm512_cvtph_ps(_mm256_and_si256(moved, _mm256_set1_epi16(~0x4000)));
}
inline F LoadE8M0(const std::byte* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(Load128(p)), 23));
}
inline I LoadI8(const std::byte* p) { return _mm512_cvtepi8_epi32(Load128(p)); }
inline I LoadU8(const std::byte* p) { return _mm512_cvtepu8_epi32(Load128(p)); }
inline void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
inline F Add(F a, F b) { return _mm512_add_ps(a, b); }
inline F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F Max(F a, F b) { return _mm512_max_ps(a, b); }
inline F MaxAbs(F top, F a) { return _mm512_range_ps(top, a, 0x0b); }
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
template <typename Op>
KVANT_INLINE __m512 Reduce4(__m512 a, __m512 b, __m512 c, __m512 d, const Op& op) {
  const auto halves = [&](__m512 x, __m512 y) KVANT_INLINE_LAMBDA {
    return op(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  };
  const __m512 ab = halves(a, b), cd = halves(c, d);
  __m512 four = op(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  four = op(four, _mm512_permute_ps(four, 0x4e));
  return op(four, _mm512_permute_ps(four, 0xb1));
}
inline F ReduceAdd4(F a, F b, F c, F d) {
  return Reduce4(a, b, c, d, [](__m512 x, __m512 y) { return _mm512_add_ps(x, y); });
}
inline F ReduceMax4(F a, F b, F c, F d) {
  return Reduce4(a, b, c, d, [](__m512 x, __m512 y) { return _mm512_max_ps(x, y); });
}
template <int kQuad>
inline F LaneQuad(F a) {
  return _mm512_shuffle_f32x4(a, a, kQuad * 0x55);
}
inline I ZeroI() { return _mm512_setzero_si512(); }
inline I SetI(int32_t x) { return _mm512_set1_epi32(x); }
inline F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
inline I Round(F a) { return _mm512_cvtps_epi32(a); }
inline F AddToExponent(F a, F biased) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(biased), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), exponent));
}
inline int32_t ReduceAddI(I a) {
  const __m256i eight =
      _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti32x8_epi32(a, 1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline I ReduceAddI4(I a, I b, I c, I d) {
  const auto add = [](__m512 x, __m512 y) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
  };
  return _mm512_castps_si512(Reduce4(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b),
                                     _mm512_castsi512_ps(c), _mm512_castsi512_ps(d), add));
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
template <int kFrom, int kCount>
inline B Bits(B a) {
  if constexpr (kFrom != 0) a = ShiftRight<kFrom>(a);
  return AndB(a, SetB((1 << kCount) - 1));
}
constexpr bool kTakesOff = false;
inline B AsWide(B codes) { return codes; }
inline B LoadTable(const uint8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline B Lookup(B table, B index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
// By quarters, chosen by bits 4 and 5.
struct Table64 {
  explicit Table64(const uint8_t* p)
      : v{LoadTable(p).v, LoadTable(p + 16).v, LoadTable(p + 32).v, LoadTable(p + 48).v} {}
  __m512i v[4];
};
inline B Lookup64(const Table64& t, B index) {
  const __mmask64 odd = _mm512_test_epi8_mask(index.v, _mm512_set1_epi8(16));
  const __mmask64 upper = _mm512_test_epi8_mask(index.v, _mm512_set1_epi8(32));
  const __m512i low =
      _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(t.v[0], index.v), odd, t.v[1], index.v);
  const __m512i high =
      _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(t.v[2], index.v), odd, t.v[3], index.v);
  return {_mm512_mask_blend_epi8(upper, low, high)};
}
// The same at once, where CanPermuteBytes(): not every CPU with VNNI has VBMI, so this file is
// compiled without. Attention over trellis codes of 4 bits takes 20 % less time with it (Zen 4).
constexpr bool kHasPermute64 = true;
struct Permute64 {
  explicit Permute64(const uint8_t* p) : v(_mm512_loadu_si512(p)) {}
  __m512i v;
};
inline B Lookup64(const Permute64& t, B index) {
  __m512i levels;
  asm("vpermb %2, %1, %0" : "=v"(levels) : "v"(index.v), "v"(t.v));
  return {levels};
}
inline B NextByte(B a) { return {_mm512_srli_epi32(a.v, 8)}; }
template <int kByte>
inline I LaneBytes(B a) {
  return _mm512_and_si512(_mm512_srli_epi32(a.v, 8 * kByte), _mm512_set1_epi32(255));
}
// Both packs work inside 128-bit lanes: dword 4b + j holds lanes 4b .. 4b + 3 of vector j.
constexpr int kQuadStepBytes = 4, kQuadBytes = 16;
inline B PackQuads(I a, I b, I c, I d) {
  return {_mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d))};
}
inline void StoreB(int8_t* p, B a) { _mm512_storeu_si512(p, a.v); }
inline I SumBytes(I acc, B x) { return _mm512_dpbusd_epi32(acc, _mm512_set1_epi8(1), x.v); }
template <bool kWide, int kQuad>
inline I Dot(I acc, B codes, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x + kQuad * kQuadBytes, sizeof quad);
  return _mm512_dpbusd_epi32(acc, codes.v, _mm512_set1_epi32(quad));
}
inline int32_t TakenOff(const int8_t*, int, int) { return 0; }
// Forced inline: g++ 12 takes a function that only prefetches for one without effect and drops its
// calls.
__attribute__((always_inline)) inline void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
