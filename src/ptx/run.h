// Runs a kernel of a PTX text on the host: every thread, checked, and counted.
//
// What is checked: bounds and alignment of every access, reads of registers, shared or local memory
// that nothing was written to, races on shared memory, divergence at what a warp or block does
// together, deadlock. The first fault ends the run and names the line. What is not modelled: ptxas
// (which may fuse a multiply and an add), the devices' own last bits of .approx functions and
// tensor core sums, and memory that is seen late by other threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvant/status.h"
#include "ptx/device_memory.h"
#include "ptx/launch.h"
#include "ptx/module.h"

namespace kvant::ptx {

struct RunOptions {
  Dim3 grid = {};
  Dim3 block = {};
  uint64_t dynamic_shared_bytes = 0;
  Schedule schedule = {};
  // A run that issues more than this many warp instructions is given up.
  uint64_t max_issued = 100'000'000;
};

struct AllocationTraffic {
  std::string name;
  Traffic loads;
  Traffic stores;
};

// Of one run.
struct Counts {
  uint64_t issued = 0;                         // warp instructions
  std::map<std::string, uint64_t> by_opcode;   // of them, by opcode as written
  std::vector<AllocationTraffic> allocations;  // in the order in which they were added
  SharedTraffic shared_loads;
};

// `params`: the kernel's parameters as it declares them, in one piece (a struct passed by value is
// its own bytes). kCorrupt for a fault of the kernel, kInvalidArgument for a launch that no device
// would take.
Result<Counts> RunKernel(const PtxModule& module, const Kernel& kernel,
                         std::span<const std::byte> params, DeviceMemory* memory,
                         const RunOptions& options);

}  // namespace kvant::ptx
