// Vectors of 16 lanes in plain C++: the reference meaning of every operation that the attention
// kernels use. Its AVX2, AVX-512 and NEON twins give the same bits. Included once, inside an
// anonymous namespace, by the ISA's own source file.

// Accumulator tile of the integer dot, lane blocks x rows. 2 x 2 is no faster here: sixteen lanes
// are an array, which no register holds.
constexpr int kTileBlocks = 1;
constexpr int kTileRows = 1;

struct F {
  float v[16];
};  // 16 floats
struct I {
  int32_t v[16];
};  // 16 signed integers
struct B {
  uint8_t v[64];
};  // 16 lanes x 4 bytes

template <typename Fn>
inline F MapF(const Fn& fn) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
  return r;
}

inline F Zero() {
  return MapF([](int) { return 0.0f; });
}
inline F Set(float x) {
  return MapF([=](int) { return x; });
}
inline F Load(const float* p) {
  return MapF([=](int i) { return p[i]; });
}
inline F LoadF16(const std::byte* p) {
  return MapF([=](int i) {
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    const uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ffu;
    float magnitude;
    if (exponent == 0) {
      magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    } else {
      const uint32_t bits = ((exponent == 0x1f ? 255u : exponent + 112u) << 23) | (mantissa << 13);
      std::memcpy(&magnitude, &bits, 4);
    }
    return h & 0x8000 ? -magnitude : magnitude;
  });
}
inline F LoadBf16(const std::byte* p) {
  return MapF([=](int i) {
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  });
}
// 8-bit floats: E5M2 is the high byte of an f16; an f16 of 2^-8 times an E4M3 has the same fields.
inline F LoadE5M2(const std::byte* p) {
  std::byte halves[32];
  for (int i = 0; i < 16; ++i) {
    halves[2 * i] = std::byte{0};
    halves[2 * i + 1] = p[i];
  }
  return LoadF16(halves);
}
inline F LoadE4M3Over256(const std::byte* p) {
  std::byte halves[32];
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned>(p[i]);
    const auto half = static_cast<uint16_t>((byte & 0x80u) << 8 | (byte & 0x7fu) << 7);
    std::memcpy(halves + 2 * i, &half, 2);
  }
  return LoadF16(halves);
}
// 2^(byte - 127); 0 for byte 0, which encoders keep for groups of zeros.
inline F LoadE8M0(const std::byte* p) {
  return MapF([=](int i) {
    const uint32_t bits = static_cast<uint32_t>(p[i]) << 23;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  });
}
inline I LoadI16(const std::byte* p) {
  I r;
  for (int i = 0; i < 16; ++i) {
    int16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    r.v[i] = h;
  }
  return r;
}
inline F SetF16(const std::byte* p) {
  std::byte lanes[32];
  for (int i = 0; i < 16; ++i) std::memcpy(lanes + 2 * i, p, 2);
  return LoadF16(lanes);
}
inline I LoadI8(const std::byte* p) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int8_t>(p[i]);
  return r;
}
inline I LoadU8(const std::byte* p) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<uint8_t>(p[i]);
  return r;
}
inline void Store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
inline F Add(F a, F b) {
  return MapF([&](int i) { return a.v[i] + b.v[i]; });
}
inline F Sub(F a, F b) {
  return MapF([&](int i) { return a.v[i] - b.v[i]; });
}
inline F Mul(F a, F b) {
  return MapF([&](int i) { return a.v[i] * b.v[i]; });
}
inline F Fma(F a, F b, F c) {
  return MapF([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F Max(F a, F b) {
  return MapF([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
// The larger of top and |a|; top is not negative.
inline F MaxAbs(F top, F a) {
  return MapF([&](int i) { return std::fabs(a.v[i]) > top.v[i] ? std::fabs(a.v[i]) : top.v[i]; });
}
// Lanes first..end-1 of a, `other` elsewhere.
inline F KeepLanes(F a, int first, int end, F other) {
  return MapF([&](int i) { return i >= first && i < end ? a.v[i] : other.v[i]; });
}
// Sums and maxima over lanes, always by halves: (i, i+8), (i, i+4), (i, i+2), (i, i+1).
inline float ReduceAdd(F a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
inline float ReduceMax(F a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}
inline F Div(F a, F b) {
  return MapF([&](int i) { return a.v[i] / b.v[i]; });
}
// a where x > limit, 0 elsewhere.
inline F KeepAbove(F a, F x, F limit) {
  return MapF([&](int i) { return x.v[i] > limit.v[i] ? a.v[i] : 0.0f; });
}
// Lanes 4r .. 4r + 3 of the result hold what row r of a, b, c, d reduces to, in the order of
// ReduceAdd and ReduceMax.
inline F ReduceAdd4(F a, F b, F c, F d) {
  const float rows[4] = {ReduceAdd(a), ReduceAdd(b), ReduceAdd(c), ReduceAdd(d)};
  return MapF([&](int i) { return rows[i / 4]; });
}
inline F ReduceMax4(F a, F b, F c, F d) {
  const float rows[4] = {ReduceMax(a), ReduceMax(b), ReduceMax(c), ReduceMax(d)};
  return MapF([&](int i) { return rows[i / 4]; });
}
// Row kQuad of such a result in all lanes.
template <int kQuad>
inline F LaneQuad(F a) {
  return Set(a.v[4 * kQuad]);
}
inline I ZeroI() { return I{}; }
inline I SetI(int32_t x) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = x;
  return r;
}
inline F ToFloat(I a) {
  return MapF([&](int i) { return static_cast<float>(a.v[i]); });
}
// Round half to even.
inline I Round(F a) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int32_t>(std::rint(a.v[i]));
  return r;
}
// a * 2^n, where biased = 1.5 * 2^23 + n; both a and the product are normal.
inline F AddToExponent(F a, F biased) {
  return MapF([&](int i) {
    uint32_t bits, n;
    std::memcpy(&bits, &a.v[i], 4);
    std::memcpy(&n, &biased.v[i], 4);
    bits += n << 23;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  });
}
inline int32_t ReduceAddI(I a) {
  int32_t sum = 0;
  for (int32_t x : a.v) sum += x;
  return sum;
}
inline I ReduceAddI4(I a, I b, I c, I d) {
  const int32_t rows[4] = {ReduceAddI(a), ReduceAddI(b), ReduceAddI(c), ReduceAddI(d)};
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = rows[i / 4];
  return r;
}
inline B LoadB(const uint8_t* p) {
  B r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
inline B SetB(uint8_t x) {
  B r;
  std::memset(r.v, x, sizeof r.v);
  return r;
}
inline B AndB(B a, B b) {
  for (int i = 0; i < 64; ++i) a.v[i] &= b.v[i];
  return a;
}
inline B OrB(B a, B b) {
  for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i];
  return a;
}
// Shifts within pairs of bytes; bits that cross a byte are masked away by the caller.
template <int kBits>
inline B ShiftRight(B a) {
  for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] >> kBits);
  return a;
}
template <int kBits>
inline B ShiftLeft(B a) {
  for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] << kBits);
  return a;
}
// Bits kFrom .. kFrom + kCount - 1 of every byte.
template <int kFrom, int kCount>
inline B Bits(B a) {
  if constexpr (kFrom != 0) a = ShiftRight<kFrom>(a);
  return AndB(a, SetB((1 << kCount) - 1));
}
// Codes that may be above 127 as Dot takes them: less 128 where kTakesOff. LoadTable and Table64 do
// that to what they load.
constexpr bool kTakesOff = false;
inline B AsWide(B codes) { return codes; }
// table[index], 16 entries, index 0..15 in every byte.
inline B LoadTable(const uint8_t* p) {
  B r{};
  for (int i = 0; i < 64; ++i) r.v[i] = p[i % 16];
  return r;
}
inline B Lookup(B table, B index) {
  for (int i = 0; i < 64; ++i) index.v[i] = table.v[index.v[i]];
  return index;
}
// The same with 64 entries, index 0..63.
struct Table64 {
  explicit Table64(const uint8_t* p) { std::memcpy(v, p, sizeof v); }
  uint8_t v[64];
};
constexpr bool kHasPermute64 = false;  // whether a level can do the same at once on some CPUs
using Permute64 = Table64;
inline B Lookup64(const Table64& table, B index) {
  for (int i = 0; i < 64; ++i) index.v[i] = table.v[index.v[i]];
  return index;
}
// Every byte of a lane takes the place of the one before it; the last becomes 0.
inline B NextByte(B a) {
  for (int i = 0; i < 64; ++i) a.v[i] = i % 4 == 3 ? uint8_t{0} : a.v[i + 1];
  return a;
}
// Byte kByte of every lane.
template <int kByte>
inline I LaneBytes(B a) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = a.v[4 * i + kByte];
  return r;
}
// 64 rounded values, -127..127 each, as bytes. They are read quad by quad (4 consecutive values): a
// level may order the quads as its packs leave them. Quad q of vector v stands at byte
// v * kQuadStepBytes + q * kQuadBytes.
constexpr int kQuadStepBytes = 16, kQuadBytes = 4;
inline B PackQuads(I a, I b, I c, I d) {
  B r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = static_cast<uint8_t>(a.v[i]);
    r.v[16 + i] = static_cast<uint8_t>(b.v[i]);
    r.v[32 + i] = static_cast<uint8_t>(c.v[i]);
    r.v[48 + i] = static_cast<uint8_t>(d.v[i]);
  }
  return r;
}
inline void StoreB(int8_t* p, B a) { std::memcpy(p, a.v, sizeof a.v); }
// acc + the sum of all signed bytes, spread over lanes in any way.
inline I SumBytes(I acc, B x) {
  for (int i = 0; i < 64; ++i) acc.v[i / 4] += static_cast<int8_t>(x.v[i]);
  return acc;
}
// acc[lane] += sum over 4 bytes of codes[4 * lane + i] * q[i], where q is quad kQuad of the vector
// that begins at x, exactly. kWide: codes came through AsWide.
template <bool kWide, int kQuad>
inline I Dot(I acc, B codes, const int8_t* x) {
  const int8_t* q = x + kQuad * kQuadBytes;
  for (int lane = 0; lane < 16; ++lane) {
    for (int i = 0; i < 4; ++i) acc.v[lane] += codes.v[4 * lane + i] * q[i];
  }
  return acc;
}
// What the dots of wide codes with steps [first, end) of the vector x lack where kTakesOff:
// 128 * sum(x) in every lane.
inline int32_t TakenOff(const int8_t*, int, int) { return 0; }
// Asks for a line, into L2.
inline void Prefetch(const void*) {}
