// A kernel for the interpreter alone: rows pass through shared memory in a pipeline of cp.async, as
// GEMM-like kernels do. The decode kernels load registers directly and have no such pipeline.
#include <cuda_fp16.h>

#include <cstdint>

namespace {

constexpr int kStages = 3;
constexpr int kTileWords4 = 128;  // 16 bytes of each of 128 threads

__device__ __forceinline__ void CopyAsync(void* to, const void* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ __forceinline__ void Commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void Wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace

// out[t] = the sum over tiles of word 0 of what thread 127 - t copied: every value crosses warps.
extern "C" __global__ void __launch_bounds__(128)
    kvant_staged_sum(const uint4* in, uint32_t* out, int tiles) {
  __shared__ uint4 stage[kStages][kTileWords4];
  const int t = static_cast<int>(threadIdx.x);
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < tiles) CopyAsync(&stage[s][t], in + s * kTileWords4 + t);
    Commit();
  }
  uint32_t sum = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    Wait<kStages - 2>();
    __syncthreads();  // all threads' copies of this tile are here; all are done with the one before
    const int next = tile + kStages - 1;
    if (next < tiles) CopyAsync(&stage[next % kStages][t], in + next * kTileWords4 + t);
    Commit();
    sum += stage[tile % kStages][127 - t].x;
  }
  out[t] = sum;
}
