// Regime: what one decode step waits for on a device (weights, the KV stream, or the instructions
// that unpack it), where another limit takes over, and what fewer bits give.
//
// A bound, not a forecast: a GPU is taken to overlap loads and instructions perfectly and to do
// nothing else, so that no kernel with these counts can be faster. A CPU's overlap is measured
// (Device below). Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/explain.h"
#include "kvant/roofline.h"
#include "kvant/status.h"

namespace kvant {

// What a decode kernel asks of a device for each byte of codes (or f16 values).
struct KernelCost {
  std::string name;  // "core", "tensor", "naive"
  // Of kvant's kernel: "f16", "int8", "int4", "int2", "fp8", "tq4", or of two widths (K's first)
  // "int8_int4", "int4_int2".
  std::string format;
  int bits = 0;        // of a code of K
  int v_bits = 0;      // of V; 0: the same
  int target = 0;      // machine code that was counted: 80 of sm_80
  std::string source;  // which loop, and by which compiler

  // Instructions a thread for each byte of its codes, for as many query heads as one pass serves.
  double issued = 0;  // of all kinds
  double alu = 0, fma = 0, half2 = 0, xu = 0, shared = 0;
  // Query heads of one pass. For each one more a kernel on CUDA cores needs at least another
  // product of each pair of codes, which is all that is added here; one on tensor cores makes
  // another pass.
  int q_heads = 1;
  bool on_tensor_cores = false;

  // Instead of counts, of one device: the rate at which pages (with metadata) are worked through
  // when they come from its caches. 0: counts are given.
  double cached_bytes_per_s = 0;
};

// kvant's kernels for heads of 128 channels, as kvant meter counts them (a test holds both
// together): "core" without and "tensor" with matrix instructions, whole attention loops, and
// "naive" as the counter-example, a loop over K alone. Once a format; for the target's own machine
// code where that was counted, otherwise for the nearest older one.
std::vector<KernelCost> KernelCosts(int target);

// The weights of a model. 0 bytes: the step is attention alone.
struct WeightCost {
  double bytes = 0;
  double parameters = 0;  // that take part in a product for each token; 0: their arithmetic is free
};

enum class Bound { kWeightStream, kWeightProducts, kKvStream, kKvInstructions, kKvProducts };
std::string_view BoundName(Bound bound);  // "weights, memory", ...

// What the instructions of one byte of codes need, by pipe, as a part of the time in which the
// device reads that byte: above 1 the pipe binds.
struct PipeLoad {
  std::string pipe;  // the busiest: "issue", "ALU", "FMA", "half2", "XU", "shared memory"
  double load = 0;
};
// `group_ratio` query heads a KV head. REQUIRES: device.multiprocessors > 0, counts are given.
PipeLoad BusiestPipe(const Device& device, const KernelCost& kernel, int group_ratio);

struct StepTime {
  double weight_ms = 0;            // read or multiplied, whichever takes longer
  double kv_read_ms = 0;           // codes and metadata
  double kv_compute_ms = 0;        // instructions, or matrix products where these take longer
  double kv_ms = 0;                // both, overlapped as the device does
  double total_ms = 0;             // weight_ms + kv_ms: attention and products take turns
  Bound bound = Bound::kKvStream;  // of the larger part, what it waits for
  std::string pipe;                // of kKvInstructions: the busiest pipe

  // Where KV takes as long as the weights, at this batch and at this context; 0: no weights.
  double equal_context_tokens = 0;
  double equal_batch = 0;
  // Sequences from which on products with weights take longer than reading these; 0: unknown.
  double weight_ridge_batch = 0;
};

// The step of `e` (pages alone, no window) by a kernel of the formats' widths. A device without a
// known instruction rate needs a kernel with a rate of its own.
// kInvalidArgument where the kernel has another width than the formats' K, or counts meet a device
// without a rate.
Result<StepTime> TimeOfStep(const KvExplanation& e, const KernelCost& kernel,
                            const WeightCost& weights);

// One measured step of docs/performance.md, and what it was measured with.
struct MeasuredStep {
  std::string cache;       // preset
  int64_t context_tokens;  // depth
  double measured_ms;
  double predicted_ms;
};

// SmolLM2-135M on the two-core Zen 4 machine of docs/performance.md: its steps, beside what this
// model says from figures that were measured apart from them (pages from cache, a plain read, one
// step without a context).
std::vector<MeasuredStep> CheckAgainstMeasuredSteps();

}  // namespace kvant
