// A piece of memory that a kernel may touch, and what it may do there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ptx/traffic.h"

namespace kvant::ptx {

class Region {
 public:
  struct Options {
    bool is_read_only = false;
    bool is_undefined = false;  // a byte must be written before it is read
    bool is_metered = false;
  };

  // `bytes` must outlive the region.
  Region(std::string name, std::span<std::byte> bytes, Options options);

  // What is wrong with touching `bytes` bytes at `offset`, or nothing. Alignment is that of offset,
  // since every region starts at a multiple of 256.
  std::optional<std::string> CheckRead(uint64_t offset, uint64_t bytes) const;
  std::optional<std::string> CheckWrite(uint64_t offset, uint64_t bytes) const;

  // REQUIRES: the check above passed.
  void Read(uint64_t offset, std::span<std::byte> out) const;
  void Write(uint64_t offset, std::span<const std::byte> in);
  // The bytes count as never written.
  void Poison(uint64_t offset, uint64_t bytes);

  const std::string& name() const { return name_; }
  // Null unless metered.
  TrafficMeter* loads() { return loads_ ? &*loads_ : nullptr; }
  TrafficMeter* stores() { return stores_ ? &*stores_ : nullptr; }

 private:
  std::optional<std::string> CheckRange(const char* verb, uint64_t offset, uint64_t bytes) const;

  std::string name_;
  std::span<std::byte> bytes_;
  Options options_;
  std::vector<bool> defined_;  // [bytes], or empty when all are
  std::optional<TrafficMeter> loads_;
  std::optional<TrafficMeter> stores_;
};

}  // namespace kvant::ptx
