// Float arithmetic, one register tile: decoded or plain weights. A part of kernels-inl.h.
//
// No #pragma once: a part of its includer, not a header of its own.

// One half of a row block times kTokens tokens, the weights decoded to f32.
template <int kBits, int kGroup, bool kOffset, bool kHalf, int kTokens>
inline void FloatTile(const MatMulJob& job, const uint8_t* w, const float* x, float* out, int rows,
                      int half) {
  using S = Shape<kBits, kGroup, kOffset, kHalf>;
  const I32 zero = SetI32(job.zero);
  F32 acc[kTokens][4];
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    KVANT_UNROLL for (int j = 0; j < 4; ++j) acc[t][j] = ZeroF32();
  }
  for (int64_t input = 0; input < job.cols; input += kGroup, w += S::kBytes, x += kGroup) {
    const F32 scale = LoadNumbers<kHalf>(w, half);
    F32 offset = ZeroF32();
    if constexpr (kOffset) offset = LoadNumbers<kHalf>(w + S::kPlaneBytes, half);
    const uint8_t* codes = w + S::kCodesAt + half * kLanes * 4;
    const auto quad = [&](I32 bytes, int first) {
      const I32 code[4] = {Byte<0>(bytes), Byte<1>(bytes), Byte<2>(bytes), Byte<3>(bytes)};
      KVANT_UNROLL for (int j = 0; j < 4; ++j) {
        const F32 value = Fma(scale, ToF32(SubI32(code[j], zero)), offset);
        KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
          acc[t][j] = Fma(value, SetF32(x[t * job.values_stride + first + j]), acc[t][j]);
        }
      }
    };
    for (int u = 0; u < S::kUnits; ++u) {
      const I32 raw = LoadBytes(codes + u * kUnitBytes);
      if constexpr (kBits == 4) {
        quad(Low4(raw), u * 8);
        quad(High4(raw), u * 8 + 4);
      } else {
        quad(raw, u * 4);
      }
    }
  }
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    const F32 sum = Add(Add(acc[t][0], acc[t][1]), Add(acc[t][2], acc[t][3]));
    StoreRows(sum, out + t * job.out_stride, rows);
  }
}

template <FloatStorage kStorage>
inline F32 LoadWeights(const uint8_t* block, int64_t at) {
  if constexpr (kStorage == FloatStorage::kF16) return LoadF16(block + 2 * at);
  if constexpr (kStorage == FloatStorage::kBf16) return LoadBf16(block + 2 * at);
  return LoadF32(reinterpret_cast<const float*>(block) + at);
}

// One half of a row block of plain floats times kTokens tokens.
template <FloatStorage kStorage, int kTokens>
inline void PlainTile(const MatMulJob& job, const uint8_t* w, const float* x, float* out, int rows,
                      int half) {
  F32 acc[kTokens][4];
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    KVANT_UNROLL for (int j = 0; j < 4; ++j) acc[t][j] = ZeroF32();
  }
  const auto column = [&](int64_t c, int j) {
    const F32 value = LoadWeights<kStorage>(w, c * kRowBlock + half * kLanes);
    KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
      acc[t][j] = Fma(value, SetF32(x[t * job.values_stride + c]), acc[t][j]);
    }
  };
  const int64_t whole = job.cols & ~int64_t{3};
  for (int64_t c = 0; c < whole; c += 4) {
    KVANT_UNROLL for (int j = 0; j < 4; ++j) column(c + j, j);
  }
  KVANT_UNROLL for (int j = 0; j < 3; ++j) {
    if (whole + j < job.cols) column(whole + j, j);
  }
  KVANT_UNROLL for (int t = 0; t < kTokens; ++t) {
    const F32 sum = Add(Add(acc[t][0], acc[t][1]), Add(acc[t][2], acc[t][3]));
    StoreRows(sum, out + t * job.out_stride, rows);
  }
}
