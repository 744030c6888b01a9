#include "ptx/device_memory.h"

#include <utility>

namespace kvant::ptx {
namespace {

constexpr int kSpacingBits = 40;

// Device addresses begin in the middle of their spacing, so that small negative offsets are caught
// as belonging to this allocation.
constexpr uint64_t kStart = uint64_t{1} << (kSpacingBits - 1);

}  // namespace

uint64_t DeviceMemory::AddRegion(std::string name, std::span<std::byte> bytes,
                                 Region::Options options) {
  options.is_metered = true;
  regions_.emplace_back(std::move(name), bytes, options);
  return (static_cast<uint64_t>(regions_.size()) << kSpacingBits) + kStart;
}

uint64_t DeviceMemory::AddInput(std::string name, std::span<const std::byte> bytes) {
  auto* data = const_cast<std::byte*>(bytes.data());  // a read-only region never writes to it
  return AddRegion(std::move(name), {data, bytes.size()}, {.is_read_only = true});
}
uint64_t DeviceMemory::Add(std::string name, std::span<std::byte> bytes) {
  return AddRegion(std::move(name), bytes, {});
}
uint64_t DeviceMemory::AddUndefined(std::string name, std::span<std::byte> bytes) {
  return AddRegion(std::move(name), bytes, {.is_undefined = true});
}

Region* DeviceMemory::Find(uint64_t address, uint64_t* offset) {
  const uint64_t index = (address >> kSpacingBits) - 1;
  if (index >= regions_.size()) return nullptr;
  *offset = address - ((index + 1) << kSpacingBits) - kStart;
  return &regions_[index];
}

}  // namespace kvant::ptx
