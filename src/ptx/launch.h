// What all blocks of one launch share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/device_memory.h"
#include "ptx/module.h"
#include "ptx/traffic.h"

namespace kvant::ptx {

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;

  uint64_t count() const { return uint64_t{x} * y * z; }
};

// The order in which warps, and the lanes of a warp, take turns. A correct kernel gives the same
// bytes in each, unless it adds floats atomically.
struct Schedule {
  enum class Warps : uint8_t {
    kRoundRobin,  // one instruction each
    kRandom,      // some instructions of a random warp; blocks in random order
    kRunAhead,    // warp (seed) runs until it must wait, then the next one
  };
  Warps warps = Warps::kRoundRobin;
  uint64_t seed = 0;
  // Lanes run to their next meeting one by one, as independent threads may: shows a missing
  // __syncwarp. Requests and issued instructions are then counted by lane.
  bool lanes_apart = false;
};

struct Launch {
  const Kernel& kernel;
  Dim3 grid;
  Dim3 block;
  uint64_t dynamic_shared_bytes = 0;
  Schedule schedule;
  DeviceMemory& memory;
  Region params;
  Region constants;
  Region globals;  // the module's own .global variables

  uint64_t max_issued = 0;
  std::vector<uint64_t> issued;  // [kernel.code.size()]: how often each was issued, by warp
  uint64_t issued_total = 0;
  SharedTraffic shared_loads;
  std::string fault;  // the first one; empty while all is well

  bool failed() const { return !fault.empty(); }
};

}  // namespace kvant::ptx
