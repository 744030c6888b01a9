// The aarch64 level: a Vec is four registers. Nothing here may instantiate an inline function of
// another header: the linker could keep this copy for every CPU.
#include <arm_neon.h>

#include <cmath>
#include <cstring>

#include "codec/iq4_nl.h"
#include "codec/side_plan.h"

namespace kvant {
namespace {

// Lanes 4 * i .. 4 * i + 3 in quarter i.
struct Vec {
  float32x4_t q[4];
};
struct Int {
  int32x4_t q[4];
};
struct Mask {
  uint32x4_t q[4];
};

// {fn(0), fn(1), fn(2), fn(3)}
template <typename V, typename Fn>
V Quarters(const Fn& fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}

Vec Set(float x) {
  return Quarters<Vec>([=](int) { return vdupq_n_f32(x); });
}
Vec Load(const float* p) {
  return Quarters<Vec>([=](int i) { return vld1q_f32(p + 4 * i); });
}
void Store(float* p, Vec v) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.q[i]);
}
void StoreWhere(Mask m, float* p, Vec v) {
  alignas(16) float values[16];
  alignas(16) uint32_t used[16];
  Store(values, v);
  for (int i = 0; i < 4; ++i) vst1q_u32(used + 4 * i, m.q[i]);
  for (int i = 0; i < 16; ++i) {
    if (used[i] != 0) p[i] = values[i];
  }
}
Vec Add(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return vaddq_f32(a.q[i], b.q[i]); });
}
Vec Sub(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return vsubq_f32(a.q[i], b.q[i]); });
}
Vec Mul(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return vmulq_f32(a.q[i], b.q[i]); });
}
Vec Div(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return vdivq_f32(a.q[i], b.q[i]); });
}
// The second operand where neither is smaller or greater, as zeros of two signs are.
float32x4_t MinQuarter(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
float32x4_t MaxQuarter(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
Vec Min(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return MinQuarter(a.q[i], b.q[i]); });
}
Vec Max(Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return MaxQuarter(a.q[i], b.q[i]); });
}
Vec Negate(Vec a) {
  return Quarters<Vec>([&](int i) { return vnegq_f32(a.q[i]); });
}
Vec Abs(Vec a) {
  return Quarters<Vec>([&](int i) { return vabsq_f32(a.q[i]); });
}
Vec Ceil(Vec a) {
  return Quarters<Vec>([&](int i) { return vrndpq_f32(a.q[i]); });
}
Vec RoundEven(Vec a) {
  return Quarters<Vec>([&](int i) { return vrndnq_f32(a.q[i]); });
}
float SmallestOf(Vec a) {
  return vminvq_f32(vminq_f32(vminq_f32(a.q[0], a.q[1]), vminq_f32(a.q[2], a.q[3])));
}
float LargestOf(Vec a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.q[0], a.q[1]), vmaxq_f32(a.q[2], a.q[3])));
}

Mask Less(Vec a, Vec b) {
  return Quarters<Mask>([&](int i) { return vcltq_f32(a.q[i], b.q[i]); });
}
Mask Equal(Vec a, Vec b) {
  return Quarters<Mask>([&](int i) { return vceqq_f32(a.q[i], b.q[i]); });
}
bool Any(Mask m) {
  return vmaxvq_u32(vorrq_u32(vorrq_u32(m.q[0], m.q[1]), vorrq_u32(m.q[2], m.q[3]))) != 0;
}
Vec Select(Mask m, Vec a, Vec b) {
  return Quarters<Vec>([&](int i) { return vbslq_f32(m.q[i], a.q[i], b.q[i]); });
}
Int SelectInt(Mask m, Int a, Int b) {
  return Quarters<Int>([&](int i) { return vbslq_s32(m.q[i], a.q[i], b.q[i]); });
}
// Lanes begin <= i < end; either may lie outside 0 .. 16.
Mask MaskOf(int begin, int end) {
  constexpr int32_t kLanes[4] = {0, 1, 2, 3};
  const int32x4_t lanes = vld1q_s32(kLanes);
  return Quarters<Mask>([&](int i) {
    return vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(begin - 4 * i)),
                     vcltq_s32(lanes, vdupq_n_s32(end - 4 * i)));
  });
}

Int SetInt(int x) {
  return Quarters<Int>([=](int) { return vdupq_n_s32(x); });
}
Int LoadInts(const void* p) {
  const int32_t* at = static_cast<const int32_t*>(p);
  return Quarters<Int>([=](int i) { return vld1q_s32(at + 4 * i); });
}
void StoreInts(void* p, Int v) {
  int32_t* at = static_cast<int32_t*>(p);
  for (int i = 0; i < 4; ++i) vst1q_s32(at + 4 * i, v.q[i]);
}
Int And(Int a, Int b) {
  return Quarters<Int>([&](int i) { return vandq_s32(a.q[i], b.q[i]); });
}
Int Or(Int a, Int b) {
  return Quarters<Int>([&](int i) { return vorrq_s32(a.q[i], b.q[i]); });
}
Int ShiftLeft(Int a, int n) {
  return Quarters<Int>([&](int i) { return vshlq_s32(a.q[i], vdupq_n_s32(n)); });
}
Int ShiftRight(Int a, int n) {  // zeros come in at the top
  return Quarters<Int>([&](int i) {
    const uint32x4_t bits = vreinterpretq_u32_s32(a.q[i]);
    return vreinterpretq_s32_u32(vshlq_u32(bits, vdupq_n_s32(-n)));
  });
}
Int AddOneWhere(Mask m, Int a) {
  return Quarters<Int>([&](int i) { return vsubq_s32(a.q[i], vreinterpretq_s32_u32(m.q[i])); });
}
Int BitsOf(Vec a) {
  return Quarters<Int>([&](int i) { return vreinterpretq_s32_f32(a.q[i]); });
}
Int ToInt(Vec a) {
  return Quarters<Int>([&](int i) { return vcvtnq_s32_f32(a.q[i]); });
}
Vec ToFloat(Int a) {
  return Quarters<Vec>([&](int i) { return vcvtq_f32_s32(a.q[i]); });
}

uint16x4_t LoadWords(const void* p, int quarter) {
  return vld1_u16(static_cast<const uint16_t*>(p) + 4 * quarter);
}
Vec LoadHalves(const void* p) {
  return Quarters<Vec>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(LoadWords(p, i))); });
}
Int HalvesOf(Vec a) {
  return Quarters<Int>([&](int i) {
    const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(a.q[i]));
    return vreinterpretq_s32_u32(vmovl_u16(halves));
  });
}
Vec FloatsOf(Int halves) {
  return Quarters<Vec>(
      [&](int i) { return vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(halves.q[i]))); });
}
Int LoadShorts(const void* p) {
  return Quarters<Int>([=](int i) { return vmovl_s16(vreinterpret_s16_u16(LoadWords(p, i))); });
}
void StoreShorts(void* p, Int v) {
  int16_t* at = static_cast<int16_t*>(p);
  for (int i = 0; i < 4; ++i) vst1_s16(at + 4 * i, vmovn_s32(v.q[i]));
}
Int LoadBytes(const void* p) {
  const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}

// The four dwords of lane 4 * k + j, one of each input, go to bytes 64 * j + 16 * k.
void StoreTransposed(std::byte* out, const Int (&q)[4]) {
  int32_t* at = reinterpret_cast<int32_t*>(out);
  const auto pairs = [](int32x4_t a, int32x4_t b, int64x2_t* even, int64x2_t* odd) {
    *even = vreinterpretq_s64_s32(vtrn1q_s32(a, b));  // lanes 0 and 2
    *odd = vreinterpretq_s64_s32(vtrn2q_s32(a, b));   // lanes 1 and 3
  };
  for (int k = 0; k < 4; ++k) {
    int64x2_t even01, odd01, even23, odd23;
    pairs(q[0].q[k], q[1].q[k], &even01, &odd01);
    pairs(q[2].q[k], q[3].q[k], &even23, &odd23);
    vst1q_s32(at + 4 * k, vreinterpretq_s32_s64(vzip1q_s64(even01, even23)));
    vst1q_s32(at + 4 * k + 16, vreinterpretq_s32_s64(vzip1q_s64(odd01, odd23)));
    vst1q_s32(at + 4 * k + 32, vreinterpretq_s32_s64(vzip2q_s64(even01, even23)));
    vst1q_s32(at + 4 * k + 48, vreinterpretq_s32_s64(vzip2q_s64(odd01, odd23)));
  }
}

// Codes sit in the low byte of each lane: the table gives the byte of the level there and 0 in the
// other three, where the index is moved out of range.
Vec LookUpIq4Nl(Int codes) {
  const int8x16_t levels = vld1q_s8(kIq4NlLevels);
  return Quarters<Vec>([&](int i) {
    const uint8x16_t index =
        vreinterpretq_u8_s32(vorrq_s32(codes.q[i], vdupq_n_s32(static_cast<int>(0xffffff00u))));
    const int32x4_t level = vreinterpretq_s32_s8(vqtbl1q_s8(levels, index));
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(level, 24), 24));
  });
}

}  // namespace
}  // namespace kvant

#include "codec/codec-inl.h"

namespace kvant {

void EncodeCodedNeon(const SidePlan& plan, const std::byte* source, int first_token,
                     std::byte* stored) {
  EncodeCoded(plan, source, first_token, stored);
}

void DecodeCodedNeon(const SidePlan& plan, const std::byte* stored, float* out,
                     int64_t out_stride) {
  DecodeCoded(plan, stored, out, out_stride);
}

}  // namespace kvant
