// Counter-examples, kept to be metered: scores of int4 pages as a kernel computes them that decodes
// each value before it uses it.
//   naive    a code becomes a float, times scale, plus offset, times the query: five operations
//   scratch  decoded pages pass through memory as halves, to be read back by the product
// No engine calls them.
#pragma once

#include "cuda/arguments.h"
#include "cuda/codes.h"

namespace kvant::cuda {

template <int kDim>
struct NaiveScores {
  static constexpr int kTiles = kDim / 16, kQueryWords = kDim / 8;

  const ScoreArguments& args;
  int lane, g, t;
  float q[kTiles][4];  // channels 2 t + half + 8 (pair / 2) of each tile, [half + 2 (pair / 2)]

  KVANT_DEVICE explicit NaiveScores(const ScoreArguments& arguments) : args(arguments) {
    lane = LaneIndex();
    g = lane / 4;
    t = lane % 4;
    KVANT_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      KVANT_UNROLL
      for (int i = 0; i < 4; ++i) q[j][i] = args.query[j * 16 + 2 * t + i % 2 + i / 2 * 8];
    }
  }

  // Code `half` of pair `pair` of a fragment's word, decoded.
  KVANT_DEVICE static float Decode(uint32_t word, int pair, int half, float scale, float offset) {
    const int code = static_cast<int>((word >> (4 * (pair + 4 * half))) & 15u);
    return Fma(static_cast<float>(code), scale, offset);
  }

  // visit(token, tile, first column, value, next value, &score) of the lane's pairs of one page,
  // and its scores, a token block an iteration.
  template <typename Visit>
  KVANT_DEVICE void Page(int page, const Visit& visit) const {
    const unsigned char* metadata =
        args.metadata + static_cast<int64_t>(page) * PageMetadataBytes(kInt4Page, kDim);
    float scales[kTiles][4], offsets[kTiles][4];
    KVANT_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      KVANT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int channel = j * 16 + 2 * t + i % 2 + i / 2 * 8;
        scales[j][i] = LowHalf(Load2(metadata + PairOrder(kTiles, channel) * 2));
        offsets[j][i] =
            LowHalf(Load2(metadata + KOffsetsByte(kDim) + OffsetOrder(kTiles, channel) * 2));
      }
    }
    const unsigned char* payload =
        args.payload + static_cast<int64_t>(page) * PagePayloadBytes(kInt4Page, kDim) + lane * 16;
    float* out = args.scores + page * kDevicePageTokens + g;
    KVANT_UNROLL
    for (int block = 0; block < kTokenBlocks; ++block) {
      float scores[2] = {};
      KVANT_UNROLL
      for (int v = 0; v < kTiles / 4; ++v) {
        const Words4 words = Load16(payload + (block * kTiles / 4 + v) * kWarpLanes * 16);
        KVANT_UNROLL
        for (int i = 0; i < 16; ++i) {
          const int j = v * 4 + i / 4, pair = i % 4, column = pair / 2 * 2;
          visit(block * 16 + pair % 2 * 8, j, column,
                Decode(words.word[i / 4], pair, 0, scales[j][column], offsets[j][column]),
                Decode(words.word[i / 4], pair, 1, scales[j][column + 1], offsets[j][column + 1]),
                &scores[pair % 2]);
        }
      }
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) {
        scores[row] += ShuffleXor(scores[row], 1);
        scores[row] += ShuffleXor(scores[row], 2);
        if (t == 0) out[block * 16 + row * 8] = scores[row];
      }
    }
  }

  KVANT_DEVICE void PageAtOnce(int page) const {
    Page(page, [&](int, int j, int column, float low, float high, float* score) {
      *score = Fma(high, q[j][column + 1], Fma(low, q[j][column], *score));
    });
  }

  // scratch: [64 tokens][kDim / 2] pairs of halves, of the warp's own. Volatile, or the compiler
  // would keep the pairs in registers.
  KVANT_DEVICE void PageByScratch(int page, volatile uint32_t* scratch) const {
    volatile uint32_t* own = scratch + g * kDim / 2 + t;
    Page(page, [&](int token, int j, int column, float low, float high, float* score) {
      volatile uint32_t* place = own + (token * kDim + j * 16 + column / 2 * 8) / 2;
      *place = PackHalves(low, high);
      const uint32_t pair = *place;
      *score = Fma(HighHalf(pair), q[j][column + 1], Fma(LowHalf(pair), q[j][column], *score));
    });
  }
};

}  // namespace kvant::cuda
