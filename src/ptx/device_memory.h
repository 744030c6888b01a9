// The global memory of a launch: allocations with device addresses, held in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "ptx/region.h"

namespace kvant::ptx {

// Allocations lie far apart, so that an address outside of one is outside of all. Not thread-safe;
// counts traffic from its creation on.
class DeviceMemory {
 public:
  // Each gives the address to pass to a kernel, a multiple of 256; `bytes` must outlive this
  // object.
  uint64_t AddInput(std::string name, std::span<const std::byte> bytes);
  uint64_t Add(std::string name, std::span<std::byte> bytes);
  // For what a kernel must write before it, or anybody, reads.
  uint64_t AddUndefined(std::string name, std::span<std::byte> bytes);

  // The allocation that an address points into, or past by less than the distance to the next one,
  // and the offset there; null for an address that belongs to none.
  Region* Find(uint64_t address, uint64_t* offset);

  std::deque<Region>& regions() { return regions_; }

 private:
  uint64_t AddRegion(std::string name, std::span<std::byte> bytes, Region::Options options);

  std::deque<Region> regions_;  // region i starts at (i + 1) << kSpacingBits
};

}  // namespace kvant::ptx
