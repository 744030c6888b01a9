// The pipeline of cp.async, for the interpreter.
#include "simt/staged.h"

KVANT_KERNEL kvant_staged_sum(const uint32_t* in, uint32_t* out, int tiles) {
  kvant::cuda::SumStaged(in, out, tiles);
}
