// A SIMT machine on the CPU: runs a kernel's source, compiled by the host's compiler, thread by
// thread. A thread is a fiber; it runs until it meets others in a collective operation or a
// barrier. What a GPU leaves undefined is a fault here, told in one sentence:
//   - lanes of a warp that meet in different operations, or at different source lines
//   - an operation that names a lane which has left the kernel
//   - a barrier that some threads never reach, or any other wait without end
// Shared memory begins as NaN. The order of threads is an input: a kernel is right if it is right
// in all of them. Not modelled: time, memory ordering, bank conflicts, caches.
//
// Numbers: half arithmetic rounds once, to nearest even; MultiplyAdd adds its 16 products and the
// accumulator in double, in order, and rounds once to float; Exp2 is std::exp2 in float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>

#include "simt/half.h"

namespace kvant::simt {

enum class Schedule {
  kRoundRobin,  // each thread in turn
  kRandom,      // any that can run
  kRunAhead,    // one warp as far as it can, then the next
};

// Makes a right kernel wrong, to see that a test would tell.
struct PlantedFault {
  int dropped_barrier = -1;  // each thread's n-th barrier does nothing
  int xor_mask = 0;          // shuffles over this distance ...
  int wrong_xor_mask = 0;    // ... take this one
};

struct LaunchOptions {
  int grid_x = 1, grid_y = 1;
  int threads = 128;  // of a block, whole warps
  Schedule schedule = Schedule::kRoundRobin;
  uint64_t seed = 0;
  PlantedFault fault = {};
};

// Runs `thread` once for each thread of the grid, block after block. Returns the first fault, or
// nothing. Thread rules: one launch at a time in an OS thread. A fault abandons the block's fibers
// where they stand: their destructors do not run.
std::string Launch(const LaunchOptions& options, const std::function<void()>& thread);

// ---- What a kernel calls, by the names of cuda/isa.h

int ThreadIndex();
int BlockX();
int BlockY();
void SyncThreads(int line = __builtin_LINE());

// The n-th call of a thread gives the n-th array of its block, to all threads the same.
void* SharedBytes(size_t bytes);
template <typename T>
T* SharedArray(int count) {
  return static_cast<T*>(SharedBytes(sizeof(T) * static_cast<size_t>(count)));
}

uint32_t ShuffleXor(uint32_t x, int mask, int line = __builtin_LINE());
float ShuffleXor(float x, int mask, int line = __builtin_LINE());
uint32_t ShuffleFrom(uint32_t x, int lane, int line = __builtin_LINE());
void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                 float (&out)[4], int line = __builtin_LINE());
uint32_t Transpose8x8(uint32_t x, int line = __builtin_LINE());

// Copies from global into shared memory that take their time, at its worst: the target holds NaN
// from the moment of issue, and is filled when the thread waits for the group of the copy. A wait
// leaves the `pending` groups that were committed last.
void CopyAsync16(void* to, const void* from);
void CommitCopies();
void WaitForCopies(int pending);

uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector);

inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Divide(float a, float b) { return a / b; }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline uint32_t BitsOfFloat(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOfBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float RoundToEven(float x) { return std::nearbyint(x); }
inline float RoundUp(float x) { return std::ceil(x); }
inline float Min(float a, float b) { return std::fmin(a, b); }
inline float Max(float a, float b) { return std::fmax(a, b); }
inline float Exp2(float x) { return std::exp2(x); }
inline float NegativeInfinity() { return -std::numeric_limits<float>::infinity(); }

// Loads fault unless they are aligned to their size; their bounds are the sanitizer's to check.
void CheckAligned(const void* at, size_t bytes);
template <typename T>
T LoadAligned(const void* at) {
  CheckAligned(at, sizeof(T));
  T out;
  std::memcpy(&out, at, sizeof out);
  return out;
}
inline void Load16(const void* at, uint32_t (&out)[4]) {
  CheckAligned(at, sizeof out);
  std::memcpy(out, at, sizeof out);
}
inline void Load8(const void* at, uint32_t (&out)[2]) {
  CheckAligned(at, sizeof out);
  std::memcpy(out, at, sizeof out);
}
inline uint32_t Load4(const void* at) { return LoadAligned<uint32_t>(at); }
inline uint32_t Load2(const void* at) { return LoadAligned<uint16_t>(at); }

}  // namespace kvant::simt
