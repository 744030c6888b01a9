// What pools avoid, to be measured beside them: scores q . k of int4 and int2 keys of 128 channels,
// from rows that lie in the order of tokens whatever their width, and from a pool in which evicted
// tokens left holes. Each is written as well as its layout lets it be: every request takes whole
// rows, tables are read a warp at a time.
#include <cstdint>

namespace {

constexpr int kDim = 128;

// Of one word of codes, which are centred, with the queries from `first` on.
__device__ __forceinline__ float Dot(uint32_t word, int bits, int first, const float* q) {
  float sum = 0;
  for (int i = 0; i < 32 / bits; ++i) {
    const int code = static_cast<int>(word >> (i * bits) & ((1u << bits) - 1)) - (1 << (bits - 1));
    sum = __fmaf_rn(static_cast<float>(code), q[first + i], sum);
  }
  return sum;
}

__device__ __forceinline__ float SumOfWarp(float x) {
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

}  // namespace

// rows: [tokens] rows of an f32 scale and 128 codes, one behind the other; row_words: where each
// begins, in words; bits: of each, 4 or 2. A warp takes 32 tokens at a time.
extern "C" __global__ void __launch_bounds__(128)
    kvant_inline_mixed_scores_d128(const uint32_t* rows, const uint32_t* row_words,
                                   const uint8_t* bits, const float* queries, float* scores,
                                   int tokens) {
  __shared__ float q[kDim];
  q[threadIdx.x] = queries[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
#pragma unroll 1
  for (int first = warp * 32; first < tokens; first += 128) {
    const int own = first + lane < tokens ? first + lane : tokens - 1;
    const uint32_t own_word = row_words[own];
    const int own_bits = bits[own];
    float own_score = 0;
#pragma unroll 1
    for (int i = 0; i < 32 && first + i < tokens; ++i) {
      const uint32_t at = __shfl_sync(0xffffffffu, own_word, i);
      const int width = __shfl_sync(0xffffffffu, own_bits, i);
      const int words = 1 + kDim * width / 32;
      const uint32_t word = lane < words ? rows[at + lane] : 0;
      const float scale = __uint_as_float(__shfl_sync(0xffffffffu, word, 0));
      float sum = 0;
      if (lane > 0 && lane < words) sum = Dot(word, width, (lane - 1) * (32 / width), q);
      const float score = SumOfWarp(sum) * scale;
      if (lane == i) own_score = score;
    }
    if (first + lane < tokens) scores[first + lane] = own_score;
  }
}

// codes: [slots][16] words of int4; scales: [slots]; kept: [tokens] slots that were not evicted. A
// warp takes 8 tokens at a time, 4 lanes each.
extern "C" __global__ void __launch_bounds__(128)
    kvant_evicted_gather_scores_d128(const uint4* codes, const float* scales, const uint32_t* kept,
                                     const float* queries, float* scores, int tokens) {
  __shared__ float q[kDim];
  q[threadIdx.x] = queries[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
#pragma unroll 1
  for (int first = warp * 8; first < tokens; first += 32) {
    const int token = first + lane / 4 < tokens ? first + lane / 4 : tokens - 1;
    const uint32_t slot = kept[token];
    const uint4 word = codes[slot * 4 + lane % 4];
    const int channel = lane % 4 * 32;
    float sum = Dot(word.x, 4, channel, q) + Dot(word.y, 4, channel + 8, q) +
                Dot(word.z, 4, channel + 16, q) + Dot(word.w, 4, channel + 24, q);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (lane % 4 == 0 && first + lane / 4 < tokens) scores[token] = sum * scales[slot];
  }
}
