// Integer dots over coded planes. Included by kernel_body-inl.h inside an anonymous namespace.

// What meets the codes in a dot is rounded to terms of 8 bits, each in -127..127:
//   x ~ step * (first + second / 254)
// One is enough where codes lose more than its rounding does. What it adds to the square of a
// format's own error grows fourfold with every bit: 1.6 % at 4 bits, 23 % at 6, 3.6 times at 8
// (keys and values of normal numbers, heads of 64). There a second dot over the same codes leaves
// 1 / 254 of that error.
constexpr int TermsFor(int code_bits) { return code_bits > 5 ? kMaxTerms : 1; }
constexpr float kSecondUnit = 1.0f / 254.0f;  // in steps

// How codes are stored is told by three constants: bits of the low and of the high plane, and what
// turns a code into a level.
enum class Code {
  kPlain,             // it is the level
  kTable,             // an index into 16 levels
  kNested,            // the same, its last bit in a third plane, of 1 bit
  kTrellis16,         // with the low bits of what follows it in its chain an index into 16 levels
  kTrellis64,         // the same, 64 levels
  kTrellis64Permute,  // the same where CanPermuteBytes()
};
template <Code kCode>
struct LevelsIn {  // registers
  explicit LevelsIn(const uint8_t* levels) : table(LoadTable(levels)) {}
  KVANT_INLINE B Of(B index) const { return Lookup(table, index); }
  B table;
};
template <>
struct LevelsIn<Code::kPlain> {
  explicit LevelsIn(const uint8_t*) {}
  KVANT_INLINE B Of(B code) const { return code; }
};
template <typename Table>
struct SixtyFourLevels {
  explicit SixtyFourLevels(const uint8_t* levels) : table(levels) {}
  KVANT_INLINE B Of(B index) const { return Lookup64(table, index); }
  Table table;
};
template <>
struct LevelsIn<Code::kTrellis64> : SixtyFourLevels<Table64> {
  using SixtyFourLevels::SixtyFourLevels;
};
template <>
struct LevelsIn<Code::kTrellis64Permute> : SixtyFourLevels<Permute64> {
  using SixtyFourLevels::SixtyFourLevels;
};

// Bits from kFrom on of every byte, moved to kTo.
template <int kFrom, int kTo>
KVANT_INLINE B MoveBits(B bytes) {
  if constexpr (kFrom > kTo) return ShiftRight<kFrom - kTo>(bytes);
  if constexpr (kFrom < kTo) return ShiftLeft<kTo - kFrom>(bytes);
  return bytes;
}
constexpr uint8_t BitMask(int first, int count) {
  return static_cast<uint8_t>(((1 << count) - 1) << first);
}

// Codes of quad kQuad (4 reduce elements) of a step, one unit.
//   low, high: the planes at this step and lane block; stride: bytes from unit to unit
template <int kLow, int kHigh, int kParity, int kQuad>
KVANT_INLINE B QuadCodes(const uint8_t* low, const uint8_t* high, std::ptrdiff_t stride) {
  constexpr int kBitFrom = 4 * kParity + kQuad;  // in a plane of 1 bit
  B codes;
  if constexpr (kLow == 8) {
    codes = LoadB(low + kQuad * stride);
  } else if constexpr (kLow == 4) {
    codes = Bits<kQuad % 2 * 4, 4>(LoadB(low + kQuad / 2 * stride));
  } else if constexpr (kLow == 2) {
    codes = Bits<2 * kQuad, 2>(LoadB(low));
  } else {
    codes = Bits<kBitFrom, 1>(LoadB(low));
  }
  if constexpr (kHigh != 0) {
    constexpr int kFrom = kHigh == 2 ? 2 * kQuad : kBitFrom;
    codes = OrB(codes, AndB(MoveBits<kFrom, kLow>(LoadB(high)), SetB(BitMask(kLow, kHigh))));
  }
  return codes;
}

// The fourth bit of nested codes, from their third plane.
template <int kParity, int kQuad>
KVANT_INLINE B FourthBits(const uint8_t* third) {
  return AndB(MoveBits<4 * kParity + kQuad, 3>(LoadB(third)), SetB(BitMask(3, 1)));
}

// What a chain of trellis codes reads behind a unit: the next unit, or after the last step the
// first unit of the plane, one byte on (codec/normed_plan.h).
template <bool kLast>
KVANT_INLINE B UnitBehind(const uint8_t* next, const uint8_t* first) {
  if constexpr (kLast) {
    return NextByte(LoadB(first));
  } else {
    return LoadB(next);
  }
}

// kCount bits of a byte and, where it ends, of the byte behind it: from kFrom on, moved to kTo.
//   kWidth: where the byte ends
template <int kFrom, int kCount, int kWidth, int kTo, typename Behind>
KVANT_INLINE B ChainBits(B unit, const Behind& behind) {
  constexpr int kOwn = kFrom + kCount <= kWidth ? kCount : kWidth - kFrom;
  const B own = AndB(MoveBits<kFrom, kTo>(unit), SetB(BitMask(kTo, kOwn)));
  if constexpr (kOwn == kCount) {
    return own;
  } else {
    return OrB(own,
               AndB(MoveBits<0, kTo + kOwn>(behind()), SetB(BitMask(kTo + kOwn, kCount - kOwn))));
  }
}

// Windows of a quad of trellis codes. first_low, first_high: the planes at the first step.
template <int kLow, int kHigh, Code kCode, int kParity, int kQuad, bool kLast>
KVANT_INLINE B QuadWindows(const uint8_t* low, const uint8_t* high, std::ptrdiff_t stride,
                           const uint8_t* first_low, const uint8_t* first_high) {
  constexpr int kWindow = kCode == Code::kTrellis16 ? 4 : 6;  // bits
  constexpr int kHighBits = kHigh == 0 ? 0 : kWindow == 4 ? 1 : 2;
  constexpr int kLowBits = kWindow - kHighBits;
  constexpr int kLowFrom = kLow == 4 ? kQuad % 2 * 4 : 2 * kQuad;
  constexpr bool kLowLast = kLast && (kLow == 2 || kQuad == 3);
  const uint8_t* const unit = kLow == 4 ? low + kQuad / 2 * stride : low;
  const B window = ChainBits<kLowFrom, kLowBits, 8, 0>(LoadB(unit), [&]() KVANT_INLINE_LAMBDA {
    return UnitBehind<kLowLast>(unit + stride, first_low);
  });
  if constexpr (kHigh == 0) {
    return window;
  } else {
    // The last step of an odd number fills half of its byte only.
    constexpr int kWidth = kLast && kParity == 0 ? 4 : 8;
    return OrB(window, ChainBits<4 * kParity + kQuad, kHighBits, kWidth, kLowBits>(
                           LoadB(high), [&]() KVANT_INLINE_LAMBDA {
                             return UnitBehind<kLast>(high + stride, first_high);
                           }));
  }
}

// The planes of one chunk of lanes of one 64-token block.
struct ChunkPlanes {
  const uint8_t* low;
  const uint8_t* high;
  const uint8_t* third;
  int blocks;             // lane blocks of the chunk
  const uint8_t* levels;  // of a table, + 128
};

// Lines that a step of NB lane blocks asks for, of the bits * NB / 2 that it reads. Vectors of two
// terms mostly make two passes over them: with as many lines in each, memory has nothing to do in
// the second (int8 1.58 times f16 instead of 1.69, 1.80 with one term; Emerald Rapids, two
// threads).
constexpr int DotLines(int bits, int blocks) {
  const int lines = bits * blocks * 5 / (16 * TermsFor(bits));
  return lines > 0 ? lines : 1;
}

// Whether codes, or the levels that stand for them, may be above 127.
constexpr bool IsWide(int low_bits, Code code) { return low_bits == 8 || code != Code::kPlain; }

template <int kLow, int kHigh, Code kCode, int NB, int NR>
struct DotTile {
  static constexpr bool kWide = IsWide(kLow, kCode);
  static constexpr bool kStarts = kWide && kTakesOff;  // its sums begin with what was taken off
  static constexpr bool kNested = kCode == Code::kNested;
  static constexpr bool kTrellis =
      kCode != Code::kPlain && kCode != Code::kTable && kCode != Code::kNested;
  // A unit of a plane of 1 bit serves two steps, an even one and the odd one behind it.
  static constexpr bool kByPairs = kLow == 1 || kHigh == 1;
  static constexpr int kUnits = kLow / 2;  // of the low plane in a step
  // Of the lines that a step reads; the rest is asked for where scales are folded.
  static constexpr int kLinesPerStep = DotLines(kLow + kHigh + (kNested ? 1 : 0), NB);

  const uint8_t* low;  // the planes at the running step and the tile's first lane block
  const uint8_t* high;
  const uint8_t* third;
  const uint8_t* first_low;  // the same at step 0
  const uint8_t* first_high;
  std::ptrdiff_t unit_bytes;  // from one unit of a lane block to its next
  const int8_t* x;            // [NR] rows, `x_stride` apart
  std::ptrdiff_t x_stride;
  LevelsIn<kCode> levels;
  Stream::Lines lines;
  I acc[NR][NB];

  DotTile(const ChunkPlanes& planes, int block, const int8_t* vectors, int vector_stride,
          Stream::Lines next)
      : low(planes.low + block * kPlaneUnitBytes),
        high(planes.high + block * kPlaneUnitBytes),
        third(planes.third + block * kPlaneUnitBytes),
        first_low(low),
        first_high(high),
        unit_bytes(planes.blocks * kPlaneUnitBytes),
        x(vectors),
        x_stride(vector_stride),
        levels(planes.levels),
        lines(next) {}

  // A tile as wide as a chunk knows it at compile time.
  KVANT_INLINE std::ptrdiff_t stride() const {
    return NB == kChunkBlocks ? NB * kPlaneUnitBytes : unit_bytes;
  }
  template <int kParity, int kQuad, bool kLast>
  KVANT_INLINE void Quad(const int8_t* step_x) {
    B codes[NB];
    Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
      constexpr int kAt = b() * kPlaneUnitBytes;
      if constexpr (kTrellis) {
        codes[b()] = QuadWindows<kLow, kHigh, kCode, kParity, kQuad, kLast>(
            low + kAt, high + kAt, stride(), first_low + kAt, first_high + kAt);
      } else {
        codes[b()] = QuadCodes<kLow, kHigh, kParity, kQuad>(low + kAt, high + kAt, stride());
        if constexpr (kNested) {
          codes[b()] = OrB(codes[b()], FourthBits<kParity, kQuad>(third + kAt));
        }
      }
      codes[b()] = kLow == 8 ? AsWide(codes[b()]) : levels.Of(codes[b()]);
    });
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const int8_t* quads = step_x + r() * x_stride;
      Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
        acc[r()][b()] = Dot<kWide, kQuad>(acc[r()][b()], codes[b()], quads);
      });
    });
  }
  // kLast: chains of a trellis leave the plane's last unit here.
  template <int kParity, bool kLast = false>
  KVANT_INLINE void Step(size_t step) {
    const int8_t* step_x = x + step / 4 * 64 + step % 4 * kQuadStepBytes;
    lines.template Ask<kLinesPerStep>();
    Quad<kParity, 0, kLast>(step_x);
    Quad<kParity, 1, kLast>(step_x);
    Quad<kParity, 2, kLast>(step_x);
    Quad<kParity, 3, kLast>(step_x);
    low += (kLow == 1 ? kParity : kUnits) * stride();
    if constexpr (kHigh == 2 || (kHigh == 1 && kParity == 1)) high += stride();
    if constexpr (kNested && kParity == 1) third += stride();
  }
  // starts: [NR], not read unless kStarts.
  template <typename Finish>
  KVANT_INLINE void Run(int first_step, int end_step, const int32_t* starts, const Finish& finish) {
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA {
      acc[i() / NB][i() % NB] = kStarts ? SetI(starts[i() / NB]) : ZeroI();
    });
    low += (kLow == 1 ? first_step / 2 : first_step * kUnits) * stride();
    if constexpr (kHigh != 0) high += (kHigh == 1 ? first_step / 2 : first_step) * stride();
    if constexpr (kNested) third += first_step / 2 * stride();
    const auto end = static_cast<size_t>(end_step);
    auto step = static_cast<size_t>(first_step);
    if constexpr (kTrellis && kHigh == 1) {  // all steps of a plane
      for (; step + 2 < end; step += 2) {
        Step<0>(step);
        Step<1>(step + 1);
      }
      if (step + 2 == end) {
        Step<0>(step);
        Step<1, true>(step + 1);
      } else {
        Step<0, true>(step);
      }
    } else if constexpr (kTrellis) {
      for (; step + 1 < end; ++step) Step<0>(step);
      Step<0, true>(step);
    } else if constexpr (kByPairs) {
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
// finish(row, lane, sums) gets the 16 sums over steps of codes * x[row], of lower rows first; lane
// counts from first_block. They come straight from the registers: a round trip through memory cost
// 5 % of an int4 page.
template <int kLow, int kHigh, Code kCode, typename Finish>
inline void DotPlanes(const ChunkPlanes& planes, int first_block, int num_blocks, int first_step,
                      int end_step, int rows, const int8_t* x, int x_stride, Stream& stream,
                      const Finish& finish) {
  int32_t starts[kMaxRows * kMaxTerms];
  if constexpr (kTakesOff && IsWide(kLow, kCode)) {
    for (int r = 0; r < rows; ++r) {
      starts[r] = TakenOff(x + r * x_stride, first_step, end_step);
    }
  }
  ForTiles(num_blocks, rows, [&](auto nb, auto nr, int block, int row) {
    using Tile = DotTile<kLow, kHigh, kCode, nb(), nr()>;
    Tile tile(planes, first_block + block, x + row * x_stride, x_stride,
              stream.Take((end_step - first_step) * Tile::kLinesPerStep));
    tile.Run(first_step, end_step, starts + row, [&](int r, int b, F sums) KVANT_INLINE_LAMBDA {
      finish(row + r, (block + b) * kLaneBlock, sums);
    });
  });
}

// The same by way of s.sums, for the axes that few caches use (K per token, V per channel): one
// copy of the tiles serves both and halves the time to compile this file.
template <int kLow, int kHigh, Code kCode>
__attribute__((noinline)) void DotSums(const ChunkPlanes& planes, int first_block, int num_blocks,
                                       int first_step, int end_step, int rows, int x_stride,
                                       Stream& stream, SegmentScratch& s) {
  DotPlanes<kLow, kHigh, kCode>(planes, first_block, num_blocks, first_step, end_step, rows,
                                s.rounded, x_stride, stream,
                                [&](int r, int lane, F sums) { Store(s.sums[r] + lane, sums); });
}

// The planes of lanes [64 * chunk, 64 * chunk + 64) of a block.
template <int kLow, int kHigh>
inline ChunkPlanes PlanesOfChunk(const SideLayout& side, const std::byte* base, int block,
                                 int chunk, const uint8_t* levels) {
  const auto* codes = reinterpret_cast<const uint8_t*>(base) + side.codes_offset +
                      static_cast<int64_t>(block) * side.block_bytes;
  const int first = chunk * kChunkBlocks, left = side.lanes() / kLaneBlock - first;
  const int before = first * kLaneBlock, reduce = side.reduce();
  const uint8_t* const high = codes + side.plane_bytes[0] + PlaneBytes(kHigh, before, reduce);
  return {codes + PlaneBytes(kLow, before, reduce), high,
          high + side.plane_bytes[1],  // as wide as the second, where there is one
          left < kChunkBlocks ? left : kChunkBlocks, levels};
}
