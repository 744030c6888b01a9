// Lookups of src/cuda/pair_table.h alone, by copies of the table, to count their turns.
#include "cuda/pair_table.h"

namespace {

// words: [count][32], of codes; pairs: [count][32][4].
template <int kCopies>
__device__ __forceinline__ void LookUp(const uint16_t* levels, const uint32_t* words,
                                       uint32_t* pairs, int count) {
  using Table = kvant::cuda::PairTable<kCopies>;
  __shared__ uint32_t shared[Table::kWords];
  Table::Store(levels, shared);
  __syncthreads();
  const int lane = kvant::cuda::ThreadIndex() % 32;
  const Table table = Table::Of(shared, lane);
#pragma unroll 1
  for (int i = kvant::cuda::UniformWarp(); i < count; i += kvant::cuda::kBlockWarps) {
    const uint32_t word = words[i * 32 + lane];
    uint32_t* out = pairs + (i * 32 + lane) * 4;
    out[0] = table.template Pair<0>(word);
    out[1] = table.template Pair<1>(word);
    out[2] = table.template Pair<2>(word);
    out[3] = table.template Pair<3>(word);
  }
}

}  // namespace

#define KVANT_LOOK_UP(copies)                                                        \
  KVANT_KERNEL kvant_look_up_##copies(const uint16_t* levels, const uint32_t* words, \
                                      uint32_t* pairs, int count) {                  \
    LookUp<copies>(levels, words, pairs, count);                                     \
  }
KVANT_LOOK_UP(1)
KVANT_LOOK_UP(8)
KVANT_LOOK_UP(16)
KVANT_LOOK_UP(32)
