// One block: its warps, their turns, its shared memory and barriers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "ptx/race_check.h"
#include "ptx/warp.h"

namespace kvant::ptx {

class Block {
 public:
  // `launch` must outlive the block.
  Block(Launch* launch, Dim3 index);

  // Runs every thread to its end, or until launch->failed().
  void Run();

  Region& shared() { return shared_; }
  // Null for kernels whose barriers are of some warps only, which it does not understand.
  RaceCheck* races() { return races_ ? &*races_ : nullptr; }
  Dim3 index() const { return index_; }

 private:
  Warp* NextWarp();
  void ReleaseBarriers();
  void ReportDeadlock();

  Launch& launch_;
  Dim3 index_;
  std::vector<std::byte> shared_bytes_;
  Region shared_;
  std::optional<RaceCheck> races_;
  std::vector<Warp> warps_;
  size_t turn_ = 0;
  uint64_t turn_left_ = 0;
  std::mt19937_64 random_;
};

}  // namespace kvant::ptx
