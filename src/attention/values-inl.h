// Phase two: the sum of V weighted by the probabilities, V in any format. Included by kernel_body-inl.h inside an anonymous namespace.

// Calls fn(chunk, first block inside the chunk, number of blocks) over lane blocks [first, end).
template <typename Fn>
inline void ForChunks(int first, int end, const Fn& fn) {
  while (first < end) {
    const int chunk = first / kChunkBlocks, inside = first % kChunkBlocks;
    const int left = end - first, room = kChunkBlocks - inside;
    const int count = left < room ? left : room;
    fn(chunk, inside, count);
    first += count;
  }
}

// V per token, first half: the scales of channel group g are folded into the probabilities,
// w_t = p_t * s_t, for all blocks of the segment.
inline void FoldTokenProbabilities(const Segment& segment, int g, const SegmentRows& rows,
                                   SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  const auto scales_of = [&](int i) {
    const BlockRef& ref = segment.blocks[i];
    return ref.page + segment.layout->v_offset_bytes +
           static_cast<int64_t>(ref.block) * side.block_metadata_bytes +
           static_cast<int64_t>(g) * kPageTokens * 2;
  };
  WithRows(rows.rows, [&](auto nr) {
    FoldSlots<decltype(nr)::value>(
        side, segment.num_blocks, kPageTokens, scales_of,
        [&](int i, int r) { return s.scores[r] + i * kPageTokens; }, s);
  });
}

template <int kLow, int kHigh, bool kTable>
inline void AccumulateTokenSegment(const Segment& segment, B table, const SegmentRows& rows,
                                   SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  for (int g = 0; g < side.channel_groups; ++g) {
    FoldTokenProbabilities(segment, g, rows, s);
    const int first = g * side.group / kLaneBlock;
    const int end = g + 1 == side.channel_groups ? side.padded_dim / kLaneBlock
                                                 : first + side.group / kLaneBlock;
    for (int i = 0; i < segment.num_blocks; ++i) {
      const BlockRef& ref = segment.blocks[i];
      if (g == 0) PrefetchNextKMetadata(segment, i);
      ForChunks(first, end, [&](int chunk, int inside, int count) {
        ChunkPlanes planes = PlanesOfChunk(side, ref.page + segment.layout->v_offset_bytes,
                                           ref.block, chunk, table, AfterV(segment, i));
        planes.ahead += planes.low - reinterpret_cast<const uint8_t*>(VCodes(segment, i));
        const int first_lane = (chunk * kChunkBlocks + inside) * kLaneBlock;
        const int vector = i * rows.rows;
        float* weighted[kMaxRows];
        for (int r = 0; r < rows.rows; ++r) weighted[r] = rows.out[r].weighted + first_lane;
        DotPlanes<kLow, kHigh, kTable>(planes, inside, count, 0, kPageTokens / kStep, rows.rows,
                                       s.rounded + vector * kPageTokens, kPageTokens,
                                       [&](int r, int lane, F dot) KVANT_INLINE_LAMBDA {
                                         float* at = weighted[r] + lane;
                                         Store(at, Fma(dot, Set(s.step[vector + r]), Load(at)));
                                       });
      });
    }
    for (int r = 0; r < rows.rows; ++r) {  // the constants of all blocks, once a group
      float constant = 0.0f;
      for (int i = 0; i < segment.num_blocks; ++i) constant += s.constant[i * rows.rows + r];
      for (int c = first * kLaneBlock; c < end * kLaneBlock; c += kLaneBlock) {
        float* weighted = rows.out[r].weighted + c;
        Store(weighted, Add(Load(weighted), Set(constant)));
      }
    }
  }
}

// V per channel: the probabilities are rounded as they are, the channel scales come last.
template <int kLow, int kHigh, bool kTable>
inline void AccumulateChannelBlock(const SideLayout& side, const std::byte* base,
                                   const BlockRef& ref, int index, B table, const SegmentRows& rows,
                                   SegmentScratch& s) {
  const float centre = CentreOf(side.format);
  const int group = TokensOfGroup(side);
  for (int token = 0; token < kPageTokens; token += group) {
    for (int r = 0; r < rows.rows; ++r) {
      const float* p = s.scores[r] + index * kPageTokens + token;
      F amax = Zero(), total = Zero();
      for (int t = 0; t < group; t += kLaneBlock) {
        const F prob = Load(p + t);
        amax = Max(amax, prob);
        total = Add(total, prob);
      }
      RoundVector(p, group, amax, centre, r, s.rounded + r * kPageTokens + token, s);
      s.mass[r] = ReduceAdd(total);
    }
    const int group_index = (ref.block * kPageTokens + token) / side.group;
    MetadataReader(side).ReadAll(base + static_cast<int64_t>(group_index) * side.padded_dim * 2,
                                 side.padded_dim, s);
    ForChunks(0, side.padded_dim / kLaneBlock, [&](int chunk, int inside, int count) {
      const ChunkPlanes planes =
          PlanesOfChunk(side, base, ref.block, chunk, table, CodesOf(side, base, ref.block));
      DotSums<kLow, kHigh, kTable>(planes, inside, count, token / kStep, (token + group) / kStep,
                                   rows.rows, kPageTokens, s);
      const int first_lane = (chunk * kChunkBlocks + inside) * kLaneBlock;
      for (int r = 0; r < rows.rows; ++r) {
        float* weighted = rows.out[r].weighted;
        const F centre_units = Set(s.constant[r]), step = Set(s.step[r]), mass = Set(s.mass[r]);
        for (int c = first_lane; c < first_lane + count * kLaneBlock; c += kLaneBlock) {
          const F dot = Mul(Sub(Load(s.sums[r] + c - first_lane), centre_units), step);
          const F before = Fma(Load(s.centred + c), mass, Load(weighted + c));
          Store(weighted + c, Fma(Load(s.scale + c), dot, before));
        }
      }
    });
  }
}

// V in a float type: [tokens][padded_dim], lanes are channels. Reads visible tokens only: what
// unwritten slots hold must not reach a result (0 * NaN).
template <FloatType kType>
inline void AccumulateFloatBlock(const SideLayout& side, const std::byte* base, const BlockRef& ref,
                                 int index, const std::byte* next, const SegmentRows& rows,
                                 SegmentScratch& s) {
  const std::byte* values = base + static_cast<int64_t>(ref.block) * side.block_bytes;
  ForTiles(side.padded_dim / kLaneBlock, rows.rows, [&](auto nb, auto nr, int block, int row) {
    F acc[nr()][nb()];
    for (int r = 0; r < nr(); ++r) {
      for (int b = 0; b < nb(); ++b) {
        acc[r][b] = Load(rows.out[row + r].weighted + (block + b) * kLaneBlock);
      }
    }
    for (int t = ref.begin; t < ref.end; ++t) {
      F v[nb()];
      for (int b = 0; b < nb(); ++b) {
        const int64_t at = static_cast<int64_t>(t) * side.padded_dim + (block + b) * kLaneBlock;
        v[b] = LoadValue<kType>(values, at);
        PrefetchValue<kType>(next, at, b);
      }
      for (int r = 0; r < nr(); ++r) {
        const F p = Set(s.scores[row + r][index * kPageTokens + t]);
        for (int b = 0; b < nb(); ++b) acc[r][b] = Fma(v[b], p, acc[r][b]);
      }
    }
    for (int r = 0; r < nr(); ++r) {
      for (int b = 0; b < nb(); ++b) {
        Store(rows.out[row + r].weighted + (block + b) * kLaneBlock, acc[r][b]);
      }
    }
  });
}
