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

// Where vector v of a tile lies: kHalves vectors a row block.
inline int HalfOf(int v) { return v % kHalves; }
inline int64_t BlockBytesTo(const MatMulJob& job, int v) { return v / kHalves * job.block_bytes; }
inline int RowsTo(int v) { return v * kLanes; }

// scale_w * scale_a of one vector of rows, from the scales as they are packed.
struct FactorFromScales {
  F32 scale;
  F32 Times(const ActivationGroup& a) const { return Mul(scale, SetF32(a.scale)); }
};

template <bool kHalf>
struct PackedScales {
  // w: this group of the row block of vector v. The index of the group counts from the tile's
  // first.
  FactorFromScales At(const uint8_t* w, int64_t /*index*/, int v) const {
    return {LoadNumbers<kHalf>(w, HalfOf(v))};
  }
};

template <int kBits, int kVectors, int kTokens>
using Dots = Dot<kBits>[kVectors][kTokens];

// One quad of inputs of kTokens tokens. Vectors come last, so that they share the broadcast.
template <int kBits, int kVectors, int kTokens>
inline void StepQuad(const Codes<kBits> (&codes)[kVectors], const ActivationGroup* a,
                     int64_t stride, int input, Dots<kBits, kVectors, kTokens>& dots) {
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    const I32 quad = BroadcastQuad(a[t * stride].codes + input);
    KVANT_UNROLL for (int v = 0; v < kVectors; ++v) dots[v][t].Step(codes[v], quad);
  }
}

// Exact integer dots of one group: codes at `w`, inputs from `first` on of each token's group.
template <int kBits, int kUnits, int kVectors, int kTokens>
inline void DotGroup(const MatMulJob& job, const uint8_t* w, const ActivationGroup* a, int first,
                     Dots<kBits, kVectors, kTokens>& dots) {
  const int64_t stride = job.groups_stride;
  KVANT_UNROLL for (int u = 0; u < kUnits; ++u, w += kUnitBytes) {
    Codes<kBits> low[kVectors], high[kVectors];
    KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
      const I32 raw = LoadBytes(w + BlockBytesTo(job, v) + HalfOf(v) * kLanes * 4);
      low[v] = Prepare<kBits>(kBits == 4 ? Low4(raw) : raw);
      if constexpr (kBits == 4) high[v] = Prepare<kBits>(High4(raw));
    }
    const int input = first + u * 32 / kBits;
    StepQuad<kBits, kVectors, kTokens>(low, a, stride, input, dots);
    if constexpr (kBits == 4) {
      StepQuad<kBits, kVectors, kTokens>(high, a, stride, input + 4, dots);
    }
  }
}

// The row blocks that come next, asked for a few lines a group while these are being multiplied:
// the hardware's own prefetch starts anew at every row block, and 16 tokens took the time of the
// memory and that of the arithmetic one after the other.
struct Upcoming {
  void Prefetch() {
    for (int64_t at = 0; at < group_bytes && bytes < stop; at += kUnitBytes, bytes += kUnitBytes) {
      if (near) {
        __builtin_prefetch(bytes, 0, 3);
      } else {
        __builtin_prefetch(bytes, 0, 2);
      }
    }
  }

  const uint8_t* bytes = nullptr;
  const uint8_t* stop = nullptr;
  int64_t group_bytes = 0;  // to ask for with every group: whole cache lines
  bool near = false;        // whether they fit the first-level cache
};

// kBlocks row blocks times kTokens tokens over job.cols inputs. w: the first block; a: the first
// token's groups; rows: valid ones; resume: whether `out` holds the sums of the inputs before;
// upcoming is moved on.
template <int kBits, int kGroup, bool kOffset, bool kHalf, int kBlocks, int kTokens,
          typename Scales>
inline void Int8Tile(const MatMulJob& job, const Scales& scales, const uint8_t* w,
                     const ActivationGroup* a, float* out, int rows, bool resume,
                     Upcoming& upcoming) {
  using S = Shape<kBits, kGroup, kOffset, kHalf>;
  constexpr int kVectors = kBlocks * kHalves;
  const int64_t stride = job.groups_stride, groups = job.cols / kGroup;
  const int32_t zero = job.zero;
  F32 acc[kVectors][kTokens];
  KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      acc[v][t] = ZeroF32();
      if (resume) acc[v][t] = LoadRows(out + t * job.out_stride + RowsTo(v), rows - RowsTo(v));
    }
  }
  for (int64_t g = 0; g < groups; ++g, w += S::kBytes) {
    const int first = kGroup == 16 ? static_cast<int>(g & 1) * 16 : 0;
    upcoming.Prefetch();
    Dots<kBits, kVectors, kTokens> dots;
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      const I32 start = kOffset ? SetI32(0) : SetI32(-zero * SumOf<kGroup>(a[t * stride], first));
      KVANT_UNROLL for (int v = 0; v < kVectors; ++v) dots[v][t].Start(start);
    }
    DotGroup<kBits, S::kUnits, kVectors, kTokens>(job, w + S::kCodesAt, a, first, dots);
    KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
      const uint8_t* numbers = w + BlockBytesTo(job, v);
      const auto factor = scales.At(numbers, g, v);
      KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
        acc[v][t] = Fma(factor.Times(a[t * stride]), ToF32(dots[v][t].Finish()), acc[v][t]);
      }
      if constexpr (kOffset) {
        const F32 offset = LoadNumbers<kHalf>(numbers + S::kPlaneBytes, HalfOf(v));
        KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
          const F32 sum = SetF32(ScaledSumOf<kGroup>(a[t * stride], first));
          acc[v][t] = Fma(offset, sum, acc[v][t]);
        }
      }
    }
    if (kGroup == 32 || first != 0) ++a;
  }
  KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      StoreRows(acc[v][t], out + t * job.out_stride + RowsTo(v), rows - RowsTo(v));
    }
  }
}
