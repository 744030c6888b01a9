// Softmax of a segment and, in the same pass, what V per token needs of it: the token scales folded
// into the probabilities, rounded to 8 bits. Included by kernel_body-inl.h inside an anonymous
// namespace.

// The largest visible score of each row in the segment, a quad of lanes each.
template <int NR>
inline F RowMaxima(const Segment& segment, const SegmentRows& rows, const SegmentScratch& s) {
  const F nothing = Set(-std::numeric_limits<float>::infinity());
  F top[4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA { top[r()] = nothing; });
  for (int i = 0; i < segment.num_blocks; ++i) {
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const float* scores = s.scores[r()] + i * kPageTokens;
      const int begin = VisibleBegin(segment, i, rows.begin[r()]);
      const int end = VisibleEnd(segment, i, rows.end[r()]);
      const auto at = [&](int t) KVANT_INLINE_LAMBDA { return Load(scores + t * kLaneBlock); };
      if (begin == 0 && end >= kPageTokens) {
        top[r()] = Max(Max(Max(at(0), at(1)), Max(at(2), at(3))), top[r()]);
      } else {
        for (int t = 0; t < 4; ++t) {
          top[r()] = Max(KeepLanes(at(t), begin - t * kLaneBlock, end - t * kLaneBlock, nothing),
                         top[r()]);
        }
      }
    });
  }
  return ReduceMax4(top[0], top[1], top[2], top[3]);
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

// Channel group g of block i is slot g * num_blocks + i. Asks for `lines` lines a block.
template <int NR, int kTerms>
inline void SoftmaxFold(const Segment& segment, SegmentRows& rows, int lines, Stream& stream,
                        SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  MetadataReader reader(side);
  const F centre = Set(CentreOf(side.format));
  const F largest = RowMaxima<NR>(segment, rows, s);
  const F max = Max(largest, Set(-std::numeric_limits<float>::max()));  // a row may see nothing
  F sum[4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA { sum[r()] = Zero(); });
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    stream.Burst(lines);
    F p[NR][4];
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      BlockProbabilities(s.scores[r()] + i * kPageTokens, LaneQuad<r()>(max),
                         VisibleBegin(segment, i, rows.begin[r()]),
                         VisibleEnd(segment, i, rows.end[r()]), p[r()]);
      Unroll<4>([&](auto t) KVANT_INLINE_LAMBDA { sum[r()] = Add(sum[r()], p[r()][t()]); });
      if (side.format.outliers == 0) return;
      float* const at = s.scores[r()] + i * kPageTokens;  // the side-band asks for them
      Unroll<4>([&](auto t) KVANT_INLINE_LAMBDA { Store(at + t() * kLaneBlock, p[r()][t()]); });
    });
    const std::byte* scales = reader.Enter(ref.page + segment.layout->v_offset_bytes, ref.block);
    for (int g = 0; g < side.channel_groups; ++g) {
      const int slot = g * segment.num_blocks + i;
      FoldSlot64<NR, kTerms>(
          reader, centre, scales + static_cast<int64_t>(g) * kPageTokens * side.scale_bytes,
          [&](auto r, auto t) KVANT_INLINE_LAMBDA { return p[r()][t()]; }, slot,
          s.rounded + slot * NR * kTerms * kPageTokens, s);
    }
  }
  alignas(64) float maxima[kLaneBlock], sums[kLaneBlock];
  Store(maxima, largest);
  Store(sums, ReduceAdd4(sum[0], sum[1], sum[2], sum[3]));
  for (int r = 0; r < NR; ++r) {
    rows.out[r].max = maxima[FigureOf(0, r)];
    rows.out[r].sum = sums[FigureOf(0, r)];
  }
}
