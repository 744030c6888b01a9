// Metadata, and the vectors that carry it: scales folded in, rounded to 8 bits. Included by
// kernel_body-inl.h inside an anonymous namespace.

// The middle of the code range: codes are centred on it, so that rounding errors of the query or
// the probability multiply values of either sign.
inline float CentreOf(const Format& f) {
  if (f.levels != Levels::kUniform) return 128.0f;
  return 0.5f * static_cast<float>((1 << f.bits) - 1);
}

// Of levels that a table holds: the value of one where the norm or the 8-bit scale, as read, is 1.
inline float UnitOf(const SideLayout& side) {
  const Format& f = side.format;
  if (f.is_normed()) return 1.0f / LevelTableOf(side).sigma;
  const bool is_e4m3 = f.scale == Scale::kE4M3 || f.scale == Scale::kE4M3FourOrSix;
  return is_e4m3 ? 128.0f : 0.5f;  // levels are doubled, E4M3 is read over 256
}

// How the metadata of a side turns into a scale and the value of its middle code.
struct MetadataReader {
  const SideLayout& side;
  Offset offset;
  F centre;        // the middle code
  F half;          // symmetric conventions: what lies between the middle code and the zero
  int to_offsets;  // bytes from a scale to its offset
  F unit;          // of a table: value of a level where the norm, or the 8-bit scale, is 1
  F least, step;   // normed, 8 bits: of the block

  explicit MetadataReader(const SideLayout& s)
      : side(s),
        offset(s.format.offset),
        centre(Set(CentreOf(s.format))),
        half(Set(s.format.levels != Levels::kUniform
                     ? 0.0f
                     : CentreOf(s.format) - static_cast<float>(1 << (s.format.bits - 1)))),
        to_offsets(s.offsets_from_scales),
        unit(Set(UnitOf(s))),
        least(Zero()),
        step(Zero()) {}

  // Goes to a block of the side at `base`; gives the place of its first scale, or norm.
  //   token axis only
  KVANT_INLINE const std::byte* Enter(const std::byte* base, int block) {
    if (!side.format.is_normed()) {
      return base + static_cast<int64_t>(block) * side.block_metadata_bytes;
    }
    if (!side.format.norms_8bit) return base + side.norms_offset + block * kPageTokens * 2;
    const std::byte* parameters =
        base + side.parameters_offset + (block + 1) * side.parameter_count() * 2 - 4;
    least = SetF16(parameters);
    step = SetF16(parameters + 2);
    return base + side.norms_offset + block * kPageTokens;
  }

  // Groups 16 * v .. 16 * v + 15 from `scales` on: value = scale * (code - centre) + centred.
  KVANT_INLINE void Read(const std::byte* scales, int v, F& scale, F& centred) const {
    if (side.format.is_normed()) {
      const F norm = side.format.norms_8bit
                         ? Fma(ToFloat(LoadU8(scales + v * kLaneBlock)), step, least)
                         : LoadF16(scales + v * 2 * kLaneBlock);
      scale = Mul(norm, unit);
      centred = Zero();
      return;
    }
    if (side.format.scale != Scale::kF16) {
      const bool is_e8m0 =
          side.format.scale == Scale::kE8M0 || side.format.scale == Scale::kE8M0Nearest;
      const std::byte* at = scales + v * kLaneBlock;
      scale = Mul(is_e8m0 ? LoadE8M0(at) : LoadE4M3Over256(at), unit);
      centred = Zero();
      return;
    }
    scales += v * 2 * kLaneBlock;
    scale = LoadF16(scales);
    const std::byte* offsets = scales + to_offsets;
    switch (offset) {
      case Offset::kMin:
        centred = Fma(scale, centre, LoadF16(offsets));
        break;
      case Offset::kIntegerZero:
        centred = Mul(scale, Sub(centre, ToFloat(LoadI16(offsets))));
        break;
      case Offset::kRealZero:
        centred = Mul(scale, Sub(centre, LoadF16(offsets)));
        break;
      default:
        centred = Mul(scale, half);
        break;
    }
  }
  // The same for `count` groups, into scale[0 .. count) and centred.
  void ReadAll(const std::byte* scales, int count, SegmentScratch& s) const {
    for (int i = 0; i < count; i += kLaneBlock) {
      F scale, centred;
      Read(scales, i / kLaneBlock, scale, centred);
      Store(s.scale + i, scale);
      Store(s.centred + i, centred);
    }
  }
};

// Units per value for a largest value; 0 below 1e-35, where the quotient would overflow.
inline F InverseStep(F amax) { return KeepAbove(Div(Set(127.0f), amax), amax, Set(1e-35f)); }

// Where the figures of a slot's row stand in step and constant: a slot has four rows, four lanes
// each (Reduce4).
constexpr int FigureOf(int slot, int row) { return slot * kLaneBlock + 4 * row; }

// A rounded vector takes whole 64-byte blocks.
inline int RoundedBytes(int count) { return (count + 63) / 64 * 64; }

// The first term of a value in steps, and the second: half a step at most is left, exactly.
KVANT_INLINE I FirstTerm(F steps) { return Round(steps); }
KVANT_INLINE I SecondTerm(F steps) {
  return Round(Mul(Sub(steps, ToFloat(Round(steps))), Set(1.0f / kSecondUnit)));
}

// Writes count values as bytes in the order of PackQuads, the last block filled with zeros; gives
// the sum of them all, spread over lanes. rounded_at(i): lanes i .. i + 15, in -127..127.
template <typename RoundedAt>
KVANT_INLINE I PackRounded(int count, int8_t* to, const RoundedAt& rounded_at) {
  I units = ZeroI();
  const auto block = [&](int i, I a, I b, I c, I d) KVANT_INLINE_LAMBDA {
    const B packed = PackQuads(a, b, c, d);
    StoreB(to + i, packed);
    units = SumBytes(units, packed);
  };
  int i = 0;
  for (; i + 64 <= count; i += 64) {
    block(i, rounded_at(i), rounded_at(i + 16), rounded_at(i + 32), rounded_at(i + 48));
  }
  if (i < count) {
    block(i, rounded_at(i), i + 16 < count ? rounded_at(i + 16) : ZeroI(),
          i + 32 < count ? rounded_at(i + 32) : ZeroI(), ZeroI());
  }
  return units;
}

// Rounds x[0..count) of one row in groups (a multiple of 16), for the axes that few caches use.
// Figures of group g, a slot: step; constant = what the centre of the codes adds to its dots, in
// units; mass.
//   s.rounded: [rows][kTerms][RoundedBytes(count)]
template <int kTerms>
inline void RoundGroups(const float* x, int count, int group, float centre, int row,
                        SegmentScratch& s) {
  alignas(64) float step[kLaneBlock];
  int32_t units[kTerms][kMaxPaddedDim / kLaneBlock];
  float inverse[kMaxPaddedDim / kLaneBlock];
  for (int first = 0, v = FigureOf(0, row); first < count; first += group, v += kLaneBlock) {
    const int end = first + group < count ? first + group : count;
    F amax = Zero(), total = Zero();
    for (int i = first; i < end; i += kLaneBlock) {
      amax = MaxAbs(amax, Load(x + i));
      total = Add(total, Load(x + i));
    }
    s.mass[v] = ReduceAdd(total);
    amax = Set(ReduceMax(amax));
    Store(step, Mul(amax, Set(1.0f / 127.0f)));
    s.step[v] = step[0];
    Store(step, InverseStep(amax));
    for (int i = first; i < end; i += kLaneBlock) inverse[i / kLaneBlock] = step[0];
  }
  Unroll<kTerms>([&](auto term) KVANT_INLINE_LAMBDA {
    int8_t* const to = s.rounded + (row * kTerms + term()) * RoundedBytes(count);
    PackRounded(count, to, [&](int i) {
      const F steps = Mul(Load(x + i), Set(inverse[i / kLaneBlock]));
      const I rounded = term() == 0 ? FirstTerm(steps) : SecondTerm(steps);
      units[term()][i / kLaneBlock] = ReduceAddI(rounded);
      return rounded;
    });
  });
  for (int first = 0, v = FigureOf(0, row); first < count; first += group, v += kLaneBlock) {
    int32_t sums[kTerms] = {};
    for (int i = first; i < first + group && i < count; i += kLaneBlock) {
      for (int term = 0; term < kTerms; ++term) sums[term] += units[term][i / kLaneBlock];
    }
    s.constant[v] = centre * static_cast<float>(sums[0]);
    if constexpr (kTerms == 2) s.constant[v] += centre * kSecondUnit * static_cast<float>(sums[1]);
  }
}

// 16 dots of RoundGroups' vectors of a row from s.sums, in steps.
template <int kTerms>
KVANT_INLINE F DotsInSteps(int row, int lane, const SegmentScratch& s) {
  const F first = Load(s.sums[row * kTerms] + lane);
  if constexpr (kTerms == 1) return first;
  return Fma(Load(s.sums[row * kTerms + kTerms - 1] + lane), Set(kSecondUnit), first);
}

// What the lanes of four rows add up to, a quad of lanes each.
KVANT_INLINE F SumRows(const I (&rows)[4]) {
  return ToFloat(ReduceAddI4(rows[0], rows[1], rows[2], rows[3]));
}

// What the terms of four rows add up to in units of the first, a quad of lanes each.
template <int kTerms>
KVANT_INLINE F UnitsOf(const I (&units)[kTerms][4]) {
  const F first = SumRows(units[0]);
  if constexpr (kTerms == 1) return first;
  return Fma(SumRows(units[kTerms - 1]), Set(kSecondUnit), first);
}

// The figures of all rows of a slot: the step, and the constant: the offsets' share less what the
// centre of the codes adds to the dots.
//   constant: per-lane sums of the offsets' share      units: sums of the rounded values
KVANT_INLINE void StoreFigures(int slot, F step, F centre, const F (&constant)[4], F units,
                               SegmentScratch& s) {
  const F middle = Mul(centre, units);
  const F sums = ReduceAdd4(constant[0], constant[1], constant[2], constant[3]);
  Store(s.step + FigureOf(slot, 0), step);
  Store(s.constant + FigureOf(slot, 0), Sub(sums, Mul(step, middle)));
}

// Folds the scales of one slot into vectors of 64 values, and rounds the products to 8 bits. They
// wait in registers for the step, which their largest sets.
//   scales: [64] f16      value(r, v): values 16 v .. 16 v + 15 of row r      to: [NR][kTerms][64]
template <int NR, int kTerms, typename Value>
KVANT_INLINE void FoldSlot64(const MetadataReader& reader, F centre, const std::byte* scales,
                             const Value& value, int slot, int8_t* to, SegmentScratch& s) {
  F amax[4], constant[4], product[NR][4];
  I units[kTerms][4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA {
    amax[r()] = constant[r()] = Zero();
    Unroll<kTerms>([&](auto term) KVANT_INLINE_LAMBDA { units[term()][r()] = ZeroI(); });
  });
  Unroll<4>([&](auto v) KVANT_INLINE_LAMBDA {
    F scale, centred;
    reader.Read(scales, v(), scale, centred);
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const F x = value(r, v);
      product[r()][v()] = Mul(x, scale);
      amax[r()] = MaxAbs(amax[r()], product[r()][v()]);
      constant[r()] = Fma(x, centred, constant[r()]);
    });
  });
  const F largest = ReduceMax4(amax[0], amax[1], amax[2], amax[3]);
  const F inverse = InverseStep(largest);
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    const F factor = LaneQuad<r()>(inverse);
    Unroll<kTerms>([&](auto term) KVANT_INLINE_LAMBDA {
      const auto round = [&](int v) KVANT_INLINE_LAMBDA {
        const F steps = Mul(product[r()][v], factor);
        return term() == 0 ? FirstTerm(steps) : SecondTerm(steps);
      };
      const B packed = PackQuads(round(0), round(1), round(2), round(3));
      StoreB(to + (r() * kTerms + term()) * 64, packed);
      units[term()][r()] = SumBytes(units[term()][r()], packed);
    });
  });
  StoreFigures(slot, Mul(largest, Set(1.0f / 127.0f)), centre, constant, UnitsOf(units), s);
}

// The same for vectors of any length and terms; the products wait in memory.
//   scales: [count] f16      x[r]: [count] values      to: [NR][kTerms][RoundedBytes(count)]
template <int NR, int kTerms>
KVANT_INLINE void FoldSlotAny(const MetadataReader& reader, F centre, const std::byte* scales,
                              const float* const (&x)[NR], int count, int slot, int8_t* to,
                              SegmentScratch& s) {
  F amax[4], constant[4];
  I units[kTerms][4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA {
    amax[r()] = constant[r()] = Zero();
    Unroll<kTerms>([&](auto term) KVANT_INLINE_LAMBDA { units[term()][r()] = ZeroI(); });
  });
  for (int i = 0; i < count; i += kLaneBlock) {
    F scale, centred;
    reader.Read(scales, i / kLaneBlock, scale, centred);
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const F value = Load(x[r()] + i), product = Mul(value, scale);
      Store(s.product[r()] + i, product);
      amax[r()] = MaxAbs(amax[r()], product);
      constant[r()] = Fma(value, centred, constant[r()]);
    });
  }
  const F largest = ReduceMax4(amax[0], amax[1], amax[2], amax[3]);
  const F inverse = InverseStep(largest);
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    const F factor = LaneQuad<r()>(inverse);
    Unroll<kTerms>([&](auto term) KVANT_INLINE_LAMBDA {
      int8_t* const vector = to + (r() * kTerms + term()) * RoundedBytes(count);
      units[term()][r()] = PackRounded(count, vector, [&](int i) {
        const F steps = Mul(Load(s.product[r()] + i), factor);
        return term() == 0 ? FirstTerm(steps) : SecondTerm(steps);
      });
    });
  });
  StoreFigures(slot, Mul(largest, Set(1.0f / 127.0f)), centre, constant, UnitsOf(units), s);
}

// The same for many slots; constant becomes what no code carries. Slots are independent of each
// other, so their chains of reductions overlap. Asks for `lines` lines a slot.
//   scales_of(slot) -> [count] f16 scales      x_of(slot, row) -> [count] values
template <int NR, int kTerms, typename ScalesOf, typename VectorOf>
inline void FoldSlots(const SideLayout& side, int slots, int count, const ScalesOf& scales_of,
                      const VectorOf& x_of, int lines, Stream& stream, SegmentScratch& s) {
  const MetadataReader reader(side);
  const F centre = Set(CentreOf(side.format));
  const int slot_bytes = NR * kTerms * RoundedBytes(count);
  for (int slot = 0; slot < slots; ++slot) {
    const float* x[NR];
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA { x[r()] = x_of(slot, r()); });
    int8_t* const to = s.rounded + slot * slot_bytes;
    stream.Burst(lines);
    if (count == 64) {
      const auto value = [&](auto r, auto v)
                             KVANT_INLINE_LAMBDA { return Load(x[r()] + v() * kLaneBlock); };
      FoldSlot64<NR, kTerms>(reader, centre, scales_of(slot), value, slot, to, s);
    } else {
      FoldSlotAny<NR, kTerms>(reader, centre, scales_of(slot), x, count, slot, to, s);
    }
  }
}

// Calls fn(NR) with the number of rows as a constant.
template <typename Fn>
inline void WithRows(int rows, const Fn& fn) {
  using std::integral_constant;
  switch (rows) {
    case 1:
      return fn(integral_constant<int, 1>{});
    case 2:
      return fn(integral_constant<int, 2>{});
    case 3:
      return fn(integral_constant<int, 3>{});
    default:
      return fn(integral_constant<int, 4>{});
  }
}
