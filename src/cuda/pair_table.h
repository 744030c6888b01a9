// The codebook of 16 levels, decoded two codes at a time: a byte of them picks one of 256 entries
// of two halves in shared memory.
//
// 32 lanes ask for 32 bytes at once. Of one table, [256] words, whose entries lie in bank
// byte % 32, about 3.2 fall into the fullest bank, and the request takes as many turns. c copies,
// [256][c], give each c-th part of the lanes 32 / c banks of their own: few copies move the crowds
// into fewer banks (2.9 turns at c = 8), c = 16 leaves two lanes to two banks (2.0), c = 32 each
// lane a bank (1.0, always). So 32 copies, 32 KiB (tests/ptx/pair_table_test.cc counts).
#pragma once

#include "cuda/arguments.h"
#include "cuda/device_page.h"
#include "cuda/isa.h"

namespace kvant::cuda {

inline constexpr int kLevelPairs = 256;
inline constexpr int kPairCopies = 32;

// REQUIRES: kCopies is a power of two, at most 32.
template <int kCopies>
struct PairTable {
  static constexpr int kWords = kLevelPairs * kCopies;

  const unsigned char* table;  // shared
  uint32_t own;                // of the lane's copy, in bytes

  KVANT_DEVICE static PairTable Of(const uint32_t* words, int lane) {
    return {reinterpret_cast<const unsigned char*>(words),
            static_cast<uint32_t>(lane % kCopies * 4)};
  }

  // Every warp writes a quarter, an entry at a time. levels: [16] halves.
  KVANT_DEVICE static void Store(const uint16_t* levels, uint32_t* words) {
    constexpr int kOfWarp = kLevelPairs / kBlockWarps;
    const int lane = ThreadIndex() % kWarpLanes, first = UniformWarp() * kOfWarp;
    KVANT_UNROLL
    for (int i = 0; i < kOfWarp; i += kWarpLanes) {
      const int entry = first + i + lane;
      const uint32_t pair = Load2(levels + entry % 16) | Load2(levels + entry / 16) << 16;
      KVANT_UNROLL
      for (int j = 0; j < kWarpLanes; ++j) {
        const uint32_t word = ShuffleFrom(pair, j);
        if (lane < kCopies) words[(first + i + j) * kCopies + lane] = word;
      }
    }
  }

  // The pair of byte kByte of a word.
  template <int kByte>
  KVANT_DEVICE uint32_t Pair(uint32_t word) const {
    return *reinterpret_cast<const uint32_t*>(
        table + ByteTimesPlus<kByte, kCopies * sizeof(uint32_t)>(word, own));
  }
};

}  // namespace kvant::cuda
