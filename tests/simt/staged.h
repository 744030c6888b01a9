// A pipeline of asynchronous copies through shared memory, as GEMM-like kernels have. The decode
// kernels load registers directly and have none: this one is for the roads that run kernels, and
// for the faults that only a pipeline can have.
#pragma once

#include "cuda/isa.h"

namespace kvant::cuda {

#ifdef __CUDACC__
KVANT_DEVICE void CopyAsync16(void* to, const void* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
KVANT_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
KVANT_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
#else
using simt::CommitCopies;
using simt::CopyAsync16;
template <int kPending>
KVANT_DEVICE void WaitForCopies() {
  simt::WaitForCopies(kPending);
}
#endif

// Each alone makes the kernel wrong.
struct StagedFault {
  bool reads_unswizzled = false;
  bool waits_for_too_few = false;
  bool no_barrier_after_wait = false;
  bool no_barrier_before_refill = false;
};

inline constexpr int kStages = 2;
inline constexpr int kStagedTileWords = kBlockThreads * 4;  // 16 rows of 8 vectors of 16 bytes

// The word at which vector `vector` of a row begins. Swizzled, so that the same vector of 8 rows
// lies in different banks.
KVANT_DEVICE int StagedPlace(int stage, int row, int vector, bool swizzled = true) {
  return ((stage * 16 + row) * 8 + (swizzled ? vector ^ (row % 8) : vector)) * 4;
}

// in: [tiles][16 rows][8 vectors][4]. out[t]: over the tiles, the sum of word 0 of row t % 16,
// vector t / 16, which another thread copied.
template <StagedFault kFault = StagedFault{}>
KVANT_DEVICE void SumStaged(const uint32_t* in, uint32_t* out, int tiles) {
  KVANT_SHARED(uint32_t, stage, kStages * kStagedTileWords);
  const int t = ThreadIndex();
  const auto copy = [&](int tile) {
    if (tile < tiles) {
      CopyAsync16(stage + StagedPlace(tile % kStages, t / 8, t % 8),
                  in + tile * kStagedTileWords + t * 4);
    }
    CommitCopies();
  };
  KVANT_UNROLL
  for (int tile = 0; tile < kStages; ++tile) copy(tile);
  uint32_t sum = 0;
  KVANT_LOOP
  for (int tile = 0; tile < tiles; ++tile) {
    WaitForCopies<kFault.waits_for_too_few ? kStages : kStages - 1>();
    if constexpr (!kFault.no_barrier_after_wait) SyncThreads();
    sum += stage[StagedPlace(tile % kStages, t % 16, t / 16, !kFault.reads_unswizzled)];
    if constexpr (!kFault.no_barrier_before_refill) SyncThreads();
    copy(tile + kStages);
  }
  out[t] = sum;
}

inline uint32_t ExpectedStagedSum(const uint32_t* in, int tiles, int t) {
  uint32_t sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    sum += in[tile * kStagedTileWords + (t % 16 * 8 + t / 16) * 4];
  }
  return sum;
}

}  // namespace kvant::cuda
