// The 16-lane vectors on aarch64 (Advanced SIMD + dot product): four 128-bit quarters. Meaning of
// every operation: vec_scalar-inl.h.

// 32 registers: 1 x 4 accumulators of four quarters, one unit of codes and a query quad a row. One
// block by four rows and not 2 x 2: codes are then unpacked once for all rows.
constexpr int kTileBlocks = 1;
constexpr int kTileRows = KVANT_TILE(4);

struct F {
  float32x4_t v[4];
};
struct I {
  int32x4_t v[4];
};
struct B {
  uint8x16_t v[4];
};

// {fn(0), fn(1), fn(2), fn(3)}
template <typename V, typename Fn>
inline V MapQuarters(const Fn& fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}

inline F Zero() {
  return MapQuarters<F>([](int) { return vdupq_n_f32(0.0f); });
}
inline F Set(float x) {
  return MapQuarters<F>([=](int) { return vdupq_n_f32(x); });
}
inline F Load(const float* p) {
  return MapQuarters<F>([=](int i) { return vld1q_f32(p + 4 * i); });
}
inline uint16x4_t LoadHalves(const std::byte* p, int quarter) {
  return vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * quarter);
}
inline F LoadF16(const std::byte* p) {
  return MapQuarters<F>(
      [=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(LoadHalves(p, i))); });
}
inline F LoadBf16(const std::byte* p) {
  return MapQuarters<F>(
      [=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(LoadHalves(p, i), 16)); });
}
inline F WidenHalves(uint16x8_t low, uint16x8_t high) {
  const auto wide = [](uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); };
  return {{wide(vget_low_u16(low)), wide(vget_high_u16(low)), wide(vget_low_u16(high)),
           wide(vget_high_u16(high))}};
}
inline F LoadE5M2(const std::byte* p) {
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(p));
  return WidenHalves(vshll_n_u8(vget_low_u8(bytes), 8), vshll_n_u8(vget_high_u8(bytes), 8));
}
inline F LoadE4M3Over256(const std::byte* p) {
  const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  const auto half = [](int8x8_t x) {  // the sign comes twice
    return vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(x, 7)), vdupq_n_u16(0xbfff));
  };
  return WidenHalves(half(vget_low_s8(bytes)), half(vget_high_s8(bytes)));
}
inline I LoadI16(const std::byte* p) {
  return MapQuarters<I>([=](int i) { return vmovl_s16(vreinterpret_s16_u16(LoadHalves(p, i))); });
}
inline F SetF16(const std::byte* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  const float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
  return MapQuarters<F>([=](int) { return x; });
}
inline I LoadI8(const std::byte* p) {
  const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
           vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}
inline I LoadU8(const std::byte* p) {
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  const auto wide = [](uint16x4_t x) { return vreinterpretq_s32_u32(vmovl_u16(x)); };
  return {{wide(vget_low_u16(low)), wide(vget_high_u16(low)), wide(vget_low_u16(high)),
           wide(vget_high_u16(high))}};
}
inline F LoadE8M0(const std::byte* p) {
  const I bytes = LoadU8(p);
  return MapQuarters<F>([&](int i) { return vreinterpretq_f32_s32(vshlq_n_s32(bytes.v[i], 23)); });
}
inline void Store(float* p, F a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline F Add(F a, F b) {
  return MapQuarters<F>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline F Sub(F a, F b) {
  return MapQuarters<F>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline F Mul(F a, F b) {
  return MapQuarters<F>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline F Fma(F a, F b, F c) {
  return MapQuarters<F>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
// Not vmaxq_f32: of a NaN or of zeros of two signs that would give the other operand.
inline float32x4_t MaxQuarter(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline float32x4_t AddQuarter(float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }
inline F Max(F a, F b) {
  return MapQuarters<F>([&](int i) { return MaxQuarter(a.v[i], b.v[i]); });
}
inline F MaxAbs(F top, F a) {
  return MapQuarters<F>([&](int i) { return MaxQuarter(vabsq_f32(a.v[i]), top.v[i]); });
}
inline F KeepLanes(F a, int first, int end, F other) {
  constexpr int32_t kLanes[4] = {0, 1, 2, 3};
  const int32x4_t lanes = vld1q_s32(kLanes);
  return MapQuarters<F>([&](int i) {
    const uint32x4_t inside = vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(first - 4 * i)),
                                        vcltq_s32(lanes, vdupq_n_s32(end - 4 * i)));
    return vbslq_f32(inside, a.v[i], other.v[i]);
  });
}
// Halves (i, i+8), then (i, i+4), (i, i+2), (i, i+1): every lane of the result holds all of them.
template <typename Op>
inline float32x4_t ReduceQuarters(const float32x4_t (&v)[4], const Op& op) {
  const float32x4_t four = op(op(v[0], v[2]), op(v[1], v[3]));
  const float32x4_t two = op(four, vextq_f32(four, four, 2));
  return op(two, vrev64q_f32(two));
}
inline float ReduceAdd(F a) { return vgetq_lane_f32(ReduceQuarters(a.v, AddQuarter), 0); }
inline float ReduceMax(F a) { return vgetq_lane_f32(ReduceQuarters(a.v, MaxQuarter), 0); }
inline F Div(F a, F b) {
  return MapQuarters<F>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
inline F KeepAbove(F a, F x, F limit) {
  return MapQuarters<F>([&](int i) {
    const uint32x4_t above = vcgtq_f32(x.v[i], limit.v[i]);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.v[i]), above));
  });
}
inline F ReduceAdd4(F a, F b, F c, F d) {
  return {{ReduceQuarters(a.v, AddQuarter), ReduceQuarters(b.v, AddQuarter),
           ReduceQuarters(c.v, AddQuarter), ReduceQuarters(d.v, AddQuarter)}};
}
inline F ReduceMax4(F a, F b, F c, F d) {
  return {{ReduceQuarters(a.v, MaxQuarter), ReduceQuarters(b.v, MaxQuarter),
           ReduceQuarters(c.v, MaxQuarter), ReduceQuarters(d.v, MaxQuarter)}};
}
template <int kQuad>
inline F LaneQuad(F a) {
  return MapQuarters<F>([&](int) { return a.v[kQuad]; });
}
inline I SetI(int32_t x) {
  return MapQuarters<I>([=](int) { return vdupq_n_s32(x); });
}
inline I ZeroI() {
  return MapQuarters<I>([](int) { return vdupq_n_s32(0); });
}
inline F ToFloat(I a) {
  return MapQuarters<F>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
inline I Round(F a) {
  return MapQuarters<I>([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
inline F AddToExponent(F a, F biased) {
  return MapQuarters<F>([&](int i) {
    const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(biased.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a.v[i]), exponent));
  });
}
inline int32x4_t SumQuarters(I a) {  // in every lane
  const int32x4_t four = vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3]));
  const int32x4_t two = vpaddq_s32(four, four);
  return vpaddq_s32(two, two);
}
inline int32_t ReduceAddI(I a) { return vgetq_lane_s32(SumQuarters(a), 0); }
inline I ReduceAddI4(I a, I b, I c, I d) {
  return {{SumQuarters(a), SumQuarters(b), SumQuarters(c), SumQuarters(d)}};
}
inline B LoadB(const uint8_t* p) {
  return MapQuarters<B>([=](int i) { return vld1q_u8(p + 16 * i); });
}
inline B SetB(uint8_t x) {
  return MapQuarters<B>([=](int) { return vdupq_n_u8(x); });
}
inline B AndB(B a, B b) {
  return MapQuarters<B>([&](int i) { return vandq_u8(a.v[i], b.v[i]); });
}
inline B OrB(B a, B b) {
  return MapQuarters<B>([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
}
template <int kBits>
inline B ShiftRight(B a) {
  return MapQuarters<B>([&](int i) { return vshrq_n_u8(a.v[i], kBits); });
}
template <int kBits>
inline B ShiftLeft(B a) {
  return MapQuarters<B>([&](int i) { return vshlq_n_u8(a.v[i], kBits); });
}
template <int kFrom, int kCount>
inline B Bits(B a) {
  if constexpr (kFrom != 0) a = ShiftRight<kFrom>(a);
  if constexpr (kFrom + kCount != 8) a = AndB(a, SetB((1 << kCount) - 1));
  return a;
}
// The dot product takes signed bytes on both sides.
constexpr bool kTakesOff = true;
inline uint8x16_t AsWide(uint8x16_t codes) { return veorq_u8(codes, vdupq_n_u8(0x80)); }
inline B AsWide(B codes) {
  return MapQuarters<B>([&](int i) { return AsWide(codes.v[i]); });
}
inline B LoadTable(const uint8_t* p) {
  return MapQuarters<B>([=](int) { return AsWide(vld1q_u8(p)); });
}
inline B Lookup(B table, B index) {
  return MapQuarters<B>([&](int i) { return vqtbl1q_u8(table.v[i], index.v[i]); });
}
struct Table64 {
  explicit Table64(const uint8_t* p)
      : v{{AsWide(vld1q_u8(p)), AsWide(vld1q_u8(p + 16)), AsWide(vld1q_u8(p + 32)),
           AsWide(vld1q_u8(p + 48))}} {}
  uint8x16x4_t v;
};
constexpr bool kHasPermute64 = false;
using Permute64 = Table64;
inline B Lookup64(const Table64& table, B index) {
  return MapQuarters<B>([&](int i) { return vqtbl4q_u8(table.v, index.v[i]); });
}
inline B NextByte(B a) {
  return MapQuarters<B>(
      [&](int i) { return vreinterpretq_u8_u32(vshrq_n_u32(vreinterpretq_u32_u8(a.v[i]), 8)); });
}
template <int kByte>
inline I LaneBytes(B a) {
  return MapQuarters<I>([&](int i) {
    uint32x4_t lanes = vreinterpretq_u32_u8(a.v[i]);
    if constexpr (kByte != 0) lanes = vshrq_n_u32(lanes, 8 * kByte);
    return vreinterpretq_s32_u32(vandq_u32(lanes, vdupq_n_u32(255)));
  });
}
constexpr int kQuadStepBytes = 16, kQuadBytes = 4;
inline B PackQuads(I a, I b, I c, I d) {
  const auto pack = [](I x) {  // the low byte of each lane
    const auto halves = [](int32x4_t low, int32x4_t high) {
      return vuzp1q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high));
    };
    return vuzp1q_u8(vreinterpretq_u8_s16(halves(x.v[0], x.v[1])),
                     vreinterpretq_u8_s16(halves(x.v[2], x.v[3])));
  };
  return {{pack(a), pack(b), pack(c), pack(d)}};
}
inline void StoreB(int8_t* p, B a) {
  for (int i = 0; i < 4; ++i) vst1q_s8(p + 16 * i, vreinterpretq_s8_u8(a.v[i]));
}
inline I SumBytes(I acc, B x) {
  return MapQuarters<I>(
      [&](int i) { return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(x.v[i]), vdupq_n_s8(1)); });
}
template <bool kWide, int kQuad>
inline I Dot(I acc, B codes, const int8_t* x) {
  const int8x16_t quads = vld1q_s8(x);  // once for all four: the compiler sees that they are equal
  return MapQuarters<I>([&](int i) {
    return vdotq_laneq_s32(acc.v[i], vreinterpretq_s8_u8(codes.v[i]), quads, kQuad);
  });
}
inline int32_t TakenOff(const int8_t* x, int first_step, int end_step) {
  int32x4_t sum = vdupq_n_s32(0);
  for (int step = first_step; step < end_step; ++step) {
    sum = vdotq_s32(sum, vdupq_n_s8(1), vld1q_s8(x + step * kQuadStepBytes));
  }
  return 128 * vaddvq_s32(sum);
}
// Forced inline: g++ 12 takes a function that only prefetches for one without effect and drops its
// calls.
__attribute__((always_inline)) inline void Prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
