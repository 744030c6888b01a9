// Softmax of a segment and, in the same pass, what V per token needs of it: the token scales folded
// into the probabilities, rounded to 8 bits. Included by kernel_body-inl.h inside an anonymous
// namespace.

// The largest visible score of each row in each block, as figures of slot i in s.block_max; returns
// those of the segment.
template <int NR>
inline F BlockMaxima(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  const F nothing = Set(-std::numeric_limits<float>::infinity());
  F largest = nothing;
  for (int i = 0; i < segment.num_blocks; ++i) {
    const int begin = segment.blocks[i].begin;
    F top[4];
    Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA {
      top[r()] = nothing;
      if constexpr (r() < NR) {
        const float* scores = s.scores[r()] + i * kPageTokens;
        const int end = VisibleEnd(segment, i, rows.end[r()]);
        const auto at = [&](int t) KVANT_INLINE_LAMBDA { return Load(scores + t * kLaneBlock); };
        if (begin == 0 && end >= kPageTokens) {
          top[r()] = Max(Max(at(0), at(1)), Max(at(2), at(3)));
        } else {
          for (int t = 0; t < 4; ++t) {
            top[r()] = Max(KeepLanes(at(t), begin - t * kLaneBlock, end - t * kLaneBlock, nothing),
                           top[r()]);
          }
        }
      }
    });
    const F maxima = ReduceMax4(top[0], top[1], top[2], top[3]);
    Store(s.block_max + FigureOf(i, 0), maxima);
    largest = Max(maxima, largest);
  }
  return largest;
}

// Probabilities of 64 tokens of one row; what it does not see becomes 0.
KVANT_INLINE void BlockProbabilities(const float* scores, F max, int begin, int end, F (&p)[4]) {
  Unroll<4>([&](auto t)
                KVANT_INLINE_LAMBDA { p[t()] = Exp2(Sub(Load(scores + t() * kLaneBlock), max)); });
  if (begin == 0 && end >= kPageTokens) return;
  Unroll<4>([&](auto t) KVANT_INLINE_LAMBDA {
    p[t()] = KeepLanes(p[t()], begin - t() * kLaneBlock, end - t() * kLaneBlock, Zero());
  });
}

// One channel group of one block: w = p * scale, rounded. The step comes from a bound of w, the
// block's largest probability times its largest scale: the largest product itself would cost a
// chain of reductions between the exponentials and the rounding (35 of 253 ns an int4 page), and is
// seldom much smaller.
//   top: the largest probability of each row, a quad of lanes each      to: [NR][64]
template <int NR>
KVANT_INLINE void FoldProbabilities(const MetadataReader& reader, F centre, const std::byte* scales,
                                    F top, const F (&p)[NR][4], int slot, int8_t* to,
                                    SegmentScratch& s) {
  F scale[4], centred[4], largest = Zero();
  Unroll<4>([&](auto t) KVANT_INLINE_LAMBDA {
    reader.Read(scales + 2 * kLaneBlock * t(), scale[t()], centred[t()]);
    largest = MaxAbs(largest, scale[t()]);
  });
  const F bound = Mul(top, Set(ReduceMax(largest)));
  const F inverse = InverseStep(bound), step = Mul(bound, Set(1.0f / 127.0f));
  F constant[4];
  I units[4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA {
    constant[r()] = Zero();
    units[r()] = ZeroI();
    if constexpr (r() < NR) {
      const F factor = LaneQuad<r()>(inverse);
      const auto rounded = [&](auto t) KVANT_INLINE_LAMBDA {
        constant[r()] = Fma(p[r()][t()], centred[t()], constant[r()]);
        return Round(Mul(Mul(p[r()][t()], scale[t()]), factor));
      };
      const I a = rounded(kIndex<0>), b = rounded(kIndex<1>);
      const I c = rounded(kIndex<2>), d = rounded(kIndex<3>);
      const B packed = PackQuads(a, b, c, d);
      StoreB(to + r() * kPageTokens, packed);
      units[r()] = SumBytes(units[r()], packed);
    }
  });
  StoreFigures(slot, step, centre, constant, units, s);
}

// Channel group g of block i is slot g * num_blocks + i. Asks for `lines` lines a block.
template <int NR>
inline void SoftmaxFold(const Segment& segment, SegmentRows& rows, int lines, Stream& stream,
                        SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  const MetadataReader reader(side);
  const F centre = Set(CentreOf(side.format));
  const F largest = BlockMaxima<NR>(segment, rows, s);
  const F max = Max(largest, Set(-std::numeric_limits<float>::max()));  // a row may see nothing
  F sum[4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA { sum[r()] = Zero(); });
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    stream.Burst(lines);
    F p[NR][4];
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      BlockProbabilities(s.scores[r()] + i * kPageTokens, LaneQuad<r()>(max), ref.begin,
                         VisibleEnd(segment, i, rows.end[r()]), p[r()]);
      Unroll<4>([&](auto t) KVANT_INLINE_LAMBDA { sum[r()] = Add(sum[r()], p[r()][t()]); });
    });
    const F top = Exp2(Sub(Load(s.block_max + FigureOf(i, 0)), max));
    const std::byte* scales = ref.page + segment.layout->v_offset_bytes +
                              static_cast<int64_t>(ref.block) * side.block_metadata_bytes;
    for (int g = 0; g < side.channel_groups; ++g) {
      const int slot = g * segment.num_blocks + i;
      FoldProbabilities<NR>(reader, centre, scales + static_cast<int64_t>(g) * kPageTokens * 2, top,
                            p, slot, s.rounded + slot * NR * kPageTokens, s);
    }
  }
  alignas(64) float maxima[kLaneBlock], sums[kLaneBlock];
  Store(maxima, largest);
  Store(sums, ReduceAdd4(sum[0], sum[1], sum[2], sum[3]));
  for (int r = 0; r < NR; ++r) {
    rows.out[r].max = maxima[4 * r];
    rows.out[r].sum = sums[4 * r];
  }
}
