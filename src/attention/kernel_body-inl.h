// The attention kernels, written once over 16-lane vectors and included by every ISA level inside an
// anonymous namespace, after its vec_*-inl.h. Read from the bottom up: AttendSegment is the main loop.

// Accumulators live in registers only if everything around them is inlined; g++ 12 gives up on the
// larger tiles by itself (int3 ran at half speed).
#define KVANT_INLINE inline __attribute__((always_inline))
#define KVANT_INLINE_LAMBDA __attribute__((always_inline))

// Calls fn(NB, NR, block, row) with constants NB x NR that tile `blocks` x `rows` accumulators.
template <typename Fn>
inline void ForTileRows(auto nb, int block, int rows, const Fn& fn) {
  int row = 0;
  if constexpr (kTileRows >= 4) {
    for (; rows - row >= 4; row += 4) fn(nb, std::integral_constant<int, 4>{}, block, row);
    if (rows - row == 3) {
      fn(nb, std::integral_constant<int, 3>{}, block, row);
      return;
    }
  }
  if constexpr (kTileRows >= 2) {
    for (; rows - row >= 2; row += 2) fn(nb, std::integral_constant<int, 2>{}, block, row);
  }
  for (; row < rows; ++row) fn(nb, std::integral_constant<int, 1>{}, block, row);
}
template <typename Fn>
inline void ForTiles(int blocks, int rows, const Fn& fn) {
  int block = 0;
  if constexpr (kTileBlocks >= 4) {
    for (; blocks - block >= 4; block += 4) {
      ForTileRows(std::integral_constant<int, 4>{}, block, rows, fn);
    }
  }
  if constexpr (kTileBlocks >= 2) {
    for (; blocks - block >= 2; block += 2) {
      ForTileRows(std::integral_constant<int, 2>{}, block, rows, fn);
    }
  }
  for (; block < blocks; ++block) {
    ForTileRows(std::integral_constant<int, 1>{}, block, rows, fn);
  }
}

// ---- 2^x -----------------------------------------------------------------------------------------

// 2^x for x <= 0; below -100 it stays 2^-100 (8e-31), so that no product becomes subnormal.
// 2^r on [-1/2, 1/2] by its Taylor series to the 6th power: relative error 1.2e-7.
inline F Exp2(F x) {
  x = Max(x, Set(-100.0f));
  const I n = Round(x);
  const F r = Sub(x, ToFloat(n));
  F p = Set(1.54035304e-4f);
  p = Fma(p, r, Set(1.33335581e-3f));
  p = Fma(p, r, Set(9.61812911e-3f));
  p = Fma(p, r, Set(5.55041087e-2f));
  p = Fma(p, r, Set(2.40226507e-1f));
  p = Fma(p, r, Set(6.93147181e-1f));
  p = Fma(p, r, Set(1.0f));
  return Mul(p, PowerOfTwo(n));
}

// ---- integer dots over coded planes -----------------------------------------------------------------

// How codes are stored is told by three constants: bits of the low and of the high plane, and whether
// the code is an index into a table of levels.

// Codes of quad kQuad (4 reduce elements) of a step, one unit.
//   low, high: the planes at this step and lane block; stride: bytes from unit to unit
template <int kLow, int kHigh, bool kTable, int kParity, int kQuad>
KVANT_INLINE B QuadCodes(const uint8_t* low, const uint8_t* high, int stride, B table) {
  B codes;
  if constexpr (kLow == 8) {
    codes = LoadB(low + kQuad * stride);
  } else if constexpr (kLow == 4) {
    codes = LoadB(low + kQuad / 2 * stride);
    if constexpr (kQuad % 2 == 1) codes = ShiftRight<4>(codes);
    codes = AndB(codes, SetB(0x0f));
  } else {
    codes = LoadB(low);
    if constexpr (kQuad != 0) codes = ShiftRight<2 * kQuad>(codes);
    codes = AndB(codes, SetB(0x03));
  }
  if constexpr (kHigh != 0) {
    constexpr int kFrom = kHigh == 2 ? 2 * kQuad : 4 * kParity + kQuad;
    B part = LoadB(high);
    if constexpr (kFrom > kLow) part = ShiftRight<kFrom - kLow>(part);
    if constexpr (kFrom < kLow) part = ShiftLeft<kLow - kFrom>(part);
    codes = OrB(codes, AndB(part, SetB(static_cast<uint8_t>(((1 << kHigh) - 1) << kLow))));
  }
  if constexpr (kTable) codes = Lookup(table, codes);
  return codes;
}

// The planes of one chunk of lanes of one 64-token block.
struct ChunkPlanes {
  const uint8_t* low;
  const uint8_t* high;
  int blocks;     // lane blocks of the chunk
  B table;        // levels + 128 of a codebook
  int64_t ahead;  // bytes from these codes to those that are read next: prefetched line by line
};

template <int kLow, int kHigh, bool kTable, int NB, int NR>
struct DotTile {
  static constexpr bool kWide = kLow == 8 || kTable;  // unsigned codes above 127
  const ChunkPlanes& planes;
  int block;
  const int8_t* x;  // [NR] rows, `x_stride` apart
  int x_stride;
  I acc[NR][NB];

  template <int kParity, int kQuad>
  KVANT_INLINE void Quad(int step) {
    const int stride = planes.blocks * kPlaneUnitBytes;
    constexpr int kUnits = kLow / 2;
    B codes[NB];
    for (int b = 0; b < NB; ++b) {
      const int at = (block + b) * kPlaneUnitBytes;
      const int high_unit = kHigh == 1 ? step / 2 : step;
      const uint8_t* low = planes.low + static_cast<int64_t>(step) * kUnits * stride + at;
      const uint8_t* high =
          kHigh == 0 ? nullptr : planes.high + static_cast<int64_t>(high_unit) * stride + at;
      codes[b] = QuadCodes<kLow, kHigh, kTable, kParity, kQuad>(low, high, stride, planes.table);
      if constexpr (kQuad * kUnits % 4 == 0) Prefetch(low + kQuad * kUnits / 4 * stride + planes.ahead);
      if constexpr (kHigh != 0 && kParity == 0 && kQuad == 0) Prefetch(high + planes.ahead);
    }
    for (int r = 0; r < NR; ++r) {
      for (int b = 0; b < NB; ++b) {
        acc[r][b] = Dot<kWide>(acc[r][b], codes[b], x + r * x_stride + step * kStep + 4 * kQuad);
      }
    }
  }
  template <int kParity>
  KVANT_INLINE void Step(int step) {
    Quad<kParity, 0>(step);
    Quad<kParity, 1>(step);
    Quad<kParity, 2>(step);
    Quad<kParity, 3>(step);
  }
  template <typename Finish>
  KVANT_INLINE void Run(int first_step, int end_step, const Finish& finish) {
    for (int r = 0; r < NR; ++r) {
      for (int b = 0; b < NB; ++b) acc[r][b] = ZeroI();
    }
    if constexpr (kHigh == 1) {
      int step = first_step;
      if (step < end_step && step % 2 == 1) Step<1>(step++);
      for (; step + 2 <= end_step; step += 2) {
        Step<0>(step);
        Step<1>(step + 1);
      }
      if (step < end_step) Step<0>(step);
    } else {
      for (int step = first_step; step < end_step; ++step) Step<0>(step);
    }
    for (int r = 0; r < NR; ++r) {
      for (int b = 0; b < NB; ++b) finish(r, b, ToFloat(acc[r][b]));
    }
  }
};

// Dots of lane blocks [first_block, first_block + num_blocks) with the vectors x: [rows][x_stride].
// finish(row, lane, sums) gets the 16 sums over steps of codes * x[row]; lane counts from first_block.
// They come straight from the registers: a round trip through memory cost 5 % of an int4 page.
template <int kLow, int kHigh, bool kTable, typename Finish>
inline void DotPlanes(const ChunkPlanes& planes, int first_block, int num_blocks, int first_step,
                      int end_step, int rows, const int8_t* x, int x_stride, const Finish& finish) {
  ForTiles(num_blocks, rows, [&](auto nb, auto nr, int block, int row) {
    DotTile<kLow, kHigh, kTable, nb(), nr()> tile{planes, first_block + block, x + row * x_stride,
                                                  x_stride, {}};
    tile.Run(first_step, end_step, [&](int r, int b, F sums) KVANT_INLINE_LAMBDA {
      finish(row + r, (block + b) * kLaneBlock, sums);
    });
  });
}

// The same by way of s.sums, for the axes that few caches use (K per token, V per channel): one copy
// of the tiles serves both and halves the time to compile this file.
template <int kLow, int kHigh, bool kTable>
__attribute__((noinline)) void DotSums(const ChunkPlanes& planes, int first_block, int num_blocks,
                                       int first_step, int end_step, int rows, int x_stride,
                                       SegmentScratch& s) {
  DotPlanes<kLow, kHigh, kTable>(planes, first_block, num_blocks, first_step, end_step, rows,
                                 s.rounded, x_stride, [&](int r, int lane, F sums) {
                                   Store(s.sums[r] + lane, sums);
                                 });
}

inline ChunkPlanes PlanesOfChunk(const SideLayout& side, const std::byte* base, int block, int chunk,
                                 B table, const std::byte* next) {
  const auto* codes = reinterpret_cast<const uint8_t*>(base) + side.metadata_bytes +
                      static_cast<int64_t>(block) * side.block_bytes;
  const int lane_blocks = side.lanes() / kLaneBlock, first = chunk * kChunkBlocks;
  const int64_t low_per_block = side.plane_bytes[0] / lane_blocks;
  const int64_t high_per_block = side.plane_bytes[1] / lane_blocks;
  return {codes + first * low_per_block, codes + side.plane_bytes[0] + first * high_per_block,
          lane_blocks - first < kChunkBlocks ? lane_blocks - first : kChunkBlocks, table,
          next - reinterpret_cast<const std::byte*>(codes)};
}

// ---- metadata --------------------------------------------------------------------------------------

// The middle of the code range: codes are centred on it, so that rounding errors of the query or the
// probability multiply values of either sign.
inline float CentreOf(const Format& f) {
  if (f.levels == Levels::kCodebook) return 128.0f;
  return 0.5f * static_cast<float>((1 << f.bits) - 1);
}

// How the stored offsets of a side turn into the value of its middle code.
struct MetadataReader {
  Offset offset;
  F centre;       // the middle code
  F half;         // symmetric conventions: what lies between the middle code and the zero
  int to_offsets; // bytes from a scale to its offset

  explicit MetadataReader(const SideLayout& side)
      : offset(side.format.offset), centre(Set(CentreOf(side.format))),
        half(Set(side.format.levels == Levels::kCodebook
                     ? 0.0f
                     : CentreOf(side.format) - static_cast<float>(1 << (side.format.bits - 1)))),
        to_offsets(side.offsets_from_scales) {}

  // 16 groups: value = scale * (code - centre) + centred.
  KVANT_INLINE void Read(const std::byte* scales, F& scale, F& centred) const {
    scale = LoadF16(scales);
    const std::byte* offsets = scales + to_offsets;
    switch (offset) {
      case Offset::kMin: centred = Fma(scale, centre, LoadF16(offsets)); break;
      case Offset::kIntegerZero:
        centred = Mul(scale, Sub(centre, ToFloat(LoadI16(offsets))));
        break;
      case Offset::kRealZero: centred = Mul(scale, Sub(centre, LoadF16(offsets))); break;
      default: centred = Mul(scale, half); break;
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

// ---- rounding to 8 bits ------------------------------------------------------------------------------

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
// constant[v] becomes what no code carries. Reductions and divisions of 16 vectors are done together:
// one by one they took a quarter of an int4 page.
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
    case 1: return fn(integral_constant<int, 1>{});
    case 2: return fn(integral_constant<int, 2>{});
    case 3: return fn(integral_constant<int, 3>{});
    default: return fn(integral_constant<int, 4>{});
  }
}

// ---- prefetch ----------------------------------------------------------------------------------------

// Asks for bytes ahead of their use: every line, straight into L1.
inline void PrefetchBytes(const std::byte* at, int bytes) {
  for (int i = 0; i < bytes; i += 64) Prefetch(at + i);
}

// Metadata of a block is a few lines and is needed all at once: it is asked for in a burst. Codes are
// asked for one line at a time, while the line at the same place of an earlier block is used: a burst
// of them fills the miss buffers and stops the core until memory has answered.
inline void PrefetchMetadata(const SideLayout& side, const std::byte* base, int block) {
  if (side.block_metadata_bytes != 0) {
    PrefetchBytes(base + static_cast<int64_t>(block) * side.block_metadata_bytes,
                  side.block_metadata_bytes);
  } else if (block == 0) {
    PrefetchBytes(base, side.metadata_bytes);
  }
}
inline const std::byte* CodesOf(const SideLayout& side, const std::byte* base, int block) {
  return base + side.metadata_bytes + static_cast<int64_t>(block) * side.block_bytes;
}
// Blocks from a prefetch to its use: about 200 ns of work.
inline int BlocksAhead(const SideLayout& side) { return side.block_bytes >= 4096 ? 1 : 2; }

inline const std::byte* KCodes(const Segment& segment, int i) {
  return CodesOf(segment.layout->k, segment.blocks[i].page, segment.blocks[i].block);
}
inline const std::byte* VCodes(const Segment& segment, int i) {
  return CodesOf(segment.layout->v, segment.blocks[i].page + segment.layout->v_offset_bytes,
                 segment.blocks[i].block);
}
// What to prefetch while block i of K is read: K of a later block, or V of the first ones.
inline const std::byte* AfterK(const Segment& segment, int i) {
  const int ahead = i + BlocksAhead(segment.layout->k), blocks = segment.num_blocks;
  if (ahead < blocks) return KCodes(segment, ahead);
  return VCodes(segment, ahead - blocks < blocks ? ahead - blocks : blocks - 1);
}
// While block i of V is read: V of a later block, or K of the next segment.
inline const std::byte* AfterV(const Segment& segment, int i) {
  const int ahead = i + BlocksAhead(segment.layout->v), blocks = segment.num_blocks;
  if (ahead < blocks) return VCodes(segment, ahead);
  const Segment* next = segment.next;
  if (next == nullptr || ahead - blocks >= next->num_blocks) return VCodes(segment, i);
  return KCodes(*next, ahead - blocks);
}
inline void PrefetchVMetadata(const Segment& segment, int i) {
  const BlockRef& ref = segment.blocks[i];
  PrefetchMetadata(segment.layout->v, ref.page + segment.layout->v_offset_bytes, ref.block);
}
inline void PrefetchNextKMetadata(const Segment& segment, int i) {
  const Segment* next = segment.next;
  if (next == nullptr || i >= next->num_blocks) return;
  PrefetchMetadata(next->layout->k, next->blocks[i].page, next->blocks[i].block);
}

// ---- scores ----------------------------------------------------------------------------------------

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
  const int shift = std::countr_zero(static_cast<unsigned>(side.group));  // groups are powers of two
  const auto scales_of = [&](int slot) {
    const int block = groups == 1 ? slot : slot / groups;
    const BlockRef& ref = segment.blocks[block];
    const int token = ref.block * kPageTokens + (slot - block * groups) * group;
    return ref.page + (static_cast<int64_t>(token) >> shift) * side.padded_dim * 2;
  };
  WithRows(rows.rows, [&](auto nr) {
    FoldSlots<decltype(nr)::value>(side, segment.num_blocks * groups, side.padded_dim, scales_of,
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

// ---- softmax ---------------------------------------------------------------------------------------

// scores -> probabilities relative to the segment's maximum; invisible slots become 0.
inline void SoftmaxRow(const Segment& segment, int row_end, float* scores, PartialState& out) {
  const F nothing = Set(-std::numeric_limits<float>::infinity());
  const auto visible_end = [&](int i) {
    const int end = segment.blocks[i].end, own = row_end - i * kPageTokens;
    return end < own ? end : own;
  };
  // Calls fn(address of 16 scores, first, end): lanes [first, end) of them are visible. Whole blocks
  // skip the masks.
  const auto for_each_block = [&](const auto& whole, const auto& part) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      float* block = scores + i * kPageTokens;
      const int begin = segment.blocks[i].begin, end = visible_end(i);
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

// ---- weighted sum of V -------------------------------------------------------------------------------

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
    FoldSlots<decltype(nr)::value>(side, segment.num_blocks, kPageTokens, scales_of,
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
        ChunkPlanes planes = PlanesOfChunk(side, ref.page + segment.layout->v_offset_bytes, ref.block,
                                           chunk, table, AfterV(segment, i));
        planes.ahead += planes.low - reinterpret_cast<const uint8_t*>(VCodes(segment, i));
        const int first_lane = (chunk * kChunkBlocks + inside) * kLaneBlock;
        const int vector = i * rows.rows;
        float* weighted[kMaxRows];
        for (int r = 0; r < rows.rows; ++r) weighted[r] = rows.out[r].weighted + first_lane;
        DotPlanes<kLow, kHigh, kTable>(
            planes, inside, count, 0, kPageTokens / kStep, rows.rows,
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
      const ChunkPlanes planes = PlanesOfChunk(side, base, ref.block, chunk, table,
                                               CodesOf(side, base, ref.block));
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

// ---- the two phases over a segment -------------------------------------------------------------------

// The 16 levels of iq4_nl plus 128, so that the unsigned dot can read them.
alignas(16) constexpr uint8_t kTableLevels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                  129, 141, 153, 166, 181, 197, 217, 241};

// Calls fn(low bits, high bits, table?) with the constants of a coded format.
template <typename Fn>
inline void WithCodeKind(const Format& f, const Fn& fn) {
  using std::integral_constant;
  const auto kind = [&](auto low, auto high, auto table) { fn(low, high, table); };
  constexpr integral_constant<int, 0> k0;
  constexpr integral_constant<int, 1> k1;
  constexpr integral_constant<int, 2> k2;
  constexpr integral_constant<int, 4> k4;
  constexpr integral_constant<int, 8> k8;
  if (f.levels == Levels::kCodebook) return kind(k4, k0, std::true_type{});
  switch (f.bits) {
    case 8: return kind(k8, k0, std::false_type{});
    case 6: return kind(k4, k2, std::false_type{});
    case 5: return kind(k4, k1, std::false_type{});
    case 4: return kind(k4, k0, std::false_type{});
    case 3: return kind(k2, k1, std::false_type{});
    default: return kind(k2, k0, std::false_type{});
  }
}

inline void ScoreSegment(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const auto each_block = [&](const auto& score) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      PrefetchVMetadata(segment, i);
      score(segment.blocks[i], i);
    }
  };
  if (side.format.is_float()) {
    each_block([&](const BlockRef& ref, int i) {
      const std::byte* next = AfterK(segment, i);
      switch (side.format.float_type) {
        case FloatType::kF32: return ScoreFloatBlock<FloatType::kF32>(side, ref, i, next, rows, s);
        case FloatType::kF16: return ScoreFloatBlock<FloatType::kF16>(side, ref, i, next, rows, s);
        case FloatType::kBf16: return ScoreFloatBlock<FloatType::kBf16>(side, ref, i, next, rows, s);
      }
    });
    return;
  }
  const B table = LoadTable(kTableLevels);
  WithCodeKind(side.format, [&](auto low, auto high, auto is_table) {
    if (side.format.axis == Axis::kToken) {
      ScoreTokenSegment<decltype(low)::value, decltype(high)::value, decltype(is_table)::value>(
          segment, table, rows, s);
    } else {
      ScoreChannelSegment<decltype(low)::value, decltype(high)::value, decltype(is_table)::value>(
          segment, table, rows, s);
    }
  });
}

inline void AccumulateSegment(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  const auto each_block = [&](const auto& accumulate) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      PrefetchNextKMetadata(segment, i);
      accumulate(segment.blocks[i].page + segment.layout->v_offset_bytes, segment.blocks[i], i);
    }
  };
  if (side.format.is_float()) {
    each_block([&](const std::byte* base, const BlockRef& ref, int i) {
      const std::byte* next = AfterV(segment, i);
      switch (side.format.float_type) {
        case FloatType::kF32:
          return AccumulateFloatBlock<FloatType::kF32>(side, base, ref, i, next, rows, s);
        case FloatType::kF16:
          return AccumulateFloatBlock<FloatType::kF16>(side, base, ref, i, next, rows, s);
        case FloatType::kBf16:
          return AccumulateFloatBlock<FloatType::kBf16>(side, base, ref, i, next, rows, s);
      }
    });
    return;
  }
  const B table = LoadTable(kTableLevels);
  WithCodeKind(side.format, [&](auto low, auto high, auto is_table) {
    if (side.format.axis == Axis::kToken) {
      AccumulateTokenSegment<decltype(low)::value, decltype(high)::value,
                             decltype(is_table)::value>(segment, table, rows, s);
    } else {
      each_block([&](const std::byte* base, const BlockRef& ref, int i) {
        AccumulateChannelBlock<decltype(low)::value, decltype(high)::value,
                               decltype(is_table)::value>(side, base, ref, i, table, rows, s);
      });
    }
  });
}

// ---- the three operations of the table ---------------------------------------------------------------

void AttendSegment(const Segment& segment, SegmentRows& rows, SegmentScratch& s) {
  ScoreSegment(segment, rows, s);
  for (int r = 0; r < rows.rows; ++r) {
    SoftmaxRow(segment, rows.end[r], s.scores[r], rows.out[r]);
    for (int c = 0; c < segment.layout->v.padded_dim; c += kLaneBlock) {
      Store(rows.out[r].weighted + c, Zero());
    }
  }
  AccumulateSegment(segment, rows, s);
}

void MergeStates(PartialState& into, const PartialState& from, int padded_dim) {
  if (from.sum == 0.0f) return;
  const bool first = into.sum == 0.0f;
  const float max = first || from.max > into.max ? from.max : into.max;
  const F keep = first ? Zero() : Exp2(Set(into.max - max));
  const F add = Exp2(Set(from.max - max));
  for (int c = 0; c < padded_dim; c += kLaneBlock) {
    const F scaled = Mul(Load(from.weighted + c), add);
    Store(into.weighted + c, first ? scaled : Fma(Load(into.weighted + c), keep, scaled));
  }
  const F sums = Mul(Set(from.sum), add);
  alignas(64) float lanes[kLaneBlock];
  Store(lanes, first ? sums : Fma(Set(into.sum), keep, sums));
  into.sum = lanes[0];
  into.max = max;
}

void FinishState(const PartialState& state, int head_dim, float* out) {
  const F inverse = Set(1.0f / state.sum);
  alignas(64) float lanes[kLaneBlock];
  for (int c = 0; c < head_dim; c += kLaneBlock) {
    Store(lanes, Mul(Load(state.weighted + c), inverse));
    const int count = head_dim - c < kLaneBlock ? head_dim - c : kLaneBlock;
    std::memcpy(out + c, lanes, static_cast<size_t>(count) * sizeof(float));
  }
}
