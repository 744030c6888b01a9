// Phase one: scores of a segment, K in any format. Included by kernel_body-inl.h inside an
// anonymous namespace.

// Groups along tokens inside one 64-token block.
inline int TokensOfGroup(const SideLayout& side) {
  return side.group < kPageTokens ? side.group : kPageTokens;
}

// K per channel, first half: the scales are folded into the query, q'_c = q_c * s_c, once for every
// row of groups. All slots of a segment come first: they are independent, and so are the dots that
// follow; one after the other each would wait for its own chain of reductions.
template <int kTerms>
inline void FoldChannelQueries(const Segment& segment, const SegmentRows& rows, Stream& stream,
                               SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const int group = TokensOfGroup(side), groups = kPageTokens / group;
  const int shift =
      std::countr_zero(static_cast<unsigned>(side.group));  // groups are powers of two
  const auto scales_of = [&](int slot) {
    const int block = groups == 1 ? slot : slot / groups;
    const BlockRef& ref = segment.blocks[block];
    const int token = ref.block * kPageTokens + (slot - block * groups) * group;
    return ref.page + (static_cast<int64_t>(token) >> shift) * side.padded_dim * 2;
  };
  WithRows(rows.rows, [&](auto nr) {
    FoldSlots<decltype(nr)::value, kTerms>(
        side, segment.num_blocks * groups, side.padded_dim, scales_of,
        [&](int, int r) { return rows.q[r]; },
        stream.BurstLines(segment.num_blocks * groups, stream.all_lines() * 13 / 16), stream, s);
  });
}

// A tile's vectors are the terms of its rows: [row][term].
template <int kLow, int kHigh, Code kCode>
inline void ScoreChannelSegment(const Segment& segment, const uint8_t* levels,
                                const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  constexpr int kTerms = TermsFor(kLow + kHigh);
  const SideLayout& side = segment.layout->k;
  const int group = TokensOfGroup(side);
  const int steps = side.padded_dim / kStep, stride = RoundedBytes(side.padded_dim);
  const int vectors = rows.rows * kTerms;
  FoldChannelQueries<kTerms>(segment, rows, stream, s);
  int slot = 0;
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    const ChunkPlanes planes = PlanesOfChunk<kLow, kHigh>(side, ref.page, ref.block, 0, levels);
    for (int token = 0; token < kPageTokens; token += group) {
      // In locals: a store to the scores could alias what a reference leads to.
      float* const scores = s.scores[0] + i * kPageTokens + token;
      const float* const step = s.step + FigureOf(slot, 0);
      const float* const constant = s.constant + FigureOf(slot, 0);
      const auto finish = [=](int v, int lane, F dot) KVANT_INLINE_LAMBDA {
        const int figure = FigureOf(0, v / kTerms);
        float* const at = scores + v / kTerms * kSegmentTokens + lane;
        if (v % kTerms == 0) {
          Store(at, Fma(dot, Set(step[figure]), Set(constant[figure])));
        } else {
          Store(at, Fma(dot, Set(step[figure] * kSecondUnit), Load(at)));
        }
      };
      DotPlanes<kLow, kHigh, kCode>(planes, token / kLaneBlock, group / kLaneBlock, 0, steps,
                                    vectors, s.rounded + slot * vectors * stride, stride, stream,
                                    finish);
      ++slot;
    }
  }
}

// K per token: one rounded query serves all pages, each score is multiplied by its token's scale.
template <int kLow, int kHigh, Code kCode>
inline void ScoreTokenSegment(const Segment& segment, const uint8_t* levels,
                              const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  constexpr int kTerms = TermsFor(kLow + kHigh);
  const SideLayout& side = segment.layout->k;
  const MetadataReader reader(side);
  const int stride = RoundedBytes(side.padded_dim);
  // A group that is the whole head takes the padding too.
  const int group = DivideUp(side.group, kLaneBlock) * kLaneBlock;
  for (int r = 0; r < rows.rows; ++r) {
    RoundGroups<kTerms>(rows.q[r], side.padded_dim, group, CentreOf(side.format), r, s);
  }
  for (int g = 0; g < side.channel_groups; ++g) {
    const int first = g * side.group;
    const int end = g + 1 == side.channel_groups ? side.padded_dim : first + side.group;
    for (int i = 0; i < segment.num_blocks; ++i) {
      const BlockRef& ref = segment.blocks[i];
      reader.ReadAll(ref.page + static_cast<int64_t>(ref.block) * side.block_metadata_bytes +
                         static_cast<int64_t>(g) * kPageTokens * side.scale_bytes,
                     kPageTokens, s);
      const ChunkPlanes planes = PlanesOfChunk<kLow, kHigh>(side, ref.page, ref.block, 0, levels);
      DotSums<kLow, kHigh, kCode>(planes, 0, kChunkBlocks, first / kStep, end / kStep,
                                  rows.rows * kTerms, stride, stream, s);
      for (int r = 0; r < rows.rows; ++r) {
        float* scores = s.scores[r] + i * kPageTokens;
        const int v = FigureOf(g, r);
        const F centre_units = Set(s.constant[v]), step = Set(s.step[v]), mass = Set(s.mass[v]);
        for (int t = 0; t < kPageTokens; t += kLaneBlock) {
          const F before = g == 0 ? Zero() : Load(scores + t);
          const F dot = Mul(Sub(DotsInSteps<kTerms>(r, t, s), centre_units), step);
          const F constant = Fma(Load(s.centred + t), mass, before);
          Store(scores + t, Fma(Load(s.scale + t), dot, constant));
        }
      }
    }
  }
}

// q . mean of a block for every row, a quad of lanes each.
template <int NR>
inline F MeanDots(const SideLayout& side, const std::byte* base, int block,
                  const SegmentRows& rows) {
  const std::byte* const mean = base + side.mean_offset + block * side.padded_dim;
  F sum[4];
  Unroll<4>([&](auto r) KVANT_INLINE_LAMBDA { sum[r()] = Zero(); });
  for (int c = 0; c < side.padded_dim; c += kLaneBlock) {
    const F m = ToFloat(LoadI8(mean + c));
    Unroll<NR>([&](auto r)
                   KVANT_INLINE_LAMBDA { sum[r()] = Fma(m, Load(rows.q[r()] + c), sum[r()]); });
  }
  const F step = SetF16(base + side.parameters_offset + block * side.parameter_count() * 2);
  return Mul(ReduceAdd4(sum[0], sum[1], sum[2], sum[3]), step);
}

// K as norm and direction: one rounded query serves all pages, each score is multiplied by its
// token's norm; the page's mean adds q . mean to all of them.
template <int kLow, int kHigh, Code kCode>
inline void ScoreNormedSegment(const Segment& segment, const uint8_t* levels,
                               const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  MetadataReader reader(side);
  const int stride = RoundedBytes(side.padded_dim), steps = side.padded_dim / kStep;
  for (int r = 0; r < rows.rows; ++r) {
    RoundGroups<1>(rows.q[r], side.padded_dim, side.padded_dim, CentreOf(side.format), r, s);
  }
  const int lines = stream.BurstLines(
      segment.num_blocks, stream.all_lines() - segment.num_blocks * side.bytes / 2 / 64);
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    reader.ReadAll(reader.Enter(ref.page, ref.block), kPageTokens, s);
    alignas(64) float mean[kLaneBlock] = {};
    if (side.format.page_mean) {
      WithRows(rows.rows, [&](auto nr) {
        Store(mean, MeanDots<decltype(nr)::value>(side, ref.page, ref.block, rows));
      });
    }
    stream.Burst(lines);
    float* const scores = s.scores[0] + i * kPageTokens;
    const float *const units = s.constant, *const step = s.step, *const norms = s.scale,
                       *const means = mean;
    const auto finish = [=](int r, int lane, F dot) KVANT_INLINE_LAMBDA {
      const F centred = Mul(Sub(dot, Set(units[FigureOf(0, r)])), Set(step[FigureOf(0, r)]));
      Store(scores + r * kSegmentTokens + lane,
            Fma(Load(norms + lane), centred, Set(means[FigureOf(0, r)])));
    };
    DotPlanes<kLow, kHigh, kCode>(PlanesOfChunk<kLow, kHigh>(side, ref.page, ref.block, 0, levels),
                                  0, kChunkBlocks, 0, steps, rows.rows, s.rounded, stride, stream,
                                  finish);
  }
}

// The types of float sides, and of FP8 sides, whose values have a scale a token.
enum class Value { kF32, kF16, kBf16, kE4M3, kE5M2 };
constexpr bool IsScaled(Value type) { return type == Value::kE4M3 || type == Value::kE5M2; }

// Of E4M3 2^-8 times the value: TokenScales makes good for it.
template <Value kType>
inline F LoadValue(const std::byte* base, int64_t at) {
  if constexpr (kType == Value::kF32) {
    return Load(reinterpret_cast<const float*>(base) + at);
  } else if constexpr (kType == Value::kF16) {
    return LoadF16(base + 2 * at);
  } else if constexpr (kType == Value::kBf16) {
    return LoadBf16(base + 2 * at);
  } else if constexpr (kType == Value::kE4M3) {
    return LoadE4M3Over256(base + at);
  } else {
    return LoadE5M2(base + at);
  }
}

// FP8: what LoadValue of tokens t .. t + 15 of a block is multiplied by.
template <Value kType>
inline F TokenScales(const SideLayout& side, const std::byte* base, int block, int t) {
  const std::byte* scales = base + static_cast<int64_t>(block) * side.block_metadata_bytes;
  return Mul(LoadF16(scales + 2 * t), Set(kType == Value::kE4M3 ? 256.0f : 1.0f));
}

// Lines that a step of a float tile asks for: as many as it reads.
template <Value kType>
constexpr int FloatLines(int blocks) {
  const int bytes = blocks * kLaneBlock * (kType == Value::kF32 ? 4 : IsScaled(kType) ? 1 : 2);
  return bytes < Stream::kLineBytes ? 1 : bytes / Stream::kLineBytes;
}

// K in a float type: [head_dim][tokens], lanes are tokens, the query is broadcast.
template <Value kType>
inline void ScoreFloatBlock(const SideLayout& side, const BlockRef& ref, int index,
                            const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  const std::byte* base =
      ref.page + side.codes_offset + static_cast<int64_t>(ref.block) * side.block_bytes;
  const int lane_blocks = (ref.end + kLaneBlock - 1) / kLaneBlock;
  ForTiles(lane_blocks, rows.rows, [&](auto nb, auto nr, int block, int row) {
    constexpr int NB = nb(), NR = nr(), kLines = FloatLines<kType>(NB);
    F acc[NR][NB];
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA { acc[i() / NB][i() % NB] = Zero(); });
    Stream::Lines lines = stream.Take(side.head_dim * kLines);
    for (int c = 0; c < side.head_dim; ++c) {
      lines.template Ask<kLines>();
      F keys[NB];
      Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
        keys[b()] = LoadValue<kType>(
            base, static_cast<int64_t>(c) * side.block_tokens + (block + b()) * kLaneBlock);
      });
      Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
        const F q = Set(rows.q[row + r()][c]);
        Unroll<NB>([&](auto b)
                       KVANT_INLINE_LAMBDA { acc[r()][b()] = Fma(keys[b()], q, acc[r()][b()]); });
      });
    }
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA {
      const int token = (block + i() % NB) * kLaneBlock;
      F score = acc[i() / NB][i() % NB];
      if constexpr (IsScaled(kType)) {
        score = Mul(score, TokenScales<kType>(side, ref.page, ref.block, token));
      }
      Store(s.scores[row + i() / NB] + index * kPageTokens + token, score);
    });
  });
}
