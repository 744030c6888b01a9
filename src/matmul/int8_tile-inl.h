// Grouped weights times rounded activations, one register tile. A part of kernels-inl.h.
//
// No #pragma once: a part of its includer, not a header of its own.

template <int kGroup>
inline int32_t SumOf(const ActivationGroup& a, int first) {
  if (kGroup == 32) return a.sum;
  return first == 0 ? a.low_sum : a.sum - a.low_sum;
}

template <int kGroup>
inline float ScaledSumOf(const ActivationGroup& a, int first) {
  if (kGroup == 32) return a.scaled_sum;
  return a.scale * static_cast<float>(SumOf<kGroup>(a, first));
}

template <int kBits, int kTokens>
using Dots = Dot<kBits>[kHalves][kTokens];

// One quad of inputs of kTokens tokens. Halves come last, so that they share the broadcast.
template <int kBits, int kTokens>
inline void StepQuad(const Codes<kBits> (&codes)[kHalves], const ActivationGroup* a, int64_t stride,
                     int input, Dots<kBits, kTokens>& dots) {
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    const I32 quad = BroadcastQuad(a[t * stride].codes + input);
    KVANT_UNROLL for (int h = 0; h < kHalves; ++h) dots[h][t].Step(codes[h], quad);
  }
}

// Exact integer dots of one group: codes at `w`, inputs from `first` on of each token's group.
template <int kBits, int kUnits, int kTokens>
inline void DotGroup(const uint8_t* w, const ActivationGroup* a, int64_t stride, int first,
                     Dots<kBits, kTokens>& dots) {
  KVANT_UNROLL for (int u = 0; u < kUnits; ++u, w += kUnitBytes) {
    Codes<kBits> low[kHalves], high[kHalves];
    KVANT_UNROLL for (int h = 0; h < kHalves; ++h) {
      const I32 raw = LoadBytes(w + h * kLanes * 4);
      low[h] = Prepare<kBits>(kBits == 4 ? Low4(raw) : raw);
      if constexpr (kBits == 4) high[h] = Prepare<kBits>(High4(raw));
    }
    const int input = first + u * 32 / kBits;
    StepQuad<kBits, kTokens>(low, a, stride, input, dots);
    if constexpr (kBits == 4) StepQuad<kBits, kTokens>(high, a, stride, input + 4, dots);
  }
}

// One row block times kTokens tokens. w: the block; a: the first token's groups; rows: valid ones.
// No software prefetch: one straight run of memory is what the hardware sees best, and asking 1 to
// 4 KiB ahead cost 10 % of a cold product on Zen 4.
template <int kBits, int kGroup, bool kOffset, bool kHalf, int kTokens>
inline void Int8Tile(const MatMulJob& job, const uint8_t* w, const ActivationGroup* a, float* out,
                     int rows) {
  using S = Shape<kBits, kGroup, kOffset, kHalf>;
  const int64_t stride = job.groups_stride;
  const int32_t zero = job.zero;
  F32 acc[kHalves][kTokens];
  KVANT_UNROLL for (int h = 0; h < kHalves; ++h) {
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) acc[h][t] = ZeroF32();
  }
  for (int64_t input = 0; input < job.cols; input += kGroup, w += S::kBytes) {
    const int first = kGroup == 16 ? static_cast<int>(input & 16) : 0;
    Dots<kBits, kTokens> dots;
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      const I32 start = kOffset ? SetI32(0) : SetI32(-zero * SumOf<kGroup>(a[t * stride], first));
      KVANT_UNROLL for (int h = 0; h < kHalves; ++h) dots[h][t].Start(start);
    }
    DotGroup<kBits, S::kUnits, kTokens>(w + S::kCodesAt, a, stride, first, dots);
    KVANT_UNROLL for (int h = 0; h < kHalves; ++h) {
      const F32 scale = LoadNumbers<kHalf>(w, h);
      KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
        const F32 both = Mul(scale, SetF32(a[t * stride].scale));
        acc[h][t] = Fma(both, ToF32(dots[h][t].Finish()), acc[h][t]);
      }
      if constexpr (kOffset) {
        const F32 offset = LoadNumbers<kHalf>(w + S::kPlaneBytes, h);
        KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
          const F32 sum = SetF32(ScaledSumOf<kGroup>(a[t * stride], first));
          acc[h][t] = Fma(offset, sum, acc[h][t]);
        }
      }
    }
    if (kGroup == 32 || first != 0) ++a;
  }
  KVANT_UNROLL for (int h = 0; h < kHalves; ++h) {
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      StoreRows(acc[h][t], out + t * job.out_stride + h * kLanes, rows - h * kLanes);
    }
  }
}
