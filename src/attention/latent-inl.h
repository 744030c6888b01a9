// Attention over decoded latents, written once over 16-lane vectors and included by every ISA level
// inside an anonymous namespace, after its vec_*-inl.h.

// In this order: each builds on the ones before.
// clang-format off
#include "attention/tiles-inl.h"
#include "attention/softmax-inl.h"
// clang-format on

inline F LoadFloats(FloatType type, const std::byte* p) {
  return type == FloatType::kF16    ? LoadF16(p)
         : type == FloatType::kBf16 ? LoadBf16(p)
                                    : Load(reinterpret_cast<const float*>(p));
}

// V lies [token][padded_dim], K [channel][token of the block].
void WidenSide(const SideLayout& side, const std::byte* from, float* to, int stride) {
  const FloatType type = side.format.float_type;
  const int64_t value_bytes = side.format.bits / 8;
  const bool by_token = side.side == Side::kV;
  const int rows = by_token ? side.block_tokens : side.head_dim;
  const int columns = by_token ? side.padded_dim : side.block_tokens;
  for (int block = 0; block < side.blocks(); ++block) {
    const std::byte* at = from + int64_t{block} * side.block_bytes;
    float* const out = to + int64_t{block} * side.block_tokens * stride;
    for (int row = 0; row < rows; ++row) {
      for (int c = 0; c < columns; c += kLaneBlock, at += kLaneBlock * value_bytes) {
        const F values = LoadFloats(type, at);
        if (by_token) {
          Store(out + int64_t{row} * stride + c, values);
          continue;
        }
        alignas(64) float lanes[kLaneBlock];
        Store(lanes, values);
        for (int t = 0; t < kLaneBlock; ++t) out[int64_t{c + t} * stride + row] = lanes[t];
      }
    }
  }
}

// Scores of NR rows for NT tokens from `slot` on.
template <int NT, int NR>
inline void ScoreTile(const LatentTokens& tokens, const SegmentRows& rows, int slot, int row,
                      SegmentScratch& s) {
  const int stride = tokens.stride();
  const float* const first = tokens.At(slot);
  F sums[NR][NT];
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    Unroll<NT>([&](auto t) KVANT_INLINE_LAMBDA { sums[r()][t()] = Zero(); });
  });
  for (int c = 0; c < stride; c += kLaneBlock) {
    F x[NT];
    Unroll<NT>([&](auto t) KVANT_INLINE_LAMBDA { x[t()] = Load(first + t() * stride + c); });
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const F q = Load(rows.q[row + r()] + c);
      Unroll<NT>([&](auto t)
                     KVANT_INLINE_LAMBDA { sums[r()][t()] = Fma(q, x[t()], sums[r()][t()]); });
    });
  }
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    Unroll<NT>([&](auto t) KVANT_INLINE_LAMBDA {
      s.scores[row + r()][slot + t()] = ReduceAdd(sums[r()][t()]);
    });
  });
}

// Weighted latents of NR rows, NB x 16 channels from `channel` on.
template <int NB, int NR>
inline void WeighTile(const LatentTokens& tokens, const SegmentRows& rows, int num_slots,
                      int channel, int row, const SegmentScratch& s) {
  F sums[NR][NB];
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA { sums[r()][b()] = Zero(); });
  });
  for (int slot = 0; slot < num_slots; ++slot) {
    const float* const at = tokens.At(slot) + channel;
    F x[NB];
    Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA { x[b()] = Load(at + b() * kLaneBlock); });
    Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
      const F p = Set(s.scores[row + r()][slot]);
      Unroll<NB>([&](auto b)
                     KVANT_INLINE_LAMBDA { sums[r()][b()] = Fma(p, x[b()], sums[r()][b()]); });
    });
  }
  Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
    Unroll<NB>([&](auto b) KVANT_INLINE_LAMBDA {
      Store(rows.out[row + r()].weighted + channel + b() * kLaneBlock, sums[r()][b()]);
    });
  });
}

void AttendLatents(const Segment& segment, const LatentTokens& tokens, SegmentRows& rows,
                   SegmentScratch& s) {
  const int num_slots = segment.num_blocks * kPageTokens;
  ForTiles(num_slots, rows.rows, [&](auto nt, auto nr, int slot, int row) {
    ScoreTile<decltype(nt)::value, decltype(nr)::value>(tokens, rows, slot, row, s);
  });
  HandOverScores(segment, rows, s);
  for (int r = 0; r < rows.rows; ++r) {
    SoftmaxRow(segment, rows.begin[r], rows.end[r], s.scores[r], rows.out[r]);
  }
  ForTiles(tokens.latent / kLaneBlock, rows.rows, [&](auto nb, auto nr, int block, int row) {
    WeighTile<decltype(nb)::value, decltype(nr)::value>(tokens, rows, num_slots, block * kLaneBlock,
                                                        row, s);
  });
}
