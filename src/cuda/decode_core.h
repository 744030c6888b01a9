// Decode attention without tensor cores, on the same device pages: lane 4 g + t holds of K the
// tokens g + 8 i and a quarter of the channels, of V the channels g + 8 i and a quarter of the
// tokens. Half products of at most kChain terms; those of a token's score are added as halves too,
// those of an output in fp32.
#pragma once

#include <type_traits>

#include "cuda/codes.h"
#include "cuda/split.h"

namespace kvant::cuda {

template <typename Codes, int kDim, int kHeadCount>
struct CoreDecode {
  using K = typename Codes::K;
  using V = typename Codes::V;
  static constexpr bool kKOffsets = HasOffsets(K::kCode), kVOffsets = HasOffsets(V::kCode);
  static constexpr bool kVScales = kVOffsets || IsByToken(V::kCode);
  static constexpr int kHeads = kHeadCount;
  static constexpr int kTiles = kDim / 16;
  static constexpr int kQueryWords = kDim / 8;  // of one lane and head
  static constexpr int kGroups = kVOffsets ? VGroups(kDim) : 1;
  static constexpr int kTileGroup = kVGroupChannels / 16;
  static constexpr int kChain = 8;  // terms that follow each other in one half accumulator
  // Sums over a token's lanes are halves too: a rounding more is nothing to codes of 2 bits.
  static constexpr bool kHalfScores = BitsOf(K::kCode) == 2;
  using ScoreSums = std::conditional_t<kHalfScores, uint32_t[kTokenBlocks], float[2][kTokenBlocks]>;

  const DecodeArguments& args;
  const uint32_t* queries;  // shared
  int lane, g, t;
  int k_offset_byte, v_offset_byte, q_place;
  K k_codes;
  V v_codes;

  uint32_t scaled_q[kHeads][kQueryWords];
  ScoreSums scores[kHeads];             // tokens 16 block + g, + 8: two halves, or [2]
  uint32_t p[kHeads][kTokenBlocks][2];  // tokens 16 block + 2 t, + 1; the same + 8
  float max[kHeads], sum[kHeads];       // the sum of the lane's own tokens until Finish
  float bias[kHeads][kGroups];          // the same of sum(p * V offset)
  float out[kHeads][kTiles][2];         // channels 16 tile + g, + 8, of the lane's tokens

  static constexpr int kSharedWords = kHeads * kDim / 2;
  KVANT_DEVICE static void StoreShared(const DecodeArguments& args, uint32_t* shared) {
    StoreQueries<kHeads, kDim>(args, shared);
  }

  // levels: of StoreLevels.
  KVANT_DEVICE CoreDecode(const DecodeArguments& arguments, const uint32_t* shared,
                          const uint32_t* levels)
      : args(arguments), queries(shared) {
    lane = LaneIndex();
    g = lane / 4;
    t = lane % 4;
    k_offset_byte = Kept(PairWord(kTiles, t, g) * 4);
    q_place = Kept(PairWord(kTiles, t, ExchangedWord(kTiles, g)));
    v_offset_byte = Kept(OffsetOrder(kTokenBlocks, 16 * t + g / 2 * 2 + g % 2 * 8) * 2);
    k_codes = MakeCodes<K>(levels, lane);
    v_codes = MakeCodes<V>(levels, lane);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      max[h] = NegativeInfinity();
      sum[h] = 0;
      KVANT_UNROLL
      for (int group = 0; group < kGroups; ++group) bias[h][group] = 0;
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) out[h][j][0] = out[h][j][1] = 0;
      if constexpr (!kKOffsets) {
        KVANT_UNROLL
        for (int w = 0; w < kQueryWords; ++w) scaled_q[h][w] = Query(h, w);
      }
    }
  }

  KVANT_DEVICE uint32_t Query(int head, int w) const {
    return queries[head * 4 * kQueryWords + PairWord(kTiles, t, w)];
  }

  // Folds the page's K scales into the queries; offset: the lane's part of sum(q * K offset).
  KVANT_DEVICE void FoldScales(const unsigned char* metadata, float (&offset)[kHeads]) {
    uint32_t scales[kQueryWords];
    LoadWords(metadata, t, scales);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      KVANT_UNROLL
      for (int w = 0; w < kQueryWords; ++w) scaled_q[h][w] = HalfMul2(Query(h, w), scales[w]);
    }
    KVANT_UNROLL
    for (int first = 0; first < kQueryWords; first += 8) {
      const bool own = first + g < kQueryWords;
      const uint32_t m =
          own ? Load4(metadata + KOffsetsByte(kDim) + first * 16 + k_offset_byte) : 0u;
      const int place = !own                      ? 0
                        : kQueryWords - first < 4 ? first * 4 + PairWord(kTiles, t, g)
                                                  : first * 4 + q_place;
      KVANT_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const uint32_t q = queries[h * 4 * kQueryWords + place];
        offset[h] = Fma(LowHalf(q), LowHalf(m), offset[h]);
        offset[h] = Fma(HighHalf(q), HighHalf(m), offset[h]);
      }
    }
  }

  // The lane's quarter of the scores of its tokens, then the sums over the four lanes: scores of
  // the lane's own block, which is block t.
  KVANT_DEVICE void Score(const StoredPage& stored, float (&own)[kHeads][2]) {
    const float scale = args.score_scale * UnitOf<K>(args);
    float offset[kHeads] = {};
    if constexpr (kKOffsets) FoldScales(stored.k_metadata, offset);
    uint32_t chain[kHeads][2] = {}, chains[kHeads][2] = {};
    ForEachFragment<kDim>(k_codes, stored.k, lane, [&](int f, uint32_t(&a)[4]) {
      const int block = f / kTiles, j = f % kTiles;
      K::MakeExact(a);
      KVANT_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          uint32_t &c = chain[h][row], &sum_of_chains = chains[h][row];
          const uint32_t q0 = scaled_q[h][2 * j], q1 = scaled_q[h][2 * j + 1];
          c = j % (kChain / 2) == 0 ? HalfMul2(a[row], q0) : HalfFma2(a[row], q0, c);
          c = HalfFma2(a[row + 2], q1, c);
          if ((j + 1) % (kChain / 2) != 0 && j + 1 < kTiles) continue;
          sum_of_chains = j < kChain / 2 ? c : HalfAdd2(sum_of_chains, c);
        }
        if (j + 1 == kTiles) StoreScores(h, block, chains[h]);
      }
    });
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      if constexpr (kKOffsets) {
        KVANT_UNROLL
        for (int mask = 1; mask < kWarpLanes; mask *= 2) offset[h] += ShuffleXor(offset[h], mask);
      }
      SumQuarters(h, own[h]);
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) own[h][row] *= scale;
      if constexpr (kKOffsets) {
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          own[h][row] = Fma(offset[h], scale, own[h][row]);
        }
      }
    }
    if constexpr (IsByToken(K::kCode)) ScaleScores(stored.k_metadata, own);
  }

  // The lane's own two tokens are a word of the scales in TokenOrder.
  KVANT_DEVICE void ScaleScores(const unsigned char* metadata, float (&own)[kHeads][2]) const {
    const uint32_t scales = Load4(metadata + lane * 4);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      own[h][0] *= LowHalf(scales);
      own[h][1] *= HighHalf(scales);
    }
  }

  // rows: chains of tokens 16 block + g, + 8.
  KVANT_DEVICE void StoreScores(int h, int block, const uint32_t (&rows)[2]) {
    if constexpr (kHalfScores) {
      scores[h][block] =
          HalfAdd2(Permute<0x5410>(rows[0], rows[1]), Permute<0x7632>(rows[0], rows[1]));
    } else {
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) {
        scores[h][row][block] = LowHalf(rows[row]) + HighHalf(rows[row]);
      }
    }
  }
  KVANT_DEVICE void SumQuarters(int h, float (&own)[2]) const {
    if constexpr (kHalfScores) {
      const uint32_t halves = OfOwnBlock(scores[h]);
      own[0] = LowHalf(halves);
      own[1] = HighHalf(halves);
    } else {
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) own[row] = OfOwnBlock(scores[h][row]);
    }
  }

  // The sum over the lanes of equal g, of block t. Each step sends the half of the blocks that the
  // partner keeps: 3 additions instead of 8.
  template <typename Sum>
  KVANT_DEVICE Sum OfOwnBlock(const Sum (&all)[kTokenBlocks]) const {
    const bool upper = (t & 2) != 0, odd = (t & 1) != 0;
    const Sum keep0 = upper ? all[2] : all[0], keep1 = upper ? all[3] : all[1];
    const Sum send0 = upper ? all[0] : all[2], send1 = upper ? all[1] : all[3];
    const Sum sum0 = Add(keep0, ShuffleXor(send0, 2)), sum1 = Add(keep1, ShuffleXor(send1, 2));
    return Add(odd ? sum1 : sum0, ShuffleXor(odd ? sum0 : sum1, 1));
  }
  KVANT_DEVICE static float Add(float a, float b) { return a + b; }
  KVANT_DEVICE static uint32_t Add(uint32_t a, uint32_t b) { return HalfAdd2(a, b); }

  // Turns the lane's two scores into probabilities, exchanges them with the neighbour's (PairUp)
  // and passes them to the lanes that hold the tokens of V. decay: of all that was summed before.
  KVANT_DEVICE void Softmax(float (&own)[kHeads][2], float (&decay)[kHeads]) {
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      float top = Max(max[h], Max(own[h][0], own[h][1]));
      KVANT_UNROLL
      for (int mask = 1; mask < kWarpLanes; mask *= 2) top = Max(top, ShuffleXor(top, mask));
      decay[h] = Exp2(max[h] - top);
      max[h] = top;
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) own[h][row] = Exp2(own[h][row] - top);
      sum[h] = Fma(sum[h], decay[h], own[h][0] + own[h][1]);
      PairUp(own[h]);
      const uint32_t halves = PackHalves(own[h][0], own[h][1]);
      KVANT_UNROLL
      for (int block = 0; block < kTokenBlocks; ++block) {
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          p[h][block][row] = ShuffleFrom(halves, (2 * t + row) * 4 + block);
        }
      }
    }
  }

  // The lane's two probabilities become those of two tokens that follow each other: of row g, or
  // for odd g of row g + 8, each with the row beside it. V's offsets come in this order.
  KVANT_DEVICE void PairUp(float (&own)[2]) const {
    const bool odd = g % 2 != 0;
    const float other = ShuffleXor(odd ? own[0] : own[1], 4);
    if (odd) {
      own[0] = other;
    } else {
      own[1] = other;
    }
  }

  // p times the tokens' scales of V group `group`; adds p * offset of the lane's pair to bias.
  KVANT_DEVICE void FoldValues(const unsigned char* metadata, int group,
                               const float (&pair)[kHeads][2], const float (&decay)[kHeads],
                               uint32_t (&scaled)[kHeads][kTokenBlocks][2]) {
    const unsigned char* of_group = metadata + group * 2 * kDevicePageTokens;
    uint32_t scales[8];
    LoadWords(of_group, t, scales);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      KVANT_UNROLL
      for (int block = 0; block < kTokenBlocks; ++block) {
        KVANT_UNROLL
        for (int i = 0; i < 2; ++i) {
          scaled[h][block][i] = HalfMul2(p[h][block][i], scales[2 * block + i]);
        }
      }
    }
    if constexpr (kVOffsets) AddBias(of_group + VOffsetsByte(kDim), group, pair, decay);
  }
  KVANT_DEVICE void AddBias(const unsigned char* offsets, int group, const float (&pair)[kHeads][2],
                            const float (&decay)[kHeads]) {
    const uint32_t m = Load4(offsets + v_offset_byte);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      bias[h][group] *= decay[h];
      bias[h][group] = Fma(pair[h][0], LowHalf(m), bias[h][group]);
      bias[h][group] = Fma(pair[h][1], HighHalf(m), bias[h][group]);
    }
  }

  // pair: as PairUp leaves them.
  KVANT_DEVICE void AddValues(const StoredPage& stored, const Visible& visible,
                              const float (&pair)[kHeads][2], const float (&decay)[kHeads]) {
    uint32_t scaled[kHeads][kTokenBlocks][2] = {}, chain[kHeads][2] = {};
    ForEachFragment<kDim>(v_codes, stored.v, lane, [&](int f, uint32_t(&a)[4]) {
      const int j = f / kTokenBlocks, block = f % kTokenBlocks;
      if constexpr (kVScales) {
        if (j % kTileGroup == 0 && j / kTileGroup < kGroups && block == 0) {
          FoldValues(stored.v_metadata, j / kTileGroup, pair, decay, scaled);
        }
        V::MakeExact(a);
      } else {
        visible.ClearOthers(block * 16 + 2 * t, a);
      }
      KVANT_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const auto& b = kVScales ? scaled[h] : p[h];
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          uint32_t& c = chain[h][row];
          c = block == 0 ? HalfMul2(a[row], b[block][0]) : HalfFma2(a[row], b[block][0], c);
          c = HalfFma2(a[row + 2], b[block][1], c);
          if (block + 1 < kTokenBlocks) continue;
          out[h][j][row] = Fma(out[h][j][row], decay[h], LowHalf(c) + HighHalf(c));
        }
      }
    });
  }

  KVANT_DEVICE void AddPage(const Split& split, int page) {
    const StoredPage stored = StoredPage::Of<Codes::kPage, kDim>(args, split, page);
    const Visible visible = Visible::Of(split, page);
    float own[kHeads][2], decay[kHeads];
    Score(stored, own);
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) {
        if (!visible.Has(t * 16 + g + row * 8)) own[h][row] = NegativeInfinity();
      }
    }
    Softmax(own, decay);
    AddValues(stored, visible, own, decay);
  }

  // Sums over the lanes that share a channel (out) and over the warp (sum, bias).
  KVANT_DEVICE void Finish() {
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      KVANT_UNROLL
      for (int mask = 1; mask < kWarpLanes; mask *= 2) {
        sum[h] += ShuffleXor(sum[h], mask);
        KVANT_UNROLL
        for (int group = 0; group < kGroups; ++group) {
          bias[h][group] += ShuffleXor(bias[h][group], mask);
        }
      }
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          out[h][j][row] += ShuffleXor(out[h][j][row], 1);
          out[h][j][row] += ShuffleXor(out[h][j][row], 2);
        }
      }
    }
  }

  // Adds the warp's output, times its weight in the block, to the block's; first: instead of
  // adding.
  KVANT_DEVICE void AddTo(const BlockState<kHeads, kDim>& block, int warp, bool first) const {
    if (t != 0) return;
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const float weight = block.Weight(warp, h);
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        KVANT_UNROLL
        for (int row = 0; row < 2; ++row) {
          float value = out[h][j][row] * UnitOf<V>(args);
          if constexpr (kVOffsets) value += bias[h][j / kTileGroup];
          float& place = block.out[h * kDim + j * 16 + g + row * 8];
          place = Fma(value, weight, first ? 0.0f : place);
        }
      }
    }
  }

  KVANT_DEVICE void StoreState(const BlockState<kHeads, kDim>& block, int warp) const {
    if (lane != 0) return;
    KVANT_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      block.max[warp * kHeads + h] = max[h];
      block.sum[warp * kHeads + h] = sum[h];
    }
  }
};

}  // namespace kvant::cuda
