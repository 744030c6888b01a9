// PageArena: where the slabs of one pool lie. Slabs follow each other in a few large blocks of
// address space, so that huge pages form across their borders: a slab of 3 MB alone holds one at
// most. Only what a slab covers is touched by kvant, and what is given back is returned to the
// system at once: the address space of a block is not memory.
//
// Thread rules: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "kvant/status.h"

namespace kvant {

class PageArena {
 public:
  static constexpr int64_t kMaxBlockBytes = int64_t{64} << 20;

  // bytes: a multiple of 64. The memory is 64-byte aligned, its contents undefined.
  Result<std::byte*> Take(int64_t bytes);
  // What one Take gave.
  void Give(std::byte* data, int64_t bytes);

  int64_t taken_bytes() const { return taken_bytes_; }
  size_t blocks() const { return blocks_.size(); }

 private:
  struct Block {
    AlignedBuffer memory;
    int64_t cut_bytes = 0;      // everything before it was given out
    int64_t live_bytes = 0;     // of them not yet given back
    int64_t advised_bytes = 0;  // huge pages were asked for up to here
  };

  std::vector<Block> blocks_;  // slabs are cut from the last one
  int64_t taken_bytes_ = 0;
};

}  // namespace kvant
