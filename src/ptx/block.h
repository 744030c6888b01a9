// One block: its warps, their turns, its shared memory and barriers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ptx/warp.h"

namespace kvant::ptx {

class Block {
 public:
  // `launch` must outlive the block.
  Block(Launch* launch, Dim3 index);

  // Runs every thread to its end, or until launch->failed().
  void Run();

  Region& shared() { return shared_; }
  Dim3 index() const { return index_; }

 private:
  Warp* NextWarp();
  void ReleaseBarriers();
  void ReportDeadlock();

  Launch& launch_;
  Dim3 index_;
  std::vector<std::byte> shared_bytes_;
  Region shared_;
  std::vector<Warp> warps_;
  size_t turn_ = 0;
  uint64_t turn_left_ = 0;
  std::mt19937_64 random_;
};

}  // namespace kvant::ptx
