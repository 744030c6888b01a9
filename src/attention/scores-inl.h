// Phase one: scores of a segment, K in any format. Included by kernel_body-inl.h inside an anonymous namespace.

// Groups along tokens inside one 64-token block.
inline int TokensOfGroup(const SideLayout& side) {
  return side.group < kPageTokens ? side.group : kPageTokens;
}

// K per channel, first half: the scales are folded into the query, q'_c = q_c * s_c, once for every
// row of groups. All slots of a segment come first: they are independent, and so are the dots that
// follow; one after the other each would wait for its own chain of reductions.
inline void FoldChannelQueries(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
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
    FoldSlots<decltype(nr)::value>(
        side, segment.num_blocks * groups, side.padded_dim, scales_of,
        [&](int, int r) { return rows.q[r]; }, s);
  });
}

template <int kLow, int kHigh, bool kTable>
inline void ScoreChannelSegment(const Segment& segment, B table, const SegmentRows& rows,
                                SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const int group = TokensOfGroup(side);
  FoldChannelQueries(segment, rows, s);
  int vector = 0;
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    PrefetchVMetadata(segment, i);
    const ChunkPlanes planes =
        PlanesOfChunk(side, ref.page, ref.block, 0, table, AfterK(segment, i));
    for (int token = 0; token < kPageTokens; token += group) {
      DotPlanes<kLow, kHigh, kTable>(
          planes, token / kLaneBlock, group / kLaneBlock, 0, side.padded_dim / kStep, rows.rows,
          s.rounded + vector * side.padded_dim, side.padded_dim,
          [&](int r, int lane, F dot) KVANT_INLINE_LAMBDA {
            Store(s.scores[r] + i * kPageTokens + token + lane,
                  Fma(dot, Set(s.step[vector + r]), Set(s.constant[vector + r])));
          });
      vector += rows.rows;
    }
  }
}

// K per token: one rounded query serves all pages, each score is multiplied by its token's scale.
template <int kLow, int kHigh, bool kTable>
inline void ScoreTokenSegment(const Segment& segment, B table, const SegmentRows& rows,
                              SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const MetadataReader reader(side);
  const float centre = CentreOf(side.format);
  for (int g = 0; g < side.channel_groups; ++g) {
    const int first = g * side.group;
    const int end = g + 1 == side.channel_groups ? side.padded_dim : first + side.group;
    for (int r = 0; r < rows.rows; ++r) {
      F amax = Zero(), total = Zero();
      for (int c = first; c < end; c += kLaneBlock) {
        const F q = Load(rows.q[r] + c);
        amax = Max(amax, Abs(q));
        total = Add(total, q);
      }
      RoundVector(rows.q[r] + first, end - first, amax, centre, r,
                  s.rounded + r * side.padded_dim + first, s);
      s.mass[r] = ReduceAdd(total);
    }
    for (int i = 0; i < segment.num_blocks; ++i) {
      const BlockRef& ref = segment.blocks[i];
      if (g == 0) PrefetchVMetadata(segment, i);
      reader.ReadAll(ref.page + static_cast<int64_t>(ref.block) * side.block_metadata_bytes +
                         static_cast<int64_t>(g) * kPageTokens * 2,
                     kPageTokens, s);
      const ChunkPlanes planes =
          PlanesOfChunk(side, ref.page, ref.block, 0, table, AfterK(segment, i));
      DotSums<kLow, kHigh, kTable>(planes, 0, kChunkBlocks, first / kStep, end / kStep, rows.rows,
                                   side.padded_dim, s);
      for (int r = 0; r < rows.rows; ++r) {
        float* scores = s.scores[r] + i * kPageTokens;
        const F centre_units = Set(s.constant[r]), step = Set(s.step[r]), mass = Set(s.mass[r]);
        for (int t = 0; t < kPageTokens; t += kLaneBlock) {
          const F before = g == 0 ? Zero() : Load(scores + t);
          const F dot = Mul(Sub(Load(s.sums[r] + t), centre_units), step);
          const F constant = Fma(Load(s.centred + t), mass, before);
          Store(scores + t, Fma(Load(s.scale + t), dot, constant));
        }
      }
    }
  }
}

template <FloatType kType>
inline F LoadValue(const std::byte* base, int64_t at) {
  if constexpr (kType == FloatType::kF32) {
    return Load(reinterpret_cast<const float*>(base) + at);
  } else if constexpr (kType == FloatType::kF16) {
    return LoadF16(base + 2 * at);
  } else {
    return LoadBf16(base + 2 * at);
  }
}

// Asks for the line of the 16 values at `at`; block b of a tile that starts on a line.
template <FloatType kType>
KVANT_INLINE void PrefetchValue(const std::byte* base, int64_t at, int b) {
  constexpr int kBytes = kType == FloatType::kF32 ? 4 : 2;
  if (b * kLaneBlock * kBytes % 64 == 0) Prefetch(base + at * kBytes);
}

// K in a float type: [head_dim][tokens], lanes are tokens, the query is broadcast.
template <FloatType kType>
inline void ScoreFloatBlock(const SideLayout& side, const BlockRef& ref, int index,
                            const std::byte* next, const SegmentRows& rows, SegmentScratch& s) {
  const std::byte* base = ref.page + static_cast<int64_t>(ref.block) * side.block_bytes;
  const int lane_blocks = (ref.end + kLaneBlock - 1) / kLaneBlock;
  ForTiles(lane_blocks, rows.rows, [&](auto nb, auto nr, int block, int row) {
    F acc[nr()][nb()];
    for (auto& line : acc) {
      for (F& a : line) a = Zero();
    }
    for (int c = 0; c < side.head_dim; ++c) {
      F keys[nb()];
      for (int b = 0; b < nb(); ++b) {
        const int64_t at = static_cast<int64_t>(c) * side.block_tokens + (block + b) * kLaneBlock;
        keys[b] = LoadValue<kType>(base, at);
        PrefetchValue<kType>(next, at, b);
      }
      for (int r = 0; r < nr(); ++r) {
        const F q = Set(rows.q[row + r][c]);
        for (int b = 0; b < nb(); ++b) acc[r][b] = Fma(keys[b], q, acc[r][b]);
      }
    }
    for (int r = 0; r < nr(); ++r) {
      for (int b = 0; b < nb(); ++b) {
        Store(s.scores[row + r] + index * kPageTokens + (block + b) * kLaneBlock, acc[r][b]);
      }
    }
  });
}
