// Figures of docs/performance.md, machine "AMD EPYC (Zen 4), two cores", SmolLM2-135M: what the
// model is given, and the steps that it is held against.
#include <string>

#include "kvant/regime.h"

namespace kvant {
namespace {

constexpr KvGeometry kSmolLm2{30, 3, 64, 9};
constexpr double kWeightBytes = 98362432;  // the file
constexpr int kCores = 2;

// "What memory costs that arithmetic does not hide": one core, a page of 64 tokens from cache.
constexpr struct {
  const char* cache;
  double page_ns;
} kCachedPages[] = {{"f16", 623}, {"int8", 287}, {"plain4", 252}, {"plain2", 351}};

// The same table's column "from memory" is 623 -> 846, 287 -> 373, 252 -> 289 and 351 -> 388 where
// a core reads 38 GB/s; 1.5 gives 841, 408, 305 and 376.
constexpr double kOverlapPower = 1.5;

// 44 GB/s to two cores in the run of the attention table (its rates over its percentages). A step
// at a depth of 128 takes 4.27 ms, .03 of it attention.
constexpr double kReadBytesPerS = 44e9, kEmptyStepMs = 4.24;

constexpr struct {
  const char* cache;
  int64_t context_tokens;
  double measured_ms;
} kSteps[] = {
    // Tables of peers: the first run's, then the second run's of the same hour.
    {"plain4", 1024, 5.27}, {"plain4", 8192, 6.84}, {"f16", 1024, 5.66}, {"f16", 8192, 10.82},
    {"plain4", 1024, 4.10}, {"int8", 1024, 4.30},   {"f16", 1024, 5.47},
};

Device Machine() {
  Device device;
  device.name = "zen4";
  device.title = "AMD EPYC (Zen 4), two cores";
  device.source = "docs/performance.md";
  device.read_bytes_per_s = kReadBytesPerS;
  device.overlap_power = kOverlapPower;
  device.weight_bytes_per_s = kWeightBytes / (kEmptyStepMs / 1e3);
  return device;
}

double PredictedMs(const char* cache, int64_t context_tokens) {
  const KvSpec spec = ParseKvPreset(cache).value();
  const KvExplanation e = ExplainKv(kSmolLm2, spec, context_tokens, 1, Machine()).value();
  KernelCost kernel;
  kernel.bits = spec.k.bits;
  for (const auto& page : kCachedPages) {
    const double page_bytes =
        e.kv.bytes_per_token * e.page_tokens / (kSmolLm2.layers * kSmolLm2.kv_heads);
    if (std::string(page.cache) == cache) {
      kernel.cached_bytes_per_s = kCores * page_bytes / (page.page_ns / 1e9);
    }
  }
  return TimeOfStep(e, kernel, {.bytes = kWeightBytes}).value().total_ms;
}

}  // namespace

std::vector<MeasuredStep> CheckAgainstMeasuredSteps() {
  std::vector<MeasuredStep> steps;
  for (const auto& step : kSteps) {
    steps.push_back({step.cache, step.context_tokens, step.measured_ms,
                     PredictedMs(step.cache, step.context_tokens)});
  }
  return steps;
}

}  // namespace kvant
