// 2^x and the softmax of one segment. Included by kernel_body-inl.h and latent-inl.h inside an
// anonymous namespace.

// 2^x for x <= 0; below -100 it stays 2^-100 (8e-31), so that no product becomes subnormal.
// 2^r on [-1/2, 1/2] by the polynomial of degree 5 with the least relative error, 7.5e-8 (Remez);
// 2.2e-7 with the roundings of f32.
inline F Exp2(F x) {
  const F to_integer = Set(0x1.8p23f);  // added, it leaves no bits below one: rounds half to even
  x = Max(x, Set(-100.0f));
  const F biased = Add(x, to_integer);
  const F r = Sub(x, Sub(biased, to_integer));
  F p = Set(0.00132764725f);
  p = Fma(p, r, Set(0.00967554096f));
  p = Fma(p, r, Set(0.0555071309f));
  p = Fma(p, r, Set(0.240221202f));
  p = Fma(p, r, Set(0.693146944f));
  p = Fma(p, r, Set(1.0f));
  return AddToExponent(p, biased);
}

// The row sees tokens [VisibleBegin, VisibleEnd) of block i, none where these are out of order.
inline int VisibleBegin(const Segment& segment, int i, int row_begin) {
  const int begin = segment.blocks[i].begin, own = row_begin - i * kPageTokens;
  return begin > own ? begin : own;
}
inline int VisibleEnd(const Segment& segment, int i, int row_end) {
  const int end = segment.blocks[i].end, own = row_end - i * kPageTokens;
  return end < own ? end : own;
}

// scores -> probabilities relative to the segment's maximum; invisible slots become 0.
inline void SoftmaxRow(const Segment& segment, int row_begin, int row_end, float* scores,
                       PartialState& out) {
  const F nothing = Set(-std::numeric_limits<float>::infinity());
  // Calls fn(address of 16 scores, first, end): lanes [first, end) of them are visible. Whole
  // blocks skip the masks.
  const auto for_each_block = [&](const auto& whole, const auto& part) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      float* block = scores + i * kPageTokens;
      const int begin = VisibleBegin(segment, i, row_begin), end = VisibleEnd(segment, i, row_end);
      for (int t = 0; t < kPageTokens; t += kLaneBlock) {
        if (begin == 0 && end >= kPageTokens) {
          whole(block + t);
        } else {
          part(block + t, begin - t, end - t);
        }
      }
    }
  };
  F top = nothing;
  for_each_block([&](const float* at) { top = Max(Load(at), top); },
                 [&](const float* at, int first, int end) {
                   top = Max(KeepLanes(Load(at), first, end, nothing), top);
                 });
  out.max = ReduceMax(top);
  F sum = Zero();
  if (out.max == -std::numeric_limits<float>::infinity()) {
    const auto clear = [](float* at) { Store(at, Zero()); };
    for_each_block(clear, [&](float* at, int, int) { clear(at); });
    out.sum = 0.0f;
    return;
  }
  const F max = Set(out.max);
  const auto keep = [&](float* at, F p) {
    Store(at, p);
    sum = Add(sum, p);
  };
  for_each_block([&](float* at) { keep(at, Exp2(Sub(Load(at), max))); },
                 [&](float* at, int first, int end) {
                   keep(at, KeepLanes(Exp2(Sub(Load(at), max)), first, end, Zero()));
                 });
  out.sum = ReduceAdd(sum);
}

// Scores of the tokens that a row sees, for rows that ask for them: the softmax is about to replace
// them.
inline void HandOverScores(const Segment& segment, const SegmentRows& rows,
                           const SegmentScratch& s) {
  const int last = segment.num_blocks - 1;
  for (int r = 0; r < rows.rows; ++r) {
    if (rows.scores[r] == nullptr) continue;
    const int begin = VisibleBegin(segment, 0, rows.begin[r]);
    const int end = last * kPageTokens + VisibleEnd(segment, last, rows.end[r]);
    if (begin >= end) continue;
    std::memcpy(rows.scores[r] + begin, s.scores[r] + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
  }
}
