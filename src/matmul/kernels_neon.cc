// aarch64 with the dot product: one sdot does 4 rows x 4 inputs, so a row block is four vectors.
#include <arm_neon.h>

#include "matmul/kernels.h"

namespace kvant {
namespace {

constexpr int kLanes = 4;
template <int kBits>
constexpr int kInt8Tokens = 4;
constexpr int kInt8Blocks = 1;
constexpr int kFloatTokens = 4;

using F32 = float32x4_t;
using I32 = int32x4_t;

inline F32 ZeroF32() { return vdupq_n_f32(0.0f); }
inline F32 SetF32(float v) { return vdupq_n_f32(v); }
inline F32 LoadF32(const float* p) { return vld1q_f32(p); }
inline void StoreF32(float* p, F32 v) { vst1q_f32(p, v); }
inline uint16x4_t LoadWords(const uint8_t* p) {
  return vld1_u16(reinterpret_cast<const uint16_t*>(p));
}
inline F32 LoadF16(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(LoadWords(p))); }
inline F32 LoadBf16(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(LoadWords(p), 16));
}
inline F32 Fma(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
inline F32 Mul(F32 a, F32 b) { return vmulq_f32(a, b); }
inline F32 Add(F32 a, F32 b) { return vaddq_f32(a, b); }
inline F32 ToF32(I32 v) { return vcvtq_f32_s32(v); }

inline I32 SetI32(int32_t v) { return vdupq_n_s32(v); }
inline I32 LoadBytes(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
inline I32 LoadI32(const float* p) { return vreinterpretq_s32_f32(vld1q_f32(p)); }
inline I32 SubI32(I32 a, I32 b) { return vsubq_s32(a, b); }
inline I32 MaxI32(I32 a, I32 b) { return vmaxq_s32(a, b); }
inline I32 And(I32 a, I32 b) { return vandq_s32(a, b); }
template <int j>
inline I32 Byte(I32 v) {
  if constexpr (j != 0) v = vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), 8 * j));
  return And(v, SetI32(255));
}
inline I32 Low4(I32 v) {
  return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(v), vdupq_n_u8(15)));
}
inline I32 High4(I32 v) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), 4)); }
inline I32 RoundI32(F32 v) { return vcvtnq_s32_f32(v); }
inline void StoreI8(int8_t* p, I32 v) {
  const int16x4_t words = vmovn_s32(v);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
  const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
  __builtin_memcpy(p, &four, sizeof(four));
}
inline I32 BroadcastQuad(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return SetI32(four);
}
inline int32_t HorizontalMax(I32 v) { return vmaxvq_s32(v); }
inline int32_t SumOfCodes(const int8_t* p) { return vaddlvq_s8(vld1q_s8(p)); }

template <int kBits>
struct Codes {
  int8x16_t bytes;
};

// The dot product takes signed bytes on both sides: 8-bit codes are moved down by 128.
template <int kBits>
inline Codes<kBits> Prepare(I32 bytes) {
  uint8x16_t codes = vreinterpretq_u8_s32(bytes);
  if constexpr (kBits == 8) codes = veorq_u8(codes, vdupq_n_u8(0x80));
  return {vreinterpretq_s8_u8(codes)};
}

template <int kBits>
struct Dot {
  void Start(I32 first) {
    sum = first;
    moved = SetI32(0);
  }
  void Step(const Codes<kBits>& codes, I32 quad) {
    const int8x16_t inputs = vreinterpretq_s8_s32(quad);
    sum = vdotq_s32(sum, codes.bytes, inputs);
    // The same for all vectors of a token, so the compiler keeps one of them.
    if constexpr (kBits == 8) moved = vdotq_s32(moved, vdupq_n_s8(-128), inputs);
  }
  I32 Finish() const { return kBits == 8 ? SubI32(sum, moved) : sum; }

  I32 sum;
  I32 moved;  // -128 times the sum of the inputs
};

#include "matmul/kernels-inl.h"

}  // namespace

const MatMulKernels kMatMulNeon = {Quantize, Int8Grouped, FloatGrouped, Plain};

}  // namespace kvant
