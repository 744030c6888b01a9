// The 16-lane vectors on AVX2 + FMA + F16C: two 256-bit halves. KVANT_DPBUSD selects the AVX-VNNI
// integer dot. Meaning of every operation: vec_scalar-inl.h.

// 16 registers: 2 x 2 accumulators of two halves leave room for codes, query and constants.
constexpr int kTileBlocks = KVANT_TILE(2);
constexpr int kTileRows = KVANT_TILE(2);

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
struct B {
  __m256i lo, hi;
};

inline F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline __m128i Load128(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F LoadF16(const std::byte* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 16))};
}
inline __m256 WidenBf16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline F LoadBf16(const std::byte* p) {
  return {WidenBf16(Load128(p)), WidenBf16(Load128(p + 16))};
}
inline I LoadI16(const std::byte* p) {
  return {_mm256_cvtepi16_epi32(Load128(p)), _mm256_cvtepi16_epi32(Load128(p + 16))};
}
inline F SetF16(const std::byte* p) {
  int16_t half;
  __builtin_memcpy(&half, p, 2);
  const __m256 x = _mm256_cvtph_ps(_mm_set1_epi16(half));
  return {x, x};
}
inline __m128i Load64(const std::byte* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline F WidenHalves(__m256i halves) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
inline F LoadE5M2(const std::byte* p) {
  return WidenHalves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(Load128(p)), 8));
}
inline F LoadE4M3Over256(const std::byte* p) {
  const __m256i moved = _mm256_slli_epi16(_mm256_cvtepi8_epi16(Load128(p)), 7);  // the sign twice
  return WidenHalves(_mm256_and_si256(moved, _mm256_set1_epi16(~0x4000)));
}
inline I LoadI8(const std::byte* p) {
  return {_mm256_cvtepi8_epi32(Load64(p)), _mm256_cvtepi8_epi32(Load64(p + 8))};
}
inline I LoadU8(const std::byte* p) {
  return {_mm256_cvtepu8_epi32(Load64(p)), _mm256_cvtepu8_epi32(Load64(p + 8))};
}
inline F LoadE8M0(const std::byte* p) {
  const I bytes = LoadU8(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bytes.lo, 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(bytes.hi, 23))};
}
inline void Store(float* p, F a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline F Add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F Sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F Mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F Fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F Max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F MaxAbs(F top, F a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_max_ps(_mm256_andnot_ps(sign, a.lo), top.lo),
          _mm256_max_ps(_mm256_andnot_ps(sign, a.hi), top.hi)};
}
inline F KeepLanes(F a, int first, int end, F other) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i before = _mm256_set1_epi32(first - 1), after = _mm256_set1_epi32(end);
  const auto inside = [&](__m256i lane) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(lane, before), _mm256_cmpgt_epi32(after, lane)));
  };
  return {_mm256_blendv_ps(other.lo, a.lo, inside(low)),
          _mm256_blendv_ps(other.hi, a.hi, inside(high))};
}
inline float ReduceAdd(F a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float ReduceMax(F a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline F Div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F KeepAbove(F a, F x, F limit) {
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GT_OQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GT_OQ))};
}
// Two rows: lanes 0 .. 3 of the result reduce the first, lanes 4 .. 7 the second.
template <typename Op>
KVANT_INLINE __m256 Reduce2(F a, F b, const Op& op) {
  const __m256 first = op(a.lo, a.hi), second = op(b.lo, b.hi);
  __m256 four =
      op(_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31));
  four = op(four, _mm256_permute_ps(four, 0x4e));
  return op(four, _mm256_permute_ps(four, 0xb1));
}
inline F ReduceAdd4(F a, F b, F c, F d) {
  const auto add = [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); };
  return {Reduce2(a, b, add), Reduce2(c, d, add)};
}
inline F ReduceMax4(F a, F b, F c, F d) {
  const auto max = [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); };
  return {Reduce2(a, b, max), Reduce2(c, d, max)};
}
template <int kQuad>
inline F LaneQuad(F a) {
  const __m256 half = kQuad < 2 ? a.lo : a.hi;
  const __m256 all = _mm256_permute2f128_ps(half, half, kQuad % 2 * 0x11);
  return {all, all};
}
inline I ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I SetI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F ToFloat(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I Round(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline F AddToExponent(F a, F biased) {
  const auto add = [](__m256 x, __m256 n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  };
  return {add(a.lo, biased.lo), add(a.hi, biased.hi)};
}
inline int32_t ReduceAddI(I a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline I ReduceAddI4(I a, I b, I c, I d) {
  const auto add = [](__m256 x, __m256 y) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
  };
  const auto bits = [](I x) { return F{_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; };
  const F sums = {Reduce2(bits(a), bits(b), add), Reduce2(bits(c), bits(d), add)};
  return {_mm256_castps_si256(sums.lo), _mm256_castps_si256(sums.hi)};
}
inline B LoadB(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline B SetB(uint8_t x) {
  const __m256i v = _mm256_set1_epi8(static_cast<char>(x));
  return {v, v};
}
inline B AndB(B a, B b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline B OrB(B a, B b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int kBits>
inline B ShiftRight(B a) {
  return {_mm256_srli_epi16(a.lo, kBits), _mm256_srli_epi16(a.hi, kBits)};
}
template <int kBits>
inline B ShiftLeft(B a) {
  return {_mm256_slli_epi16(a.lo, kBits), _mm256_slli_epi16(a.hi, kBits)};
}
template <int kFrom, int kCount>
inline B Bits(B a) {
  if constexpr (kFrom != 0) a = ShiftRight<kFrom>(a);
  return AndB(a, SetB((1 << kCount) - 1));
}
#ifdef KVANT_DPBUSD
constexpr bool kTakesOff = false;
inline B AsWide(B codes) { return codes; }
#else
constexpr bool kTakesOff = true;
inline B AsWide(B codes) {
  const __m256i top = _mm256_set1_epi8(-128);
  return {_mm256_xor_si256(codes.lo, top), _mm256_xor_si256(codes.hi, top)};
}
#endif
inline B LoadTable(const uint8_t* p) {
  const __m256i t =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return AsWide({t, t});
}
inline B Lookup(B table, B index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}
struct Table64 {
  explicit Table64(const uint8_t* p)
      : v{LoadTable(p).lo, LoadTable(p + 16).lo, LoadTable(p + 32).lo, LoadTable(p + 48).lo} {}
  __m256i v[4];
};
constexpr bool kHasPermute64 = false;
using Permute64 = Table64;
// One half, by quarters that bits 4 and 5 choose.
inline __m256i LookupHalf(const Table64& t, __m256i index) {
  const __m256i odd = _mm256_slli_epi16(index, 3), upper = _mm256_slli_epi16(index, 2);
  const __m256i low = _mm256_blendv_epi8(_mm256_shuffle_epi8(t.v[0], index),
                                         _mm256_shuffle_epi8(t.v[1], index), odd);
  const __m256i high = _mm256_blendv_epi8(_mm256_shuffle_epi8(t.v[2], index),
                                          _mm256_shuffle_epi8(t.v[3], index), odd);
  return _mm256_blendv_epi8(low, high, upper);
}
inline B Lookup64(const Table64& t, B index) {
  return {LookupHalf(t, index.lo), LookupHalf(t, index.hi)};
}
inline B NextByte(B a) { return {_mm256_srli_epi32(a.lo, 8), _mm256_srli_epi32(a.hi, 8)}; }
template <int kByte>
inline I LaneBytes(B a) {
  const __m256i byte = _mm256_set1_epi32(255);
  return {_mm256_and_si256(_mm256_srli_epi32(a.lo, 8 * kByte), byte),
          _mm256_and_si256(_mm256_srli_epi32(a.hi, 8 * kByte), byte)};
}

// One half. Without VNNI vpmaddubsw adds pairs in 16 bits, which codes above 127 would overflow.
// Signed ones do not: their sign goes over to x, and 2 * 128 * 127 is in range.
template <bool kWide>
inline __m256i DotHalf(__m256i acc, __m256i codes, __m256i x) {
#ifdef KVANT_DPBUSD
  return _mm256_dpbusd_avx_epi32(acc, codes, x);
#else
  if constexpr (kWide) {
    x = _mm256_sign_epi8(x, codes);
    codes = _mm256_abs_epi8(codes);
  }
  const __m256i pairs = _mm256_maddubs_epi16(codes, x);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
// Packs work inside 128-bit halves; a permutation of dwords puts the bytes in order.
constexpr int kQuadStepBytes = 16, kQuadBytes = 4;
inline B PackQuads(I a, I b, I c, I d) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const auto pack = [&](I x, I y) {  // lanes 0-3, 8-11 of x, of y | 4-7, 12-15 of x, of y
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(x.lo, x.hi), _mm256_packs_epi32(y.lo, y.hi));
    return _mm256_permutevar8x32_epi32(bytes, order);
  };
  return {pack(a, b), pack(c, d)};
}
inline void StoreB(int8_t* p, B a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline I SumBytes(I acc, B x) {
  const auto add = [](__m256i sum, __m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  };
  return {add(acc.lo, x.lo), add(acc.hi, x.hi)};
}
template <bool kWide, int kQuad>
inline I Dot(I acc, B codes, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x + kQuad * kQuadBytes, sizeof quad);
  const __m256i q = _mm256_set1_epi32(quad);
  return {DotHalf<kWide>(acc.lo, codes.lo, q), DotHalf<kWide>(acc.hi, codes.hi, q)};
}
#ifdef KVANT_DPBUSD
inline int32_t TakenOff(const int8_t*, int, int) { return 0; }
#else
inline int32_t TakenOff(const int8_t* x, int first_step, int end_step) {
  __m128i pairs = _mm_setzero_si128();  // 254 a step at most
  for (int step = first_step; step < end_step; ++step) {
    const auto* const at = reinterpret_cast<const __m128i*>(x + step * kQuadStepBytes);
    pairs = _mm_add_epi16(pairs, _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128(at)));
  }
  __m128i four = _mm_madd_epi16(pairs, _mm_set1_epi16(128));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
#endif
// Forced inline: g++ 12 takes a function that only prefetches for one without effect and drops its
// calls.
__attribute__((always_inline)) inline void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
