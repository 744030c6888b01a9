// scale_w * scale_a without a multiplication, for tall batches. A part of kernels-inl.h on levels
// that define ScaleByPower.
//
// On Zen 4 and 5 multiplications share their two ports with the integer dots, powers of two do not:
// 8 dots, 2 fused multiply-adds and 1 multiplication a group become 8 + 2. The scale of a group of
// activations is 1.mmmm * 2^e (activations.h), so 16 multiples of every weight scale, computed once
// for all tokens, leave only the power. With f16 scales the multiples are exact, hence the bits are
// those of the multiplication.
//
// No #pragma once: a part of its includer, not a header of its own.

struct FactorFromTable {
  const float* multiples;  // [16 mantissas][kLanes]
  F32 Times(const ActivationGroup& a) const {
    uint32_t bits;
    __builtin_memcpy(&bits, &a.scale, sizeof(bits));
    const uint32_t mantissa = bits >> (23 - kScaleMantissaBits) & (kScaleMantissas - 1);
    return ScaleByPower(LoadF32(multiples + mantissa * kLanes), SetF32(a.scale));
  }
};

template <int kVectors>
struct ScaleTable {
  static constexpr int kGroups = 32;  // 64 KiB with two vectors of 16 lanes: half a level-2 cache
                                      // is left to activations

  FactorFromTable At(const uint8_t* /*w*/, int64_t index, int v) const {
    return {multiples[index][v][0]};
  }

  // Scales of `groups` groups, each group_bytes after the one before; w: the first row block.
  void Fill(const MatMulJob& job, const uint8_t* w, int64_t groups, int64_t group_bytes) {
    for (int64_t g = 0; g < groups; ++g, w += group_bytes) {
      for (int v = 0; v < kVectors; ++v) {
        const F32 scale = LoadNumbers<true>(w + BlockBytesTo(job, v), HalfOf(v));
        for (int m = 0; m < kScaleMantissas; ++m) {
          const float multiple = 1.0f + static_cast<float>(m) / kScaleMantissas;
          StoreF32(multiples[g][v][m], Mul(scale, SetF32(multiple)));
        }
      }
    }
  }

  alignas(64) float multiples[kGroups][kVectors][kScaleMantissas][kLanes];
};

// Row blocks from w on times whole tiles of tokens; returns how many tokens that were.
template <int kBits, bool kOffset, int kBlocks, int kTokens>
int64_t TabledTiles(const MatMulJob& job, const uint8_t* w, float* out, int rows) {
  using S = Shape<kBits, kActivationGroup, kOffset, true>;
  using Table = ScaleTable<kBlocks * kHalves>;
  const int64_t tokens = job.tokens / kTokens * kTokens, groups = job.cols / kActivationGroup;
  Table table;
  Upcoming none;
  for (int64_t g = 0; g < groups; g += Table::kGroups, w += Table::kGroups * S::kBytes) {
    MatMulJob part = job;
    const int64_t count = groups - g < Table::kGroups ? groups - g : Table::kGroups;
    part.cols = count * kActivationGroup;
    table.Fill(job, w, count, S::kBytes);
    for (int64_t t = 0; t < tokens; t += kTokens) {
      Int8Tile<kBits, kActivationGroup, kOffset, true, kBlocks, kTokens>(
          part, table, w, job.groups + t * job.groups_stride + g, out + t * job.out_stride, rows,
          g > 0, none);
    }
  }
  return tokens;
}
