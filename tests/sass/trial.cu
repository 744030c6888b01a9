// Kernels that show the meter what compilers do; nobody runs them.
#include <cuda_fp16.h>
#include <stdint.h>

// The counter-example: every code becomes a float by itself, c * scale + offset. A lane reads 16
// bytes of codes and 4 of metadata, of which its share is 1: four lanes share a row.
extern "C" __global__ void naive_int4(const uint4* codes, const half2* metadata, const float* query,
                                      float* scores, int rows) {
  const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  float q[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) q[i] = query[(lane & 3) * 32 + i];
#pragma unroll 1
  for (int first = warp * 8; first < rows; first += 8 * (blockDim.x >> 5)) {
    const int row = first + (lane >> 2);
    const uint4 c = codes[row * 4 + (lane & 3)];
    const float2 scale_offset = __half22float2(metadata[row]);
    const uint32_t words[4] = {c.x, c.y, c.z, c.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const float code = static_cast<float>((words[i / 8] >> (4 * (i % 8))) & 15);
      sum = fmaf(fmaf(code, scale_offset.x, scale_offset.y), q[i], sum);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if ((lane & 3) == 0) scores[row] = sum;
  }
}

// The bound is the same for all lanes of a warp, which the compiler cannot see: it keeps copies of
// the shuffles for lanes that are apart. Five shuffles and 16 bytes an iteration.
extern "C" __global__ void unproven_uniform(const float4* x, float* out, int rows) {
  const int lane = threadIdx.x & 31;
  float total = 0;
#pragma unroll 1
  for (int row = threadIdx.x >> 5; row < rows; row += 4) {
    const float4 v = x[row * 32 + lane];
    float sum = v.x * v.y + v.z * v.w;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      sum += __shfl_xor_sync(~0u, sum, distance);
    }
    total += sum;
  }
  out[threadIdx.x] = total;
}

// The bound differs from lane to lane: on sm_80 the shuffle stands beside a call of a helper.
extern "C" __global__ void bound_by_lane(const float* x, float* out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __shfl_xor_sync(~0u, x[i], 1);
  out[threadIdx.x] = sum;
}

// The compiler does several of its iterations at once, and the rest in a loop of their own.
extern "C" __global__ void unrolled(const float* x, float* out, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i * 32 + threadIdx.x];
  out[threadIdx.x] = sum;
}

// An array on the stack and one in shared memory.
extern "C" __global__ void holds_memory(const float* x, float* out, int n) {
  __shared__ float shared[256];
  float own[32];
  for (int i = 0; i < 32; ++i) own[i * n & 31] = x[i];
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = own[n] + shared[n];
}
