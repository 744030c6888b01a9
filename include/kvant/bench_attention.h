// The attention of a decode step on its own: caches of random keys and values, read by the kernels
// that a session uses, timed without a model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kvant/format.h"
#include "kvant/isa.h"
#include "kvant/status.h"

namespace kvant {

struct AttentionBenchOptions {
  KvGeometry geometry;
  std::vector<KvSpec> specs;    // compared with each other in the same minute
  std::vector<Isa> isas;        // empty: the active one
  std::vector<int64_t> depths;  // cached tokens of a sequence
  int64_t batch = 1;            // sequences, each with pages of its own
  int threads = 1;
  int repetitions = 15;
  uint64_t seed = 0;
  bool probabilities = false;  // the kernels also hand out what each query gives each token
};

// One spec at one depth on one level. A repetition is one step: every layer, KV head and sequence.
struct AttentionBenchRow {
  KvSpec spec;
  Isa isa = Isa::kScalar;
  int64_t depth_tokens = 0;
  int64_t kv_bytes = 0;  // that one step reads
  std::vector<int64_t>
      samples_ns;  // by repetition; the same one of every spec ran one after another
  int64_t median_ns = 0;
};

// Rows come as (depth, isa, spec). `progress` may be left out. Switches the active ISA level while
// it runs and back. Fails as Cache::Create and IsaStatus do, or with kInvalidArgument for a list
// that is empty or a number that is impossible.
// Thread rules: one call at a time, nothing else of kvant running.
Result<std::vector<AttentionBenchRow>> BenchAttention(
    const AttentionBenchOptions& options, const std::function<void(double done)>& progress = {});

}  // namespace kvant
