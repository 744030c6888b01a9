#include "kvant/regime.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

// Of K and V, one instruction multiplies two values by one query head.
double ProductsPerByte(const KernelCost& kernel) {
  return 8.0 / (kernel.bits + (kernel.v_bits > 0 ? kernel.v_bits : kernel.bits));
}

double PassesOf(const KernelCost& kernel, int group_ratio) {
  return kernel.on_tensor_cores ? std::ceil(static_cast<double>(group_ratio) / kernel.q_heads) : 1;
}

// What more query heads than one pass serves add to the products of each byte.
double MoreProducts(const KernelCost& kernel, int group_ratio) {
  if (kernel.on_tensor_cores) return 0;
  return std::max(0, group_ratio - kernel.q_heads) * ProductsPerByte(kernel);
}

double Overlapped(double a, double b, double power) {
  if (power == 0) return std::max(a, b);
  return std::pow(std::pow(a, power) + std::pow(b, power), 1 / power);
}

double CodeBytes(const KvExplanation& e) {
  return static_cast<double>(e.kv.read_bytes) * e.kv.code_bytes_per_token / e.kv.bytes_per_token;
}

int KernelBits(const KvExplanation& e) { return e.spec.k.bits; }

// Sets the KV part; says whether instructions or matrix products are the longer part of computing.
Status SetKv(const KvExplanation& e, const KernelCost& kernel, StepTime* time, bool* products) {
  const Device& device = e.device;
  time->kv_read_ms = e.kv.stream_ms;
  double instructions_ms = 0;
  if (kernel.cached_bytes_per_s > 0) {
    instructions_ms = 1e3 * static_cast<double>(e.kv.read_bytes) / kernel.cached_bytes_per_s;
    time->pipe = "vector units";
  } else if (device.multiprocessors > 0) {
    const PipeLoad busiest = BusiestPipe(device, kernel, e.geometry.group_ratio());
    instructions_ms = 1e3 * busiest.load * CodeBytes(e) / device.read_bytes_per_s;
    time->pipe = busiest.pipe;
  } else {
    return Status::InvalidArgument("the instruction rate of " + device.title + " is not known");
  }
  // Matrix instructions calculate all their columns, whatever the heads need.
  const int group_ratio = e.geometry.group_ratio();
  const double columns = PassesOf(kernel, group_ratio) * kernel.q_heads / group_ratio;
  const double products_ms = kernel.on_tensor_cores ? columns * e.compute_ms : 0;
  *products = products_ms > instructions_ms;
  time->kv_compute_ms = std::max(products_ms, instructions_ms);
  time->kv_ms = Overlapped(time->kv_read_ms, time->kv_compute_ms, device.overlap_power);
  return Status::Ok();
}

// Says whether products take longer than reading.
bool SetWeights(const KvExplanation& e, const WeightCost& weights, StepTime* time) {
  const Device& device = e.device;
  const double rate =
      device.weight_bytes_per_s > 0 ? device.weight_bytes_per_s : device.read_bytes_per_s;
  const double read_ms = 1e3 * weights.bytes / rate;
  double products_ms = 0;
  if (device.matrix_flops_per_s > 0) {
    const double one_ms = 2e3 * weights.parameters / device.matrix_flops_per_s;
    products_ms = one_ms * static_cast<double>(e.batch);
    if (one_ms > 0) time->weight_ridge_batch = read_ms / one_ms;
  }
  time->weight_ms = std::max(read_ms, products_ms);
  return products_ms > read_ms;
}

}  // namespace

std::string_view BoundName(Bound bound) {
  switch (bound) {
    case Bound::kWeightStream:
      return "reading weights";
    case Bound::kWeightProducts:
      return "products with weights";
    case Bound::kKvStream:
      return "reading KV";
    case Bound::kKvInstructions:
      return "instructions over KV";
    default:
      return "products with KV";
  }
}

PipeLoad BusiestPipe(const Device& device, const KernelCost& kernel, int group_ratio) {
  const PipeLanes lanes = LanesOf(device.target);
  const double passes = PassesOf(kernel, group_ratio), more = MoreProducts(kernel, group_ratio);
  const struct {
    const char* name;
    double count;
    int lanes;
  } pipes[] = {{"issue", kernel.issued + more, lanes.issue},
               {"ALU", kernel.alu, lanes.alu},
               {"FMA", kernel.fma, lanes.fma},
               {"half2", kernel.half2 + more, lanes.half2},
               {"XU", kernel.xu, lanes.xu},
               {"shared memory", kernel.shared, lanes.shared}};
  PipeLoad busiest;
  for (const auto& pipe : pipes) {
    const double load = passes * pipe.count / device.BudgetPerByte(pipe.lanes);
    if (load > busiest.load) busiest = {pipe.name, load};
  }
  return busiest;
}

Result<StepTime> TimeOfStep(const KvExplanation& e, const KernelCost& kernel,
                            const WeightCost& weights) {
  if (kernel.bits != KernelBits(e)) {
    return Status::InvalidArgument("a kernel of " + std::to_string(kernel.bits) +
                                   " bits cannot read keys of " + std::to_string(KernelBits(e)));
  }
  StepTime time;
  bool kv_products = false;
  KVANT_RETURN_IF_ERROR(SetKv(e, kernel, &time, &kv_products));
  const bool weight_products = SetWeights(e, weights, &time);
  time.total_ms = time.weight_ms + time.kv_ms;
  if (time.weight_ms > time.kv_ms) {
    time.bound = weight_products ? Bound::kWeightProducts : Bound::kWeightStream;
  } else if (time.kv_compute_ms > time.kv_read_ms) {
    time.bound = kv_products ? Bound::kKvProducts : Bound::kKvInstructions;
  }
  if (time.weight_ms > 0 && time.kv_ms > 0) {
    time.equal_context_tokens = static_cast<double>(e.context_tokens) * time.weight_ms / time.kv_ms;
    time.equal_batch = static_cast<double>(e.batch) * time.weight_ms / time.kv_ms;
  }
  return time;
}

}  // namespace kvant
