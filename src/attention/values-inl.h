// Phase two: the sum of V weighted by the probabilities, V in any format. Included by
// kernel_body-inl.h inside an anonymous namespace.

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

// V per token: SoftmaxFold left a rounded vector for every channel group of every block.
template <int kLow, int kHigh, Code kCode>
inline void AccumulateTokenSegment(const Segment& segment, const uint8_t* levels,
                                   const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  constexpr int kTerms = TermsFor(kLow + kHigh);
  const SideLayout& side = segment.layout->v;
  const int vectors = rows.rows * kTerms;
  for (int g = 0; g < side.channel_groups; ++g) {
    const int first = g * side.group / kLaneBlock;
    const int end = g + 1 == side.channel_groups ? side.padded_dim / kLaneBlock
                                                 : first + side.group / kLaneBlock;
    for (int i = 0; i < segment.num_blocks; ++i) {
      const BlockRef& ref = segment.blocks[i];
      const int slot = g * segment.num_blocks + i;
      ForChunks(first, end, [&](int chunk, int inside, int count) {
        const ChunkPlanes planes = PlanesOfChunk<kLow, kHigh>(
            side, ref.page + segment.layout->v_offset_bytes, ref.block, chunk, levels);
        const int first_lane = (chunk * kChunkBlocks + inside) * kLaneBlock;
        float* weighted[kMaxRows] = {};
        for (int r = 0; r < rows.rows; ++r) weighted[r] = rows.out[r].weighted + first_lane;
        const float* const step = s.step + FigureOf(slot, 0);
        const auto finish = [=](int v, int lane, F dot) KVANT_INLINE_LAMBDA {
          const float unit = v % kTerms == 0 ? 1.0f : kSecondUnit;
          float* const at = weighted[v / kTerms] + lane;
          Store(at, Fma(dot, Set(step[FigureOf(0, v / kTerms)] * unit), Load(at)));
        };
        DotPlanes<kLow, kHigh, kCode>(planes, inside, count, 0, kPageTokens / kStep, vectors,
                                      s.rounded + slot * vectors * kPageTokens, kPageTokens, stream,
                                      finish);
      });
    }
    for (int r = 0; r < rows.rows; ++r) {  // the constants of all blocks, once a group
      float constant = 0.0f;
      for (int i = 0; i < segment.num_blocks; ++i) {
        constant += s.constant[FigureOf(g * segment.num_blocks + i, r)];
      }
      for (int c = first * kLaneBlock; c < end * kLaneBlock; c += kLaneBlock) {
        float* weighted = rows.out[r].weighted + c;
        Store(weighted, Add(Load(weighted), Set(constant)));
      }
    }
  }
}

// V per channel: the probabilities are rounded as they are, the channel scales come last.
template <int kLow, int kHigh, Code kCode>
inline void AccumulateChannelBlock(const SideLayout& side, const std::byte* base,
                                   const BlockRef& ref, int index, const uint8_t* levels,
                                   const SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  constexpr int kTerms = TermsFor(kLow + kHigh);
  const int group = TokensOfGroup(side);
  for (int r = 0; r < rows.rows; ++r) {
    RoundGroups<kTerms>(s.scores[r] + index * kPageTokens, kPageTokens, group,
                        CentreOf(side.format), r, s);
  }
  for (int token = 0, slot = 0; token < kPageTokens; token += group, ++slot) {
    const int group_index = (ref.block * kPageTokens + token) / side.group;
    MetadataReader(side).ReadAll(base + static_cast<int64_t>(group_index) * side.padded_dim * 2,
                                 side.padded_dim, s);
    ForChunks(0, side.padded_dim / kLaneBlock, [&](int chunk, int inside, int count) {
      const ChunkPlanes planes = PlanesOfChunk<kLow, kHigh>(side, base, ref.block, chunk, levels);
      DotSums<kLow, kHigh, kCode>(planes, inside, count, token / kStep, (token + group) / kStep,
                                  rows.rows * kTerms, kPageTokens, stream, s);
      const int first_lane = (chunk * kChunkBlocks + inside) * kLaneBlock;
      for (int r = 0; r < rows.rows; ++r) {
        float* weighted = rows.out[r].weighted;
        const int v = FigureOf(slot, r);
        const F centre_units = Set(s.constant[v]), step = Set(s.step[v]), mass = Set(s.mass[v]);
        for (int c = first_lane; c < first_lane + count * kLaneBlock; c += kLaneBlock) {
          const F dot = Mul(Sub(DotsInSteps<kTerms>(r, c - first_lane, s), centre_units), step);
          const F before = Fma(Load(s.centred + c), mass, Load(weighted + c));
          Store(weighted + c, Fma(Load(s.scale + c), dot, before));
        }
      }
    });
  }
}

// V in a float type: [tokens][padded_dim], lanes are channels. Reads visible tokens only: what
// unwritten slots hold must not reach a result (0 * NaN).
template <Value kType>
inline void AccumulateFloatBlock(const SideLayout& side, const std::byte* base, const BlockRef& ref,
                                 int index, const SegmentRows& rows, Stream& stream,
                                 SegmentScratch& s) {
  const std::byte* values =
      base + side.codes_offset + static_cast<int64_t>(ref.block) * side.block_bytes;
  if constexpr (IsScaled(kType)) {
    for (int t = 0; t < kPageTokens; t += kLaneBlock) {
      const F scales = TokenScales<kType>(side, base, ref.block, t);
      for (int r = 0; r < rows.rows; ++r) {
        float* const p = s.scores[r] + index * kPageTokens + t;
        Store(p, Mul(Load(p), scales));
      }
    }
  }
  ForTiles(side.padded_dim / kLaneBlock, rows.rows, [&](auto nb, auto nr, int block, int row) {
    constexpr int NB = nb(), NR = nr(), kLines = FloatLines<kType>(NB);
    const auto weighted = [&](auto i) KVANT_INLINE_LAMBDA {
      return rows.out[row + i() / NB].weighted + (block + i() % NB) * kLaneBlock;
    };
    F acc[NR][NB];
    Unroll<NR * NB>([&](auto i)
                        KVANT_INLINE_LAMBDA { acc[i() / NB][i() % NB] = Load(weighted(i)); });
    Stream::Lines lines = stream.Take((ref.end - ref.begin) * kLines);
    for (int t = ref.begin; t < ref.end; ++t) {
      lines.template Ask<kLines>();
      F v[NB];
      Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
        v[b()] = LoadValue<kType>(
            values, static_cast<int64_t>(t) * side.padded_dim + (block + b()) * kLaneBlock);
      });
      Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
        const F p = Set(s.scores[row + r()][index * kPageTokens + t]);
        Unroll<NB>([&](auto b)
                       KVANT_INLINE_LAMBDA { acc[r()][b()] = Fma(v[b()], p, acc[r()][b()]); });
      });
    }
    Unroll<NR * NB>([&](auto i)
                        KVANT_INLINE_LAMBDA { Store(weighted(i), acc[i() / NB][i() % NB]); });
  });
}
