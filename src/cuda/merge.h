// Joins the partial states of splits and runs: the merge of src/attention's PartialState, in
// base 2.
#pragma once

#include "cuda/arguments.h"
#include "cuda/isa.h"

namespace kvant::cuda {

// One block a query head. An empty state (max -inf) counts for nothing; where all are, out is 0.
KVANT_DEVICE void MergeHead(const MergeArguments& args) {
  const int64_t head = static_cast<int64_t>(BlockY()) * args.group_ratio + BlockX();
  const float* states = args.partial_state + head * args.slots * 2;
  float top = NegativeInfinity();
  KVANT_LOOP
  for (int slot = 0; slot < args.slots; ++slot) top = Max(top, states[2 * slot]);
  KVANT_LOOP
  for (int channel = ThreadIndex(); channel < args.head_dim; channel += kBlockThreads) {
    float total = 0, out = 0;
    KVANT_LOOP
    for (int slot = 0; slot < args.slots; ++slot) {
      if (states[2 * slot] == NegativeInfinity()) continue;
      const float weight = Exp2(states[2 * slot] - top);
      total = Fma(weight, states[2 * slot + 1], total);
      out =
          Fma(weight, args.partial_out[(head * args.slots + slot) * args.head_dim + channel], out);
    }
    args.out[head * args.head_dim + channel] = total > 0 ? out / total : 0.0f;
  }
}

}  // namespace kvant::cuda
