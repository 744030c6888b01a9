#include "policy/free_ring.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvant {

FreeRing::FreeRing(int32_t pages, int32_t first)
    : ring_(static_cast<size_t>(pages)), start_(first), free_(pages) {
  std::iota(ring_.begin(), ring_.end(), 0);
}

bool FreeRing::Take(std::span<const int32_t> wanted, ThreadPool& pool, std::span<int32_t> taken) {
  std::vector<int64_t> before(wanted.size());  // pages of the heads before
  std::exclusive_scan(wanted.begin(), wanted.end(), before.begin(), int64_t{0});
  const int64_t all = wanted.empty() ? 0 : before.back() + wanted.back();
  if (all > free_) return false;
  pool.ParallelFor(static_cast<int64_t>(wanted.size()), [&](int64_t begin, int64_t end) {
    for (auto h = static_cast<size_t>(begin); h < static_cast<size_t>(end); ++h) {
      for (int64_t i = before[h]; i < before[h] + wanted[h]; ++i) {
        taken[static_cast<size_t>(i)] = ring_[static_cast<size_t>((start_ + i) % total_pages())];
      }
    }
  });
  if (all > 0) start_ = (start_ + all) % total_pages();
  free_ -= static_cast<int32_t>(all);
  return true;
}

void FreeRing::Give(std::span<const int32_t> pages) {
  for (const int32_t page : pages) {
    ring_[static_cast<size_t>((start_ + free_) % total_pages())] = page;
    ++free_;
  }
}

void PartRow(int32_t taken, const PageRow& row, FreeRing* ring) {
  const auto used = static_cast<size_t>(row.wide + row.narrow);
  ring->Give(row.pages.subspan(used, static_cast<size_t>(taken) - used));
  // The first of the narrow ones ends outermost. A swap of the whole rest works where the two
  // places of the narrow ones overlap too.
  const auto narrow = row.pages.subspan(static_cast<size_t>(row.wide));
  std::reverse(narrow.begin(), narrow.end());
}

}  // namespace kvant
