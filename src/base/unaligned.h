// Numbers in memory that need not be aligned. Not for per-ISA files: the linker could keep their
// copies for every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvant {

inline uint16_t LoadU16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline void StoreU16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof value); }

}  // namespace kvant
