// The vector encoder of FP8 and FP4 sides, included once by every vector level behind lanes-inl.h
// inside an anonymous namespace; the level defines LoadHalves. The formulas are those of
// small_float.cc and base/float8.h, 16 lanes at once; sums run in the same order.

using Doubles = double __attribute__((vector_size(8 * kTileLanes)));

// kTileLanes values of an f16 side.
void LoadHalves(const std::byte* from, Floats& to);

inline Ints BitsOf(const Floats& x) { return reinterpret_cast<Ints>(x); }
inline Floats FloatsOf(const Ints& x) { return reinterpret_cast<Floats>(x); }
inline Floats Magnitude(const Floats& x) { return FloatsOf(BitsOf(x) & 0x7fffffff); }
inline Ints SignOf(const Floats& x) { return (BitsOf(x) >> 31) & 1; }  // 1 of negative ones
inline Floats SplatOf(float x) { return Floats{} + x; }

// ---- values to codes

inline Ints E2M1Of(const Floats& x) {
  const Floats a = Magnitude(x);
  const Ints code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                    (a >= 3.5f) + (a > 5.0f);  // a true comparison is -1
  return -code | SignOf(x) << 3;
}

inline Ints WholeNumberOf(const Floats& x) {
  constexpr float kToWhole = 12582912.0f;  // 1.5 * 2^23: rounds to nearest even
  Floats q = x * (7.0f / 6.0f);
  q = q > 7.0f ? SplatOf(7.0f) : q;
  q = q < -7.0f ? SplatOf(-7.0f) : q;
  return __builtin_convertvector((q + kToWhole) - kToWhole, Ints) & 15;
}

template <int kMantissa, int kBias, int kLast>
inline Ints Float8Of(const Floats& x) {
  constexpr int kShift = 23 - kMantissa;
  constexpr int kUnit = (127 + 23 + 1 - kBias - kMantissa) << 23;
  const Ints magnitude = BitsOf(x) & 0x7fffffff;
  const Ints small = BitsOf(FloatsOf(magnitude) + FloatsOf(Ints{} + kUnit)) - kUnit;
  const Ints odd = (magnitude >> kShift) & 1;
  Ints code =
      ((magnitude + ((1 << (kShift - 1)) - 1) + odd) >> kShift) - ((127 - kBias) << kMantissa);
  code = code > kLast ? Ints{} + kLast : code;
  code = magnitude < ((128 - kBias) << 23) ? small : code;
  return code | SignOf(x) << 7;
}
inline Ints E4M3Of(const Floats& x) { return Float8Of<3, 7, 0x7e>(x); }
inline Ints E5M2Of(const Floats& x) { return Float8Of<2, 15, 0x7b>(x); }

// ---- scales

// Of the positive finite codes.
inline Floats FromE4M3(const Ints& code) {
  const Floats small = __builtin_convertvector(code, Floats) * 0x1p-9f;
  return code < 8 ? small : FloatsOf((code << 20) + ((127 - 7) << 23));
}

// Scales of the groups of a tile: as stored, and as a decoder reads them.
struct Scales {
  Ints stored;
  Floats value;
};

Scales HalfScales(const Floats& step) {
  Scales s;
  for (int l = 0; l < kTileLanes; ++l) {
    const uint16_t half = StepHalfOf(step[l]);
    s.stored[l] = half;
    s.value[l] = FloatOfHalf(half);
  }
  return s;
}

inline Scales PowerScales(const Ints& biased) {
  Ints byte = biased < 1 ? Ints{} + 1 : biased;
  byte = byte > 254 ? Ints{} + 254 : byte;
  return {byte, FloatsOf(byte << 23)};
}

inline Scales E4M3Scales(const Floats& step) {
  const Ints rounded = E4M3Of(step), byte = rounded < 1 ? Ints{} + 1 : rounded;
  return {byte, FromE4M3(byte)};
}

Scales ScalesOf(const SmallFloatPlan& plan, const Floats& amax) {
  switch (plan.scale) {
    case Scale::kF16:
      return HalfScales(amax / (plan.levels == Levels::kE4M3 ? 448.0f : 57344.0f));
    case Scale::kE8M0:
      return PowerScales((BitsOf(amax) >> 23) - 2);
    case Scale::kE8M0Nearest: {
      const Ints bits = BitsOf(amax * 0.2f);
      const Floats mantissa = FloatsOf((bits & 0x7fffff) | 126 << 23);  // in [.5, 1)
      return PowerScales((bits >> 23) + (mantissa < 0.70710678f ? Ints{} : Ints{} + 1));
    }
    default:
      return E4M3Scales(amax / 6.0f);
  }
}

// ---- the two ways of nvfp4_4over6 and if4

bool HasChoice(const SmallFloatPlan& plan) {
  return plan.levels == Levels::kIf4 || plan.scale == Scale::kE4M3FourOrSix;
}

// A group that goes the second way: amax / 4, or whole numbers.
Scales SecondWay(const SmallFloatPlan& plan, const Floats& amax, const Scales& first) {
  if (plan.levels == Levels::kIf4) return {first.stored | 0x80, first.value};
  return E4M3Scales(amax / 4.0f);
}

inline Floats FromE2M1(const Ints& code) {
  const Ints exponent = (code >> 1) & 3, half = code & 1;
  const Floats small = __builtin_convertvector(half, Floats) * 0.5f;
  const Floats value = exponent == 0 ? small : FloatsOf((exponent + 126) << 23 | half << 22);
  return FloatsOf(BitsOf(value) | (code & 8) << 28);
}

// Squared errors of a tile's values with these scales.
//   whole: -1 where codes are whole numbers
inline Doubles SquaredErrors(const Floats& x, const Floats& scale, bool whole) {
  const Floats unit = x / scale;
  Floats value;
  if (whole) {
    const Ints code = WholeNumberOf(unit);
    value = scale * ((6.0f / 7.0f) * __builtin_convertvector((code ^ 8) - 8, Floats));
  } else {
    value = scale * FromE2M1(E2M1Of(unit));
  }
  const Doubles off = __builtin_convertvector(x, Doubles) - __builtin_convertvector(value, Doubles);
  return off * off;
}

// Replaces `scales` by `second` where that has the smaller error.
//   errors: of the first and of the second way
void Choose(const double (&errors)[2][kTileLanes], const Scales& second, Scales& scales) {
  for (int l = 0; l < kTileLanes; ++l) {
    if (!(errors[1][l] < errors[0][l])) continue;
    scales.stored[l] = second.stored[l];
    scales.value[l] = second.value[l];
  }
}

// ---- codes

// Codes of values whose groups have these scales; 0 in groups of zeros.
inline Ints CodesOf(const SmallFloatPlan& plan, const Floats& x, const Ints& stored,
                    const Floats& scale, const Ints& counts) {
  const Floats unit = x / scale;
  switch (plan.levels) {
    case Levels::kE4M3:
      return E4M3Of(unit) & counts;
    case Levels::kE5M2:
      return E5M2Of(unit) & counts;
    case Levels::kIf4:
      return ((stored & 0x80) != 0 ? WholeNumberOf(unit) : E2M1Of(unit)) & counts;
    default:
      return E2M1Of(unit) & counts;
  }
}

void StoreBytes(std::byte* to, const Ints& codes) {
  const Bytes bytes = __builtin_convertvector(codes, Bytes);
  __builtin_memcpy(to, &bytes, sizeof bytes);
}

// Scales of a tile's tokens, from `first` on.
void StoreScales(const SmallFloatPlan& plan, const Ints& stored, int group, int first,
                 std::byte* metadata) {
  std::byte* to = metadata + (group * plan.block_tokens + first) * plan.scale_bytes;
  if (plan.scale_bytes == 1) return StoreBytes(to, stored);
  for (int l = 0; l < kTileLanes; ++l) StoreHalf(to + 2 * l, static_cast<uint16_t>(stored[l]));
}

// ---- sides

const std::byte* HalvesAt(const SmallFloatPlan& plan, const std::byte* block, int row, int lane) {
  return block + (static_cast<int64_t>(row) * plan.lanes + lane) * 2;
}

inline Floats Load(const SmallFloatPlan& plan, const std::byte* block, int row, int lane,
                   const Ints& mask) {
  Floats x;
  LoadHalves(HalvesAt(plan, block, row, lane), x);
  return Masked(x, mask);
}

inline Floats LargerOf(const Floats& top, const Floats& x) {
  const Floats a = Magnitude(x);
  return a > top ? a : top;
}

// K: lanes are tokens, a group runs along rows.
void EncodeKeyGroup(const SmallFloatPlan& plan, const std::byte* source, int lane, int group,
                    const Ints& seen, std::byte* metadata, std::byte* codes, Bits* quads) {
  const int begin = group * plan.group;
  const int end = begin + plan.group < plan.rows ? begin + plan.group : plan.rows;
  Floats amax{};
  for (int c = begin; c < end; ++c) amax = LargerOf(amax, Load(plan, source, c, lane, seen));
  const Ints counts = amax > 0.0f;
  Scales scales = ScalesOf(plan, amax);
  if (HasChoice(plan)) {
    const Scales second = SecondWay(plan, amax, scales);
    Doubles sum[2] = {};
    for (int c = begin; c < end; ++c) {
      const Floats x = Load(plan, source, c, lane, seen);
      sum[0] += SquaredErrors(x, scales.value, false);
      sum[1] += SquaredErrors(x, second.value, plan.levels == Levels::kIf4);
    }
    double errors[2][kTileLanes];
    __builtin_memcpy(errors, sum, sizeof errors);
    Choose(errors, second, scales);
  }
  StoreScales(plan, scales.stored & counts, group, lane, metadata);
  for (int c = begin; c < end; ++c) {
    const Floats x = Load(plan, source, c, lane, seen);
    const Ints code = CodesOf(plan, x, scales.stored, scales.value, counts);
    if (plan.is_float8) {
      StoreBytes(codes + c * plan.block_tokens + lane, code);
    } else {
      quads[c / 4] |= reinterpret_cast<Bits>(code) << (c % 4 * 8);
    }
  }
}

void EncodeKeys(const SmallFloatPlan& plan, const std::byte* source, int first, std::byte* metadata,
                std::byte* codes) {
  Bits quads[kMaxRows / 4];
  for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
    const Ints seen = LanesFrom(first - lane, kTileLanes);
    __builtin_memset(quads, 0, static_cast<size_t>(plan.steps) * 4 * sizeof quads[0]);
    for (int group = 0; group < plan.groups; ++group) {
      EncodeKeyGroup(plan, source, lane, group, seen, metadata, codes, quads);
    }
    if (!plan.is_float8) StorePlanes(plan, quads, lane, codes);
  }
}

// V: lanes are channels, a group runs along lanes [begin, end).
struct ValueGroup {
  int index, begin, end;
};

float LargestOf(const Floats& x) {
  float lanes[kTileLanes];
  __builtin_memcpy(lanes, &x, sizeof lanes);
  for (int half = kTileLanes / 2; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
  }
  return lanes[0];
}

// Of the rows of a tile; 0 of those before `first`.
Floats LargestOfRows(const SmallFloatPlan& plan, const std::byte* source, const ValueGroup& group,
                     int row, int first) {
  Floats amax{};
  for (int i = first > row ? first - row : 0; i < kTileLanes; ++i) {
    Floats top{};
    for (int lane = group.begin; lane < group.end; lane += kTileLanes) {
      top = LargerOf(top, Load(plan, source, row + i, lane, LanesFrom(0, group.end - lane)));
    }
    amax[i] = LargestOf(top);
  }
  return amax;
}

double SumInOrder(double sum, const Doubles& x, int count) {
  double lanes[kTileLanes];
  __builtin_memcpy(lanes, &x, sizeof lanes);
  for (int i = 0; i < count; ++i) sum += lanes[i];
  return sum;
}

void ChooseForRows(const SmallFloatPlan& plan, const std::byte* source, const ValueGroup& group,
                   int row, const Scales& second, Scales& scales) {
  double errors[2][kTileLanes] = {};
  const bool whole = plan.levels == Levels::kIf4;
  for (int i = 0; i < kTileLanes; ++i) {
    const Floats first_scale = SplatOf(scales.value[i]), second_scale = SplatOf(second.value[i]);
    for (int lane = group.begin; lane < group.end; lane += kTileLanes) {
      const int count = group.end - lane < kTileLanes ? group.end - lane : kTileLanes;
      const Floats x = Load(plan, source, row + i, lane, LanesFrom(0, count));
      errors[0][i] = SumInOrder(errors[0][i], SquaredErrors(x, first_scale, false), count);
      errors[1][i] = SumInOrder(errors[1][i], SquaredErrors(x, second_scale, whole), count);
    }
  }
  Choose(errors, second, scales);
}

void EncodeValueGroup(const SmallFloatPlan& plan, const std::byte* source, int first,
                      const ValueGroup& group, std::byte* metadata, std::byte* codes) {
  Bits quads[32 / kTileLanes][16] = {};  // FP4: groups of 32 channels at most; 64 rows
  for (int row = 0; row < plan.rows; row += kTileLanes) {
    const Floats amax = LargestOfRows(plan, source, group, row, first);
    const Ints counts = amax > 0.0f;
    Scales scales = ScalesOf(plan, amax);
    if (HasChoice(plan)) {
      ChooseForRows(plan, source, group, row, SecondWay(plan, amax, scales), scales);
    }
    StoreScales(plan, scales.stored & counts, group.index, row, metadata);
    for (int i = 0; i < kTileLanes; ++i) {
      if (counts[i] == 0) continue;
      const Floats scale = SplatOf(scales.value[i]);
      const Ints stored = Ints{} + scales.stored[i];
      for (int lane = group.begin; lane < group.end; lane += kTileLanes) {
        const Ints used = LanesFrom(0, group.end - lane);
        const Floats x = Load(plan, source, row + i, lane, used);
        const Ints code = CodesOf(plan, x, stored, scale, used);
        if (plan.is_float8) {
          StoreBytes(codes + (row + i) * plan.lanes + lane, code);
        } else {
          quads[(lane - group.begin) / kTileLanes][(row + i) / 4] |= reinterpret_cast<Bits>(code)
                                                                     << ((row + i) % 4 * 8);
        }
      }
    }
  }
  for (int lane = group.begin; lane < group.end && !plan.is_float8; lane += kTileLanes) {
    StorePlanes(plan, quads[(lane - group.begin) / kTileLanes], lane, codes);
  }
}

void EncodeSmallFloat(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored) {
  for (int b = 0; b < plan.blocks; ++b, source += plan.source_block_bytes) {
    const int before = first_token - b * plan.block_tokens;
    const int first = before < 0 ? 0 : before < plan.block_tokens ? before : plan.block_tokens;
    std::byte* metadata = stored + b * plan.block_metadata_bytes;
    std::byte* codes = stored + plan.codes_offset + b * plan.block_bytes;
    if (plan.lanes_are_tokens) {
      EncodeKeys(plan, source, first, metadata, codes);
      continue;
    }
    for (int g = 0; g < plan.groups; ++g) {
      const int begin = g * plan.group, end = begin + plan.group;
      EncodeValueGroup(plan, source, first, {g, begin, end < plan.head_dim ? end : plan.head_dim},
                       metadata, codes);
    }
  }
}
