#include "ptx/run.h"

#include <algorithm>
#include <random>

#include "ptx/block.h"

namespace kvant::ptx {
namespace {

constexpr uint64_t kMostBlockThreads = 1024;
constexpr uint64_t kMostSharedBytes = 227 * 1024;  // of sm_90 and sm_100; others have less

Status CheckLaunch(const Kernel& kernel, std::span<const std::byte> params,
                   const RunOptions& options) {
  const std::string name = "kernel '" + kernel.name + "'";
  const uint64_t threads = options.block.count();
  const uint64_t most = kernel.max_threads != 0 ? kernel.max_threads : kMostBlockThreads;
  if (params.size() != kernel.param_bytes) {
    return Status::InvalidArgument(name + " takes " + std::to_string(kernel.param_bytes) +
                                   " bytes of parameters, not " + std::to_string(params.size()));
  }
  if (threads == 0 || threads > most || options.grid.count() == 0) {
    return Status::InvalidArgument(name + " takes blocks of 1 to " + std::to_string(most) +
                                   " threads, not " + std::to_string(threads));
  }
  const uint64_t shared_bytes = kernel.dynamic_shared_offset() + options.dynamic_shared_bytes;
  if (shared_bytes > kMostSharedBytes) {
    return Status::InvalidArgument(name + " asks for " + std::to_string(shared_bytes) +
                                   " bytes of shared memory");
  }
  return Status::Ok();
}

std::vector<std::byte> Image(const PtxModule& module, Space space, uint64_t bytes) {
  std::vector<std::byte> image(bytes);
  for (const Variable& variable : module.variables) {
    if (variable.space != space) continue;
    std::copy(variable.initial.begin(), variable.initial.end(),
              image.begin() + static_cast<ptrdiff_t>(variable.offset));
  }
  return image;
}

std::vector<uint64_t> BlockOrder(const RunOptions& options) {
  std::vector<uint64_t> order(options.grid.count());
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i;
  if (options.schedule.warps == Schedule::Warps::kRandom) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(options.schedule.seed));
  }
  return order;
}

Counts CountsOf(const Launch& launch) {
  Counts counts;
  counts.issued = launch.issued_total;
  counts.shared_loads = launch.shared_loads;
  for (size_t i = 0; i < launch.issued.size(); ++i) {
    if (launch.issued[i] != 0) counts.by_opcode[launch.kernel.code[i].name] += launch.issued[i];
  }
  for (Region& region : launch.memory.regions()) {
    counts.allocations.push_back(
        {region.name(), region.loads()->Total(), region.stores()->Total()});
  }
  return counts;
}

}  // namespace

Result<Counts> RunKernel(const PtxModule& module, const Kernel& kernel,
                         std::span<const std::byte> params, DeviceMemory* memory,
                         const RunOptions& options) {
  KVANT_RETURN_IF_ERROR(CheckLaunch(kernel, params, options));
  std::vector<std::byte> param_bytes(params.begin(), params.end());
  std::vector<std::byte> const_bytes = Image(module, Space::kConst, module.const_bytes);
  std::vector<std::byte> global_bytes = Image(module, Space::kGlobal, module.global_bytes);
  Launch launch{
      .kernel = kernel,
      .grid = options.grid,
      .block = options.block,
      .dynamic_shared_bytes = options.dynamic_shared_bytes,
      .schedule = options.schedule,
      .memory = *memory,
      .params = Region("the parameters", param_bytes, {.is_read_only = true}),
      .constants = Region("constant memory", const_bytes, {.is_read_only = true}),
      .globals = Region("the module's variables", global_bytes, {}),
      .max_issued = options.max_issued,
      .issued = std::vector<uint64_t>(kernel.code.size()),
      .shared_loads = {},
      .fault = {},
  };
  const Dim3& grid = options.grid;
  for (const uint64_t i : BlockOrder(options)) {
    const Dim3 index{static_cast<uint32_t>(i % grid.x), static_cast<uint32_t>(i / grid.x % grid.y),
                     static_cast<uint32_t>(i / grid.x / grid.y)};
    Block(&launch, index).Run();
    if (launch.failed()) return Status::Corrupt(launch.fault);
  }
  return CountsOf(launch);
}

}  // namespace kvant::ptx
