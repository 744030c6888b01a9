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
inline F Abs(F a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
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
// Eight rows of p at once: halves (i, i+8), then (i, i+4), (i, i+2), (i, i+1). The rows enter in
// the order that leaves lane i with row i.
template <typename Op>
inline __m256 Reduce8(const float* p, const Op& op) {
  const auto fold16 = [&](int row) {
    return op(_mm256_loadu_ps(p + 16 * row), _mm256_loadu_ps(p + 16 * row + 8));
  };
  const auto fold8 = [&](int row) {  // rows `row` and `row + 4`, 4 lanes each
    const __m256 a = fold16(row), b = fold16(row + 4);
    return op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto fold4 = [&](int row) {
    const __m256 a = fold8(row), b = fold8(row + 1);
    return op(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  };
  const __m256 a = fold4(0), b = fold4(2);
  return op(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
inline F ReduceAdd16(const float* p) {
  const auto add = [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); };
  return {Reduce8(p, add), Reduce8(p + 128, add)};
}
inline F ReduceMax16(const float* p) {
  const auto max = [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); };
  return {Reduce8(p, max), Reduce8(p + 128, max)};
}
inline I ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline F ToFloat(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I Round(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline F PowerOfTwo(I n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
inline void StoreI(int32_t* p, I a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline I AddI(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline int32_t ReduceAddI(I a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline I ReduceAddI16(const int32_t* p) {
  const auto add = [](__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  };
  const float* bits = reinterpret_cast<const float*>(p);
  return {_mm256_castps_si256(Reduce8(bits, add)), _mm256_castps_si256(Reduce8(bits + 128, add))};
}
inline void StoreI8(int8_t* p, I a) {
  __m256i words = _mm256_packs_epi32(a.lo, a.hi);  // 0-3 8-11 | 4-7 12-15
  words = _mm256_permute4x64_epi64(words, 0xd8);   // in order
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
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
inline B LoadTable(const uint8_t* p) {
  const __m256i t =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {t, t};
}
inline B Lookup(B table, B index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}

// One half. Without VNNI vpmaddubsw saturates at 16 bits, so codes above 127 go by nibbles.
template <bool kWide>
inline __m256i DotHalf(__m256i acc, __m256i codes, __m256i x) {
#ifdef KVANT_DPBUSD
  return _mm256_dpbusd_avx_epi32(acc, codes, x);
#else
  const __m256i one = _mm256_set1_epi16(1);
  if constexpr (kWide) {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(codes, nibble), x);
    const __m256i high =
        _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), x);
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(low, one));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
  } else {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), one));
  }
#endif
}
template <bool kWide>
inline I Dot(I acc, B codes, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  const __m256i q = _mm256_set1_epi32(quad);
  return {DotHalf<kWide>(acc.lo, codes.lo, q), DotHalf<kWide>(acc.hi, codes.hi, q)};
}
// Forced inline: g++ 12 takes a function that only prefetches for one without effect and drops its
// calls.
__attribute__((always_inline)) inline void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
