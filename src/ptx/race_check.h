// Races of warps on shared memory: two of them touch a byte, at least one writes, and no barrier of
// the whole block lies between. Found in any order of warps, unlike a wrong result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvant::ptx {

class RaceCheck {
 public:
  explicit RaceCheck(uint64_t bytes) : bytes_(bytes) {}

  // Notes that warp `warp` (of at most 32) touches a range, and says what it races with, if
  // anything.
  std::optional<std::string> Read(int warp, uint64_t offset, uint64_t bytes);
  std::optional<std::string> Write(int warp, uint64_t offset, uint64_t bytes);

  // All threads have met: what came before is ordered before what comes.
  void Barrier() { ++epoch_; }

 private:
  struct Byte {
    uint32_t write_epoch = 0;
    uint32_t read_epoch = 0;
    int writer = 0;
    uint32_t readers = 0;  // of read_epoch
  };

  std::vector<Byte> bytes_;
  uint32_t epoch_ = 1;
};

}  // namespace kvant::ptx
