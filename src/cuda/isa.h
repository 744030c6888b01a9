// The instructions that kernels use by name, in two branches: PTX for nvcc, and for g++ the SIMT
// shim of the tests (tests/simt), which runs the same kernel source on the CPU. Everything above
// this file is one source for both.
//
// Halves travel in 32-bit words, the lower half first: no vendor header is needed on the host.
// Half arithmetic rounds once to nearest even; kernels are compiled with -fmad=false and fuse by
// name, so that both branches round alike. What differs: Exp2 (ex2.approx, relative error 2^-22)
// and the order and rounding inside a matrix multiply-accumulate.
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define KVANT_DEVICE __device__ __forceinline__
#define KVANT_KERNEL extern "C" __global__ void __launch_bounds__(kvant::cuda::kBlockThreads)
// One block a multiprocessor will do: the compiler takes eight more registers and spills none.
#define KVANT_ROOMY_KERNEL \
  extern "C" __global__ void __launch_bounds__(kvant::cuda::kBlockThreads, 1)
#define KVANT_UNROLL _Pragma("unroll")
#define KVANT_LOOP _Pragma("unroll 1")
#define KVANT_SHARED(type, name, count) __shared__ alignas(16) type name[count]
#else
#include "simt/simt.h"
#define KVANT_DEVICE inline
#define KVANT_KERNEL extern "C" void
#define KVANT_ROOMY_KERNEL KVANT_KERNEL
#define KVANT_UNROLL
#define KVANT_LOOP
#define KVANT_SHARED(type, name, count) type* name = ::kvant::simt::SharedArray<type>(count)
#endif

namespace kvant::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr int kBlockWarps = 4;
inline constexpr int kBlockThreads = kWarpLanes * kBlockWarps;

// 16 bytes of codes: what one load instruction of a lane brings.
struct alignas(16) Words4 {
  uint32_t word[4];
};
// Accumulators of one 16 x 8 tile: (row g, columns 2t, 2t + 1), (row g + 8, the same), of lane
// 4 g + t.
struct Tile {
  float at[4];
};

// Two numbers of E4M3, each in the low byte of a half: halves of 2^-8 times their value. Seven bits
// to the left the exponent and the mantissa stand where a half has them, the sign a place too low;
// adding 1 there carries it up, and what the sum leaves there is cut off.
KVANT_DEVICE uint32_t E4M3HalvesOf(uint32_t bytes) {
  return (bytes * 128u + 0x40004000u) & 0xbf80bf80u;
}

#ifdef __CUDACC__

KVANT_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
KVANT_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
KVANT_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
KVANT_DEVICE void SyncThreads() { __syncthreads(); }

KVANT_DEVICE uint32_t ShuffleXor(uint32_t x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
KVANT_DEVICE float ShuffleXor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
KVANT_DEVICE uint32_t ShuffleFrom(uint32_t x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}

// (word & mask) | bits in one instruction.
template <uint32_t kMask, uint32_t kBits>
KVANT_DEVICE uint32_t AndOr(uint32_t word) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "n"(kMask), "n"(kBits));
  return out;
}
// Byte i of the result is byte (selector nibble i) of a, then b.
template <uint32_t kSelector>
KVANT_DEVICE uint32_t Permute(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "n"(kSelector));
  return out;
}

// Byte kByte of a word times kFactor, + c, in one instruction: a dot product of bytes.
template <int kByte, uint32_t kFactor>
KVANT_DEVICE uint32_t ByteTimesPlus(uint32_t word, uint32_t c) {
  static_assert(kFactor < 256);
  uint32_t out;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(word), "n"(kFactor << (8 * kByte)), "r"(c));
  return out;
}

KVANT_DEVICE uint32_t HalfFma2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
KVANT_DEVICE uint32_t HalfMul2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
KVANT_DEVICE uint32_t HalfSub2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
KVANT_DEVICE uint32_t HalfAdd2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
// Bytes 0, 1 (or 2, 3) of a word, numbers of E4M3, as halves of kE4M3Weight / 256 times their
// value, exactly. NaN is for nobody to hold: codecs saturate.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr int kE4M3Weight = 256;
template <bool kUpper>
KVANT_DEVICE uint32_t E4M3Halves(uint32_t word) {
  uint32_t out;
  if constexpr (kUpper) {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
        : "=r"(out)
        : "r"(word));
  } else {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
        : "=r"(out)
        : "r"(word));
  }
  return out;
}
#else
inline constexpr int kE4M3Weight = 1;
template <bool kUpper>
KVANT_DEVICE uint32_t E4M3Halves(uint32_t word) {
  return E4M3HalvesOf(Permute < kUpper ? 0x4342 : 0x4140 > (word, 0u));
}
#endif

KVANT_DEVICE float LowHalf(uint32_t halves) {
  float out;
  asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}"
      : "=f"(out)
      : "r"(halves));
  return out;
}
KVANT_DEVICE float HighHalf(uint32_t halves) {
  float out;
  asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}"
      : "=f"(out)
      : "r"(halves));
  return out;
}
KVANT_DEVICE uint32_t PackHalves(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

KVANT_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KVANT_DEVICE float Divide(float a, float b) { return __fdiv_rn(a, b); }
KVANT_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
KVANT_DEVICE uint32_t BitsOfFloat(float x) { return __float_as_uint(x); }
KVANT_DEVICE float FloatOfBits(uint32_t bits) { return __uint_as_float(bits); }
KVANT_DEVICE float Max(float a, float b) { return fmaxf(a, b); }
KVANT_DEVICE float Min(float a, float b) { return fminf(a, b); }
KVANT_DEVICE float RoundToEven(float x) { return rintf(x); }
KVANT_DEVICE float RoundUp(float x) { return ceilf(x); }
KVANT_DEVICE float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
KVANT_DEVICE float NegativeInfinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

// A B + c: A 16 x 16 halves, B 16 x 8 halves. Lane 4 g + t holds of A (rows g, g + 8, g, g + 8;
// columns 2t, 2t + 1, of the last two + 8), of B (rows 2t, 2t + 1, then + 8; column g).
KVANT_DEVICE Tile MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Tile& c) {
  Tile out;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(out.at[0]), "=f"(out.at[1]), "=f"(out.at[2]), "=f"(out.at[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c.at[0]), "f"(c.at[1]),
        "f"(c.at[2]), "f"(c.at[3]));
  return out;
}
// Transposes an 8 x 8 matrix of halves: lane 4 g + t holds (row g; columns 2t, 2t + 1).
KVANT_DEVICE uint32_t Transpose8x8(uint32_t x) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(x));
  return out;
}

// Of memory that no kernel writes while this one runs.
KVANT_DEVICE Words4 Load16(const void* at) {
  Words4 out;
  asm("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
      : "l"(at));
  return out;
}
KVANT_DEVICE void Load8(const void* at, uint32_t (&out)[2]) {
  asm("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "l"(at));
}
KVANT_DEVICE uint32_t Load4(const void* at) {
  uint32_t out;
  asm("ld.global.nc.u32 %0, [%1];" : "=r"(out) : "l"(at));
  return out;
}
// Zero-extended.
KVANT_DEVICE uint32_t Load2(const void* at) {
  uint16_t out;
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(out) : "l"(at));
  return out;
}

#else

using simt::BitsOfFloat;
using simt::BlockX;
using simt::BlockY;
using simt::Divide;
using simt::Exp2;
using simt::FloatOfBits;
using simt::Fma;
using simt::HalfAdd2;
using simt::HalfFma2;
using simt::HalfMul2;
using simt::HalfSub2;
using simt::HighHalf;
using simt::Load2;
using simt::Load4;
using simt::Load8;
using simt::LowHalf;
using simt::Max;
using simt::Min;
using simt::NegativeInfinity;
using simt::PackHalves;
using simt::RoundToEven;
using simt::RoundUp;
using simt::ShuffleFrom;
using simt::ShuffleXor;
using simt::SquareRoot;
using simt::SyncThreads;
using simt::ThreadIndex;
using simt::Transpose8x8;

template <uint32_t kMask, uint32_t kBits>
KVANT_DEVICE uint32_t AndOr(uint32_t word) {
  return (word & kMask) | kBits;
}
template <uint32_t kSelector>
KVANT_DEVICE uint32_t Permute(uint32_t a, uint32_t b) {
  return simt::Permute(a, b, kSelector);
}
template <int kByte, uint32_t kFactor>
KVANT_DEVICE uint32_t ByteTimesPlus(uint32_t word, uint32_t c) {
  static_assert(kFactor < 256);
  return (word >> (8 * kByte) & 255u) * kFactor + c;
}
inline constexpr int kE4M3Weight = 1;
template <bool kUpper>
KVANT_DEVICE uint32_t E4M3Halves(uint32_t word) {
  return E4M3HalvesOf(Permute < kUpper ? 0x4342 : 0x4140 > (word, 0u));
}
KVANT_DEVICE Tile MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Tile& c,
                              int line = __builtin_LINE()) {
  Tile out;
  simt::MultiplyAdd(a, b0, b1, c.at, out.at, line);
  return out;
}
KVANT_DEVICE Words4 Load16(const void* at) {
  Words4 out;
  simt::Load16(at, out.word);
  return out;
}

#endif

// Of 0 .. 31, which the compiler sees: divisions of it are shifts.
KVANT_DEVICE int LaneIndex() {
  return static_cast<int>(static_cast<unsigned>(ThreadIndex()) % kWarpLanes);
}

// x, in a register that the compiler does not make anew in a loop: it does not know what a shuffle
// gives.
KVANT_DEVICE int Kept(int x) {
  return static_cast<int>(ShuffleFrom(static_cast<uint32_t>(x), LaneIndex()));
}

// The warp's number in its block, the same register for all lanes: loop bounds made of it are
// uniform to the compiler too, which otherwise keeps divergent copies of every shuffle.
KVANT_DEVICE int UniformWarp() {
  return static_cast<int>(ShuffleFrom(static_cast<uint32_t>(ThreadIndex() / kWarpLanes), 0));
}

// Four words of shared memory, 16-byte aligned.
KVANT_DEVICE void LoadShared(const uint32_t* at, uint32_t (&out)[4]) {
  const Words4 words = *reinterpret_cast<const Words4*>(at);
  KVANT_UNROLL
  for (int i = 0; i < 4; ++i) out[i] = words.word[i];
}

}  // namespace kvant::cuda
