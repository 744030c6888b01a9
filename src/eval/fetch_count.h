// FetchCount: which lines and sectors a reader touches, counted, not estimated.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/view.h"

namespace kvant {

struct FetchedBytes {
  int64_t read = 0;        // asked for
  int64_t in_lines = 0;    // in distinct lines of 64 bytes
  int64_t in_sectors = 0;  // in distinct sectors of 32 bytes
};

class FetchCount {
 public:
  // [address, address + bytes), in any order and as often as liked.
  void Read(uint64_t address, int64_t bytes);
  // What the kernels read of a run: the list of its pages, and of these every coded page as a whole
  // or the visible tokens of float pages.
  void ReadRun(const Run& run);

  FetchedBytes Total();

 private:
  std::vector<uint64_t> sectors_;
  int64_t read_bytes_ = 0;
};

}  // namespace kvant
