// Decode attention on tensor cores: one pass over the bytes of a page serves up to 8 query heads a
// column tile. Both products take the codes as the left operand, straight from the loaded words:
//
//   scores  [16 tokens x 8 heads]    += codes [16 tokens x 16 channels]  (q s) [16 channels x 8]
//   output  [16 channels x 8 heads]  += codes [16 channels x 16 tokens]  (p s) [16 tokens x 8]
//
// K's channel scales are folded into the queries once a page, V's token scales into the
// probabilities; K's token scales multiply the sums. Codes of int carry the magic 1024 into the
// product; an accumulator therefore begins at -1024 * sum(right operand), itself a product with a
// constant, and so do the offsets' terms. The
// probabilities pass from columns of the first product to rows of the second by one 8 x 8
// transposition. What is left to the CUDA cores: unpacking, the softmax and one fp32
// multiply-add an output value and page, which also promotes and rescales.
#pragma once

#include "cuda/codes.h"
#include "cuda/split.h"

namespace kvant::cuda {

template <typename Codes, int kDim, int kColumnTiles>
struct MmaDecode {
  using K = typename Codes::K;
  using V = typename Codes::V;
  static constexpr bool kKOffsets = HasOffsets(K::kCode), kVOffsets = HasOffsets(V::kCode);
  static constexpr bool kVScales = kVOffsets || IsByToken(V::kCode);
  static constexpr int kHeads = 8 * kColumnTiles;
  static constexpr int kTiles = kDim / 16;
  static constexpr int kQueryWords = kDim / 8;  // of one lane and head
  static constexpr bool kKeepsQueries = kColumnTiles * kQueryWords <= 16;
  static constexpr int kGroups = kVOffsets ? VGroups(kDim) : 1;
  static constexpr int kTileGroup = kVGroupChannels / 16;  // channel tiles of one V group

  const DecodeArguments& args;
  const uint32_t* queries;  // shared
  int lane, g, t;
  K k_codes;
  V v_codes;

  uint32_t minus_magic[4], ones[4];                  // left operands
  uint32_t scaled_q[kColumnTiles][kQueryWords];      // of head 8 n + g
  Tile scores[kTokenBlocks][kColumnTiles];           // then probabilities
  uint32_t p[kTokenBlocks][2][kColumnTiles];         // transposed: head 8 n + g, two tokens
  float max[kColumnTiles][2], sum[kColumnTiles][2];  // heads 8 n + 2 t, + 1
  float bias[kGroups][kColumnTiles][2];              // sum(p * V offset)
  Tile out[kTiles][kColumnTiles];  // times kWeight, rows g + 8 times kRowWeight too

  // Left operands of constants lie behind the queries: the compiler would make a constant anew
  // before each product, in four registers beside each other.
  static constexpr int kSharedWords = kHeads * kDim / 2 + 8;
  KVANT_DEVICE static void StoreShared(const DecodeArguments& args, uint32_t* shared) {
    StoreQueries<kHeads, kDim>(args, shared);
    const int i = ThreadIndex();
    if (i < 8) shared[kHeads * kDim / 2 + i] = i < 4 ? kMinusMagic : kOne;
  }

  // levels: of StoreLevels.
  KVANT_DEVICE MmaDecode(const DecodeArguments& arguments, const uint32_t* shared,
                         const uint32_t* levels)
      : args(arguments), queries(shared) {
    lane = LaneIndex();
    g = lane / 4;
    t = lane % 4;
    LoadShared(shared + kHeads * kDim / 2, minus_magic);
    LoadShared(shared + kHeads * kDim / 2 + 4, ones);
    k_codes = MakeCodes<K>(levels, lane);
    v_codes = MakeCodes<V>(levels, lane);
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) {
        max[n][e] = NegativeInfinity();
        sum[n][e] = 0;
        KVANT_UNROLL
        for (int group = 0; group < kGroups; ++group) bias[group][n][e] = 0;
      }
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) out[j][n] = {};
    }
    if constexpr (!kKOffsets && kKeepsQueries) LoadQueries(g);
  }

  // row: of the lane's head in the first column tile.
  KVANT_DEVICE uint32_t Query(int row, int n, int w) const {
    return queries[(8 * n + row) * 4 * kQueryWords + PairWord(kTiles, t, w)];
  }

  // Where queries fill many registers, what the compiler takes for another row each page: it would
  // keep them, and spill.
  KVANT_DEVICE int QueryRow() const { return kKeepsQueries ? g : Kept(g); }
  KVANT_DEVICE void LoadQueries(int row) {
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      KVANT_UNROLL
      for (int w = 0; w < kQueryWords; ++w) scaled_q[n][w] = Query(row, n, w);
    }
  }

  // The right operand's second word counts for pairs 2, 3, whose codes weigh kPairWeight.
  template <typename SideCodes>
  KVANT_DEVICE static uint32_t SecondPair(uint32_t halves) {
    return SideCodes::kPairWeight == 4 ? HalfMul2(halves, k4th) : halves;
  }

  // Folds the page's K scales into the queries. start: -1024 * sum(scaled q), in all rows; offset:
  // sum(q * K offset) of heads 2 t, 2 t + 1.
  KVANT_DEVICE void FoldScales(const unsigned char* metadata, Tile (&start)[kColumnTiles],
                               float (&offset)[kColumnTiles][2]) {
    const int row = QueryRow();
    uint32_t scales[kQueryWords], offsets[kQueryWords];
    LoadWords(metadata, t, scales);
    LoadWords(metadata + KOffsetsByte(kDim), t, offsets);
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      Tile even = {}, odd = {};
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        const uint32_t q0 = Query(row, n, 2 * j), q1 = Query(row, n, 2 * j + 1);
        AddOffsets(offsets, j, q0, q1, &even, &odd);
        const uint32_t b0 = HalfMul2(q0, scales[2 * j]);
        const uint32_t b1 = SecondPair<K>(HalfMul2(q1, scales[2 * j + 1]));
        start[n] = MultiplyAdd(minus_magic, b0, b1, start[n]);
        scaled_q[n][2 * j] = b0;
        scaled_q[n][2 * j + 1] = b1;
      }
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) offset[n][e] = even.at[e] + odd.at[e + 2];
    }
  }

  // Adds the product of tile j's offsets with its right operand, of an even tile in the rows g of
  // `even`, of an odd one in the rows g + 8 of `odd`; what the other rows hold is nobody's. Four
  // words of a load are then an operand as they come (device_page.h, OffsetOrder).
  template <int kWords>
  KVANT_DEVICE static void AddOffsets(const uint32_t (&offsets)[kWords], int j, uint32_t b0,
                                      uint32_t b1, Tile* even, Tile* odd) {
    const int quad = j / 2 * 4;
    if (quad + 4 > kWords) {
      const uint32_t last[4] = {offsets[kWords - 2], 0, offsets[kWords - 1], 0};
      *even = MultiplyAdd(last, b0, b1, *even);
      return;
    }
    const uint32_t m[4] = {offsets[quad], offsets[quad + 1], offsets[quad + 2], offsets[quad + 3]};
    Tile* sum_of_tile = j % 2 == 0 ? even : odd;
    *sum_of_tile = MultiplyAdd(m, b0, b1, *sum_of_tile);
  }

  // Fills scores with the first product: those of rows g + 8 are kRowWeight times too large, and
  // the scale and `offset` are still missing.
  KVANT_DEVICE void Score(const StoredPage& stored, float (&offset)[kColumnTiles][2]) {
    Tile start[kColumnTiles] = {};
    if constexpr (kKOffsets) {
      FoldScales(stored.k_metadata, start, offset);
    } else if constexpr (!kKeepsQueries) {
      LoadQueries(QueryRow());
    }
    ForEachFragment<kDim>(k_codes, stored.k, lane, [&](int f, uint32_t(&a)[4]) {
      const int block = f / kTiles, j = f % kTiles;
      KVANT_UNROLL
      for (int n = 0; n < kColumnTiles; ++n) {
        Tile& c = scores[block][n];
        c = MultiplyAdd(a, scaled_q[n][2 * j], scaled_q[n][2 * j + 1], j == 0 ? start[n] : c);
      }
    });
    if constexpr (IsByToken(K::kCode)) ScaleScores(stored.k_metadata);
  }

  // By the tokens' scales, which are the lane's own rows as they come.
  KVANT_DEVICE void ScaleScores(const unsigned char* metadata) {
    const Words4 scales = Load16(metadata + g * 16);
    KVANT_UNROLL
    for (int block = 0; block < kTokenBlocks; ++block) {
      const float low = LowHalf(scales.word[block]), high = HighHalf(scales.word[block]);
      KVANT_UNROLL
      for (int n = 0; n < kColumnTiles; ++n) {
        KVANT_UNROLL
        for (int i = 0; i < 4; ++i) scores[block][n].at[i] *= i < 2 ? low : high;
      }
    }
  }

  KVANT_DEVICE void Hide(const Visible& visible) {
    const Visible own{visible.first - g, visible.end - g};
    KVANT_UNROLL
    for (int block = 0; block < kTokenBlocks; ++block) {
      KVANT_UNROLL
      for (int n = 0; n < kColumnTiles; ++n) {
        KVANT_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (!own.Has(block * 16 + i / 2 * 8)) scores[block][n].at[i] = NegativeInfinity();
        }
      }
    }
  }

  // Turns scores into transposed probabilities against the new maximum and counts them in `sum`.
  // The maximum is that of the product; scale, offset and maximum then cost one multiply-add a
  // score. decay: of all that was summed before.
  KVANT_DEVICE void Softmax(const float (&offset)[kColumnTiles][2],
                            float (&decay)[kColumnTiles][2]) {
    const float scale = args.score_scale * (UnitOf<K>(args) * (1.0f / K::kWeight));
    const float high_scale = scale / K::kRowWeight;
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      float shift[2];
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) {
        float low = scores[0][n].at[e], high = scores[0][n].at[e + 2];
        KVANT_UNROLL
        for (int block = 1; block < kTokenBlocks; ++block) {
          low = Max(low, scores[block][n].at[e]);
          high = Max(high, scores[block][n].at[e + 2]);
        }
        float top = Max(low, high * (1.0f / K::kRowWeight));
        KVANT_UNROLL
        for (int mask = 4; mask < kWarpLanes; mask *= 2) top = Max(top, ShuffleXor(top, mask));
        top = Max(max[n][e], Fma(top, scale, offset[n][e] * scale));
        decay[n][e] = Exp2(max[n][e] - top);
        max[n][e] = top;
        shift[e] = Fma(offset[n][e], scale, -top);
      }
      Tile total = {};
      KVANT_UNROLL
      for (int block = 0; block < kTokenBlocks; ++block) {
        const Tile& c = scores[block][n];
        p[block][0][n] = Transpose8x8(
            PackHalves(Exp2(Fma(c.at[0], scale, shift[0])), Exp2(Fma(c.at[1], scale, shift[1]))));
        p[block][1][n] = Transpose8x8(PackHalves(Exp2(Fma(c.at[2], high_scale, shift[0])),
                                                 Exp2(Fma(c.at[3], high_scale, shift[1]))));
        total = MultiplyAdd(ones, p[block][0][n], p[block][1][n], total);
      }
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) sum[n][e] = Fma(sum[n][e], decay[n][e], total.at[e]);
    }
  }

  // The right operand of V group `group`: p times the tokens' scales, for each token block. start:
  // -1024 * its sum. Adds p * offset to bias.
  KVANT_DEVICE void FoldValues(const unsigned char* metadata, int group,
                               const float (&decay)[kColumnTiles][2],
                               uint32_t (&scaled)[kTokenBlocks][2][kColumnTiles],
                               Tile (&start)[kColumnTiles]) {
    const unsigned char* of_group = metadata + group * 2 * kDevicePageTokens;
    uint32_t scales[8], offsets[8];
    LoadWords(of_group, t, scales);
    LoadWords(of_group + VOffsetsByte(kDim), t, offsets);
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      Tile even = {}, odd = {};
      KVANT_UNROLL
      for (int block = 0; block < kTokenBlocks; ++block) {
        const uint32_t p0 = p[block][0][n], p1 = p[block][1][n];
        AddOffsets(offsets, block, p0, p1, &even, &odd);
        scaled[block][0][n] = HalfMul2(p0, scales[2 * block]);
        scaled[block][1][n] = SecondPair<V>(HalfMul2(p1, scales[2 * block + 1]));
        start[n] = MultiplyAdd(minus_magic, scaled[block][0][n], scaled[block][1][n], start[n]);
      }
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) {
        bias[group][n][e] = Fma(bias[group][n][e], decay[n][e], even.at[e] + odd.at[e + 2]);
      }
    }
  }

  // The same where tokens have one scale and no offset: for the whole page.
  KVANT_DEVICE void FoldTokenScales(const unsigned char* metadata,
                                    uint32_t (&scaled)[kTokenBlocks][2][kColumnTiles]) const {
    uint32_t scales[8];
    LoadWords(metadata, t, scales);
    KVANT_UNROLL
    for (int block = 0; block < kTokenBlocks; ++block) {
      KVANT_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        KVANT_UNROLL
        for (int n = 0; n < kColumnTiles; ++n) {
          scaled[block][pair][n] = HalfMul2(p[block][pair][n], scales[2 * block + pair]);
        }
      }
    }
  }

  KVANT_DEVICE void AddValues(const StoredPage& stored, const Visible& visible,
                              const float (&decay)[kColumnTiles][2]) {
    uint32_t scaled[kTokenBlocks][2][kColumnTiles] = {};
    Tile start[kColumnTiles] = {}, sums[kColumnTiles] = {};
    if constexpr (IsByToken(V::kCode)) FoldTokenScales(stored.v_metadata, scaled);
    ForEachFragment<kDim>(v_codes, stored.v, lane, [&](int f, uint32_t(&a)[4]) {
      const int j = f / kTokenBlocks, block = f % kTokenBlocks;
      if constexpr (kVOffsets) {
        if (j % kTileGroup == 0 && block == 0) {
          for (Tile& tile : start) tile = {};
          FoldValues(stored.v_metadata, j / kTileGroup, decay, scaled, start);
        }
      } else if constexpr (!kVScales) {
        visible.ClearOthers(block * 16 + 2 * t, a);
      }
      KVANT_UNROLL
      for (int n = 0; n < kColumnTiles; ++n) {
        Tile& c = sums[n];
        const auto& b = kVScales ? scaled : p;
        c = MultiplyAdd(a, b[block][0][n], b[block][1][n], block > 0 ? c : start[n]);
        if (block + 1 < kTokenBlocks) continue;
        KVANT_UNROLL
        for (int i = 0; i < 4; ++i)
          out[j][n].at[i] = Fma(out[j][n].at[i], decay[n][i % 2], c.at[i]);
      }
    });
  }

  KVANT_DEVICE void AddPage(const Split& split, int page) {
    const StoredPage stored = StoredPage::Of<Codes::kPage, kDim>(args, split, page);
    const Visible visible = Visible::Of(split, page);
    float offset[kColumnTiles][2] = {}, decay[kColumnTiles][2];
    Score(stored, offset);
    if (!visible.all()) Hide(visible);
    Softmax(offset, decay);
    AddValues(stored, visible, decay);
  }

  // Sums of the first product's columns stand in all rows, those of the second in one lane.
  KVANT_DEVICE void Finish() {}

  // Adds the warp's output, times its weight in the block, to the block's; first: instead of
  // adding.
  KVANT_DEVICE void AddTo(const BlockState<kHeads, kDim>& block, int warp, bool first) const {
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      const int head = 8 * n + 2 * t;
      const float weights[2] = {block.Weight(warp, head), block.Weight(warp, head + 1)};
      KVANT_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        KVANT_UNROLL
        for (int i = 0; i < 4; ++i) {
          constexpr float kLow = 1.0f / V::kWeight, kHigh = kLow / V::kRowWeight;
          float value = out[j][n].at[i] * (UnitOf<V>(args) * (i < 2 ? kLow : kHigh));
          if constexpr (kVOffsets) value += bias[j / kTileGroup][n][i % 2];
          float& place = block.out[(head + i % 2) * kDim + j * 16 + g + i / 2 * 8];
          place = Fma(value, weights[i % 2], first ? 0.0f : place);
        }
      }
    }
  }

  KVANT_DEVICE void StoreState(const BlockState<kHeads, kDim>& block, int warp) const {
    if (g != 0) return;  // all rows hold the same
    KVANT_UNROLL
    for (int n = 0; n < kColumnTiles; ++n) {
      KVANT_UNROLL
      for (int e = 0; e < 2; ++e) {
        block.max[warp * kHeads + 8 * n + 2 * t + e] = max[n][e];
        block.sum[warp * kHeads + 8 * n + 2 * t + e] = sum[n][e];
      }
    }
  }
};

}  // namespace kvant::cuda
