#include "cache/page_arena.h"

#include <algorithm>
#include <cassert>
#include <functional>

#include "base/huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace kvant {
namespace {

// The system takes back whole pages of its own inside the range.
void ReturnToSystem(std::byte* data, int64_t bytes) {
#if defined(__linux__)
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t address = reinterpret_cast<size_t>(data);
  const size_t begin = RoundUp(address, page_bytes);
  const size_t end = (address + static_cast<size_t>(bytes)) / page_bytes * page_bytes;
  if (begin < end) madvise(data + (begin - address), end - begin, MADV_DONTNEED);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace

Result<std::byte*> PageArena::Take(int64_t bytes) {
  if (blocks_.empty() ||
      static_cast<int64_t>(blocks_.back().memory.bytes()) - blocks_.back().cut_bytes < bytes) {
    // Grows with the pool, so that a small one does not hold address space it never needs.
    const int64_t wanted = std::max(bytes, std::min(2 * taken_bytes_, kMaxBlockBytes));
    const auto create = [](int64_t block_bytes) {
      const bool large = block_bytes >= static_cast<int64_t>(kHugePageBytes);
      return AlignedBuffer::Create(static_cast<size_t>(block_bytes),
                                   large ? kHugePageBytes : kAlignment);
    };
    Result<AlignedBuffer> memory = create(wanted);
    // Where address space is short, what is needed may still fit.
    if (!memory.ok() && wanted > bytes) memory = create(bytes);
    if (!memory.ok()) return memory.status();
    blocks_.push_back({std::move(*memory), 0, 0, 0});
  }
  Block& block = blocks_.back();
  std::byte* const data = block.memory.data() + block.cut_bytes;
  block.cut_bytes += bytes;
  block.live_bytes += bytes;
  taken_bytes_ += bytes;
  // Only what is complete: a huge page that is begun would be resident as a whole.
  constexpr int64_t kHuge = static_cast<int64_t>(kHugePageBytes);
  const int64_t complete = block.cut_bytes / kHuge * kHuge;
  if (complete > block.advised_bytes) {
    AdviseHugePages(block.memory.data() + block.advised_bytes,
                    static_cast<size_t>(complete - block.advised_bytes));
    block.advised_bytes = complete;
  }
  return data;
}

void PageArena::Give(std::byte* data, int64_t bytes) {
  const std::less<const std::byte*> before;
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](Block& b) {
    return !before(data, b.memory.data()) && before(data, b.memory.data() + b.memory.bytes());
  });
  assert(block != blocks_.end() && block->live_bytes >= bytes);
  taken_bytes_ -= bytes;
  block->live_bytes -= bytes;
  if (block->live_bytes == 0) {
    blocks_.erase(block);
  } else {
    ReturnToSystem(data, bytes);
  }
}

}  // namespace kvant
