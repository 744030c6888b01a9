// The body that all vector levels share. Each per-ISA file includes it inside its own anonymous
// namespace, after defining these (all static or unnamed, see cmake/kvant_module.cmake for why):
//
//   kLanes                       lanes of a vector: 16, 8 or 4
//   kInt8Tokens<bits>            tokens of the tallest register tile: 4 or 2
//   kInt8Blocks                  row blocks of a register tile of several tokens
//   kFloatTokens                 the same of the float kernels
//   F32, I32                     vectors of kLanes floats or ints
//   ZeroF32 SetF32 LoadF32 StoreF32 LoadF16 LoadBf16 Fma Mul Add ToF32
//   SetI32 LoadBytes LoadI32 SubI32 MaxI32 And Byte<j> Low4 High4 RoundI32
//   StoreI8(int8_t*, I32)        the low byte of each lane
//   BroadcastQuad(int8_t*)       4 inputs to every lane
//   HorizontalMax of I32, SumOfCodes of 16 int8
//   Codes<bits>                  kLanes rows x 4 inputs, ready to be multiplied
//   Prepare<bits>(I32)           from one unit's bytes
//   Dot<bits>                    exact integer dot products of up to 32 inputs
//   Start(I32) Step(codes, quad) Finish()
// and, where multiplications are dearer than powers of two, KVANT_SCALE_TABLE and
//   ScaleByPower(F32 x, F32 y)   x * 2^floor(log2 y), y >= 0; 0 for y = 0, NaN for NaN
//
// No #pragma once: a part of its includer, not a header of its own.

#if defined(__clang__)
#define KVANT_UNROLL _Pragma("unroll")
#else
#define KVANT_UNROLL _Pragma("GCC unroll 16")
#endif

constexpr int kHalves = kRowBlock / kLanes;

template <bool kHalf>
inline F32 LoadNumbers(const uint8_t* plane, int half) {
  if constexpr (kHalf) return LoadF16(plane + half * kLanes * 2);
  return LoadF32(reinterpret_cast<const float*>(plane) + half * kLanes);
}

// Bytes of one group of one row block, and where its codes start.
template <int kBits, int kGroup, bool kOffset, bool kHalf>
struct Shape {
  static constexpr int kPlaneBytes = kRowBlock * (kHalf ? 2 : 4);
  static constexpr int kCodesAt = kPlaneBytes * (kOffset ? 2 : 1);
  static constexpr int kUnits = kGroup * kBits / 32;
  static constexpr int kBytes = kCodesAt + kUnits * kUnitBytes;
};

inline void StoreRows(F32 value, float* out, int rows) {
  if (rows >= kLanes) return StoreF32(out, value);
  float lanes[kLanes];
  StoreF32(lanes, value);
  for (int i = 0; i < rows; ++i) out[i] = lanes[i];
}

inline F32 LoadRows(const float* out, int rows) {
  if (rows >= kLanes) return LoadF32(out);
  float lanes[kLanes] = {};
  for (int i = 0; i < rows; ++i) lanes[i] = out[i];
  return LoadF32(lanes);
}

#include "matmul/float_tile-inl.h"
#include "matmul/int8_tile-inl.h"
#include "matmul/quantize-inl.h"
#ifdef KVANT_SCALE_TABLE
#include "matmul/scale_table-inl.h"
#endif

// Rows of the job from `row` on; a tile drops those beyond it, and never writes more than its own.
inline int RowsFrom(const MatMulJob& job, int64_t row) { return static_cast<int>(job.rows - row); }

template <int kTokens>
struct Tokens {
  static constexpr int kCount = kTokens;
};

// What the tiles of kBlocks row blocks from w on ask for: the kBlocks after them, evenly.
template <int kBlocks>
inline Upcoming RowBlocksAfter(const MatMulJob& job, const uint8_t* w, int rows, int tile_tokens,
                               int64_t group_bytes) {
  constexpr int64_t kNearBytes = 16 * 1024;  // half a first-level cache
  if (job.tokens == 1 || rows <= kBlocks * kRowBlock) return {};
  const int64_t tiles = (job.tokens + tile_tokens - 1) / tile_tokens;
  const int64_t lines = (kBlocks * group_bytes / tiles + kUnitBytes - 1) / kUnitBytes;
  const int64_t bytes = kBlocks * job.block_bytes;
  return {w + bytes, w + 2 * bytes, lines * kUnitBytes, bytes <= kNearBytes};
}

// kBlocks row blocks from w on meet all tokens before the next ones do: they then lie in the
// first-level cache.
template <int kBits, int kGroup, bool kOffset, bool kHalf, int kBlocks>
inline void Int8RowBlocks(const MatMulJob& job, const uint8_t* w, int64_t row) {
  constexpr int kMost = kInt8Tokens<kBits>;
  const int rows = RowsFrom(job, row);
  int64_t t = 0;
#ifdef KVANT_SCALE_TABLE
  if constexpr (kHalf && kGroup == kActivationGroup && kBlocks == kInt8Blocks) {
    if (job.tokens >= kTableTokens) {
      t = TabledTiles<kBits, kOffset, kBlocks, kMost>(job, w, job.out + row, rows);
    }
  }
#endif
  Upcoming upcoming =
      RowBlocksAfter<kBlocks>(job, w, rows, kMost, Shape<kBits, kGroup, kOffset, kHalf>::kBytes);
  const auto tile = [&](auto tokens) {
    constexpr int kTokens = decltype(tokens)::kCount;
    Int8Tile<kBits, kGroup, kOffset, kHalf, kBlocks, kTokens>(
        job, PackedScales<kHalf>(), w, job.groups + t * job.groups_stride,
        job.out + t * job.out_stride + row, rows, false, upcoming);
    t += kTokens;
  };
  while (t + kMost <= job.tokens) tile(Tokens<kMost>());
  const int64_t rest = job.tokens - t;
  if (kMost > 2 && (rest & 2)) tile(Tokens<2>());
  if (rest & 1) tile(Tokens<1>());
}

template <typename Tile>
inline void ForFloatTiles(const MatMulJob& job, const Tile& tile) {
  const uint8_t* w = job.weights;
  for (int64_t row = 0; row < job.rows; row += kRowBlock, w += job.block_bytes) {
    for (int half = 0; half < kHalves; ++half) {
      int64_t t = 0;
      for (; t + kFloatTokens <= job.tokens; t += kFloatTokens) {
        tile(Tokens<kFloatTokens>(), w, row, t, half);
      }
      for (; t < job.tokens; ++t) tile(Tokens<1>(), w, row, t, half);
    }
  }
}

struct Int8Blocks {
  template <int kBits, int kGroup, bool kOffset, bool kHalf>
  static void Run(const MatMulJob& job) {
    const uint8_t* w = job.weights;
    int64_t row = 0;
    // One token has nothing to share between row blocks, and one stream of memory runs fastest.
    if (kInt8Blocks > 1 && job.tokens > 1) {
      constexpr int kRows = kInt8Blocks * kRowBlock;
      for (; row + kRows - kRowBlock < job.rows; row += kRows, w += kInt8Blocks * job.block_bytes) {
        Int8RowBlocks<kBits, kGroup, kOffset, kHalf, kInt8Blocks>(job, w, row);
      }
    }
    for (; row < job.rows; row += kRowBlock, w += job.block_bytes) {
      Int8RowBlocks<kBits, kGroup, kOffset, kHalf, 1>(job, w, row);
    }
  }
};

struct FloatBlocks {
  template <int kBits, int kGroup, bool kOffset, bool kHalf>
  static void Run(const MatMulJob& job) {
    ForFloatTiles(job, [&](auto tokens, const uint8_t* w, int64_t row, int64_t t, int half) {
      FloatTile<kBits, kGroup, kOffset, kHalf, decltype(tokens)::kCount>(
          job, w, job.values + t * job.values_stride,
          job.out + t * job.out_stride + row + half * kLanes, RowsFrom(job, row) - half * kLanes,
          half);
    });
  }
};

template <FloatStorage kStorage>
void PlainBlocks(const MatMulJob& job) {
  ForFloatTiles(job, [&](auto tokens, const uint8_t* w, int64_t row, int64_t t, int half) {
    PlainTile<kStorage, decltype(tokens)::kCount>(
        job, w, job.values + t * job.values_stride,
        job.out + t * job.out_stride + row + half * kLanes, RowsFrom(job, row) - half * kLanes,
        half);
  });
}

// The run-time description of a matrix to the template that is compiled for it.
template <typename Blocks, int kBits, int kGroup, bool kOffset>
void PickNumbers(const MatMulJob& job) {
  job.half_scales ? Blocks::template Run<kBits, kGroup, kOffset, true>(job)
                  : Blocks::template Run<kBits, kGroup, kOffset, false>(job);
}
template <typename Blocks, int kBits, int kGroup>
void PickOffset(const MatMulJob& job) {
  job.has_offset ? PickNumbers<Blocks, kBits, kGroup, true>(job)
                 : PickNumbers<Blocks, kBits, kGroup, false>(job);
}
template <typename Blocks, int kBits>
void PickGroup(const MatMulJob& job) {
  job.group16 ? PickOffset<Blocks, kBits, 16>(job) : PickOffset<Blocks, kBits, 32>(job);
}
template <typename Blocks>
void PickBits(const MatMulJob& job) {
  job.four_bits ? PickGroup<Blocks, 4>(job) : PickGroup<Blocks, 8>(job);
}

void Int8Grouped(const MatMulJob& job) { PickBits<Int8Blocks>(job); }
void FloatGrouped(const MatMulJob& job) { PickBits<FloatBlocks>(job); }
void Plain(const MatMulJob& job) {
  switch (job.storage) {
    case FloatStorage::kF32:
      return PlainBlocks<FloatStorage::kF32>(job);
    case FloatStorage::kF16:
      return PlainBlocks<FloatStorage::kF16>(job);
    case FloatStorage::kBf16:
      return PlainBlocks<FloatStorage::kBf16>(job);
  }
}
