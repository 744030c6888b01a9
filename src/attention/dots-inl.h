// Integer dots over coded planes. Included by kernel_body-inl.h inside an anonymous namespace.

// How codes are stored is told by three constants: bits of the low and of the high plane, and
// whether the code is an index into a table of levels.

// Codes of quad kQuad (4 reduce elements) of a step, one unit.
//   low, high: the planes at this step and lane block; stride: bytes from unit to unit
template <int kLow, int kHigh, bool kTable, int kParity, int kQuad>
KVANT_INLINE B QuadCodes(const uint8_t* low, const uint8_t* high, std::ptrdiff_t stride, B table) {
  B codes;
  if constexpr (kLow == 8) {
    codes = LoadB(low + kQuad * stride);
  } else if constexpr (kLow == 4) {
    codes = Bits<kQuad % 2 * 4, 4>(LoadB(low + kQuad / 2 * stride));
  } else {
    codes = Bits<2 * kQuad, 2>(LoadB(low));
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
  int blocks;  // lane blocks of the chunk
  B table;     // levels + 128 of a codebook
};

// Lines that a step of NB lane blocks asks for, of the bits * NB / 2 that it reads.
constexpr int DotLines(int bits, int blocks) {
  const int lines = bits * blocks * 5 / 16;
  return lines > 0 ? lines : 1;
}

template <int kLow, int kHigh, bool kTable, int NB, int NR>
struct DotTile {
  static constexpr bool kWide = kLow == 8 || kTable;  // unsigned codes above 127
  static constexpr int kUnits = kLow / 2;             // of the low plane in a step
  // Of the lines that a step reads; the rest is asked for where scales are folded.
  static constexpr int kLinesPerStep = DotLines(kLow + kHigh, NB);

  const uint8_t* low;  // the planes at the running step and the tile's first lane block
  const uint8_t* high;
  std::ptrdiff_t unit_bytes;  // from one unit of a lane block to its next
  const int8_t* x;            // [NR] rows, `x_stride` apart
  std::ptrdiff_t x_stride;
  B table;
  Stream::Lines lines;
  I acc[NR][NB];

  DotTile(const ChunkPlanes& planes, int block, const int8_t* vectors, int vector_stride,
          Stream::Lines next)
      : low(planes.low + block * kPlaneUnitBytes),
        high(planes.high + block * kPlaneUnitBytes),
        unit_bytes(planes.blocks * kPlaneUnitBytes),
        x(vectors),
        x_stride(vector_stride),
        table(planes.table),
        lines(next) {}

  // A tile as wide as a chunk knows it at compile time.
  KVANT_INLINE std::ptrdiff_t stride() const {
    return NB == kChunkBlocks ? NB * kPlaneUnitBytes : unit_bytes;
  }
  template <int kParity, int kQuad>
  KVANT_INLINE void Quad(const int8_t* step_x) {
    B codes[NB];
    Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
      constexpr int kAt = b() * kPlaneUnitBytes;
      codes[b()] =
          QuadCodes<kLow, kHigh, kTable, kParity, kQuad>(low + kAt, high + kAt, stride(), table);
    });
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const int8_t* quads = step_x + r() * x_stride;
      Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
        acc[r()][b()] = Dot<kWide, kQuad>(acc[r()][b()], codes[b()], quads);
      });
    });
  }
  template <int kParity>
  KVANT_INLINE void Step(size_t step) {
    const int8_t* step_x = x + step / 4 * 64 + step % 4 * kQuadStepBytes;
    lines.template Ask<kLinesPerStep>();
    Quad<kParity, 0>(step_x);
    Quad<kParity, 1>(step_x);
    Quad<kParity, 2>(step_x);
    Quad<kParity, 3>(step_x);
    low += kUnits * stride();
    if constexpr (kHigh == 2 || (kHigh == 1 && kParity == 1)) high += stride();
  }
  template <typename Finish>
  KVANT_INLINE void Run(int first_step, int end_step, const Finish& finish) {
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA { acc[i() / NB][i() % NB] = ZeroI(); });
    low += first_step * kUnits * stride();
    if constexpr (kHigh != 0) high += (kHigh == 1 ? first_step / 2 : first_step) * stride();
    const auto end = static_cast<size_t>(end_step);
    auto step = static_cast<size_t>(first_step);
    if constexpr (kHigh == 1) {
      if (step < end && step % 2 == 1) Step<1>(step++);
      for (; step + 2 <= end; step += 2) {
        Step<0>(step);
        Step<1>(step + 1);
      }
      if (step < end) Step<0>(step);
    } else {
      for (; step < end; ++step) Step<0>(step);
    }
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA {
      finish(i() / NB, i() % NB, ToFloat(acc[i() / NB][i() % NB]));
    });
  }
};

// Dots of lane blocks [first_block, first_block + num_blocks) with the vectors x: [rows][x_stride].
// finish(row, lane, sums) gets the 16 sums over steps of codes * x[row]; lane counts from
// first_block. They come straight from the registers: a round trip through memory cost 5 % of an
// int4 page.
template <int kLow, int kHigh, bool kTable, typename Finish>
inline void DotPlanes(const ChunkPlanes& planes, int first_block, int num_blocks, int first_step,
                      int end_step, int rows, const int8_t* x, int x_stride, Stream& stream,
                      const Finish& finish) {
  ForTiles(num_blocks, rows, [&](auto nb, auto nr, int block, int row) {
    using Tile = DotTile<kLow, kHigh, kTable, nb(), nr()>;
    Tile tile(planes, first_block + block, x + row * x_stride, x_stride,
              stream.Take((end_step - first_step) * Tile::kLinesPerStep));
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
                                       Stream& stream, SegmentScratch& s) {
  DotPlanes<kLow, kHigh, kTable>(planes, first_block, num_blocks, first_step, end_step, rows,
                                 s.rounded, x_stride, stream,
                                 [&](int r, int lane, F sums) { Store(s.sums[r] + lane, sums); });
}

// The planes of lanes [64 * chunk, 64 * chunk + 64) of a block.
template <int kLow, int kHigh>
inline ChunkPlanes PlanesOfChunk(const SideLayout& side, const std::byte* base, int block,
                                 int chunk, B table) {
  const auto* codes = reinterpret_cast<const uint8_t*>(base) + side.metadata_bytes +
                      static_cast<int64_t>(block) * side.block_bytes;
  const int first = chunk * kChunkBlocks, left = side.lanes() / kLaneBlock - first;
  const int before = first * kLaneBlock, reduce = side.reduce();
  return {codes + PlaneBytes(kLow, before, reduce),
          codes + side.plane_bytes[0] + PlaneBytes(kHigh, before, reduce),
          left < kChunkBlocks ? left : kChunkBlocks, table};
}
