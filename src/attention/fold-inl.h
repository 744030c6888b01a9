// Metadata, and the vectors that carry it: scales folded in, rounded to 8 bits. Included by kernel_body-inl.h inside an anonymous namespace.

// The middle of the code range: codes are centred on it, so that rounding errors of the query or
// the probability multiply values of either sign.
inline float CentreOf(const Format& f) {
  if (f.levels == Levels::kCodebook) return 128.0f;
  return 0.5f * static_cast<float>((1 << f.bits) - 1);
}

// How the stored offsets of a side turn into the value of its middle code.
struct MetadataReader {
  Offset offset;
  F centre;        // the middle code
  F half;          // symmetric conventions: what lies between the middle code and the zero
  int to_offsets;  // bytes from a scale to its offset

  explicit MetadataReader(const SideLayout& side)
      : offset(side.format.offset),
        centre(Set(CentreOf(side.format))),
        half(Set(side.format.levels == Levels::kCodebook
                     ? 0.0f
                     : CentreOf(side.format) - static_cast<float>(1 << (side.format.bits - 1)))),
        to_offsets(side.offsets_from_scales) {}

  // 16 groups: value = scale * (code - centre) + centred.
  KVANT_INLINE void Read(const std::byte* scales, F& scale, F& centred) const {
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
      Read(scales + 2 * i, scale, centred);
      Store(s.scale + i, scale);
      Store(s.centred + i, centred);
    }
  }
};

// Units per value for a largest value; 0 below 1e-35, where the quotient would overflow.
inline F InverseStep(F amax) { return KeepAbove(Div(Set(127.0f), amax), amax, Set(1e-35f)); }

// Rounds x[0..count) alone, as vector `v`; constant[v] becomes what the centre of the codes adds to
// its dots, in units.
inline void RoundVector(const float* x, int count, F amax_lanes, float centre, int v, int8_t* to,
                        SegmentScratch& s) {
  const F amax = Set(ReduceMax(amax_lanes));
  const F inverse = InverseStep(amax);
  I units = ZeroI();
  for (int i = 0; i < count; i += kLaneBlock) {
    const I r = Round(Mul(Load(x + i), inverse));
    StoreI8(to + i, r);
    units = AddI(units, r);
  }
  alignas(64) float step[kLaneBlock];
  Store(step, Mul(amax, Set(1.0f / 127.0f)));
  s.step[v] = step[0];
  s.constant[v] = centre * static_cast<float>(ReduceAddI(units));
}

// Folds the scales of each slot into the vectors of all rows, x * scale, and rounds them to 8 bits.
// constant[v] becomes what no code carries. Reductions and divisions of 16 vectors are done
// together: one by one they took a quarter of an int4 page.
//   scales_of(slot) -> [count] f16 scales      x_of(slot, row) -> [count] values
template <int NR, typename ScalesOf, typename VectorOf>
inline void FoldSlots(const SideLayout& side, int slots, int count, const ScalesOf& scales_of,
                      const VectorOf& x_of, SegmentScratch& s) {
  const MetadataReader reader(side);
  for (int slot = 0; slot < slots; ++slot) {  // largest values, and the offsets' share
    const std::byte* scales = scales_of(slot);
    const float* x[NR];  // in locals: stores to the scratch could alias what x_of reads
    F amax[NR], constant[NR];
    for (int r = 0; r < NR; ++r) {
      x[r] = x_of(slot, r);
      amax[r] = constant[r] = Zero();
    }
    for (int i = 0; i < count; i += kLaneBlock) {
      F scale, centred;
      reader.Read(scales + 2 * i, scale, centred);
      Store(s.scale + slot * count + i, scale);
      for (int r = 0; r < NR; ++r) {
        const F value = Load(x[r] + i);
        amax[r] = Max(amax[r], Abs(Mul(value, scale)));
        constant[r] = Fma(value, centred, constant[r]);
      }
    }
    for (int r = 0; r < NR; ++r) {
      Store(s.lane_max[slot * NR + r], amax[r]);
      Store(s.lane_sum[slot * NR + r], constant[r]);
    }
  }
  const int vectors = slots * NR;
  for (int v = 0; v < vectors; v += kLaneBlock) {
    const F amax = ReduceMax16(s.lane_max[v]);
    Store(s.step + v, Mul(amax, Set(1.0f / 127.0f)));
    Store(s.inverse + v, InverseStep(amax));
    Store(s.constant + v, ReduceAdd16(s.lane_sum[v]));
  }
  for (int slot = 0; slot < slots; ++slot) {
    const float* x[NR];
    F inverse[NR];
    I units[NR];
    for (int r = 0; r < NR; ++r) {
      x[r] = x_of(slot, r);
      inverse[r] = Set(s.inverse[slot * NR + r]);
      units[r] = ZeroI();
    }
    int8_t* to = s.rounded + slot * NR * count;
    for (int i = 0; i < count; i += kLaneBlock) {
      const F scale = Load(s.scale + slot * count + i);
      for (int r = 0; r < NR; ++r) {
        const I rounded = Round(Mul(Mul(Load(x[r] + i), scale), inverse[r]));
        StoreI8(to + r * count + i, rounded);
        units[r] = AddI(units[r], rounded);
      }
    }
    for (int r = 0; r < NR; ++r) StoreI(s.lane_units[slot * NR + r], units[r]);
  }
  const F centre = Set(CentreOf(side.format));
  for (int v = 0; v < vectors; v += kLaneBlock) {
    const F middle = Mul(centre, ToFloat(ReduceAddI16(s.lane_units[v])));
    Store(s.constant + v, Sub(Load(s.constant + v), Mul(Load(s.step + v), middle)));
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
