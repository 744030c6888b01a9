// Integer dots over coded planes. Included by kernel_body-inl.h inside an anonymous namespace.

// How codes are stored is told by three constants: bits of the low and of the high plane, and
// whether the code is an index into a table of levels.

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
      if constexpr (kQuad * kUnits % 4 == 0)
        Prefetch(low + kQuad * kUnits / 4 * stride + planes.ahead);
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
// finish(row, lane, sums) gets the 16 sums over steps of codes * x[row]; lane counts from
// first_block. They come straight from the registers: a round trip through memory cost 5 % of an
// int4 page.
template <int kLow, int kHigh, bool kTable, typename Finish>
inline void DotPlanes(const ChunkPlanes& planes, int first_block, int num_blocks, int first_step,
                      int end_step, int rows, const int8_t* x, int x_stride, const Finish& finish) {
  ForTiles(num_blocks, rows, [&](auto nb, auto nr, int block, int row) {
    DotTile<kLow, kHigh, kTable, nb(), nr()> tile{
        planes, first_block + block, x + row * x_stride, x_stride, {}};
    tile.Run(first_step, end_step, [&](int r, int b, F sums) KVANT_INLINE_LAMBDA {
      finish(row + r, (block + b) * kLaneBlock, sums);
    });
  });
}

// The same by way of s.sums, for the axes that few caches use (K per token, V per channel): one
// copy of the tiles serves both and halves the time to compile this file.
template <int kLow, int kHigh, bool kTable>
__attribute__((noinline)) void DotSums(const ChunkPlanes& planes, int first_block, int num_blocks,
                                       int first_step, int end_step, int rows, int x_stride,
                                       SegmentScratch& s) {
  DotPlanes<kLow, kHigh, kTable>(planes, first_block, num_blocks, first_step, end_step, rows,
                                 s.rounded, x_stride,
                                 [&](int r, int lane, F sums) { Store(s.sums[r] + lane, sums); });
}

inline ChunkPlanes PlanesOfChunk(const SideLayout& side, const std::byte* base, int block,
                                 int chunk, B table, const std::byte* next) {
  const auto* codes = reinterpret_cast<const uint8_t*>(base) + side.metadata_bytes +
                      static_cast<int64_t>(block) * side.block_bytes;
  const int lane_blocks = side.lanes() / kLaneBlock, first = chunk * kChunkBlocks;
  const int64_t low_per_block = side.plane_bytes[0] / lane_blocks;
  const int64_t high_per_block = side.plane_bytes[1] / lane_blocks;
  return {codes + first * low_per_block, codes + side.plane_bytes[0] + first * high_per_block,
          lane_blocks - first < kChunkBlocks ? lane_blocks - first : kChunkBlocks, table,
          next - reinterpret_cast<const std::byte*>(codes)};
}
