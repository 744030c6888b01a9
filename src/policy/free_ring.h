// A ring of free pages that many heads take from at once (DiffKV, arXiv 2412.03131): what each head
// wants is known first, the exclusive prefix sum of the wants says where in the ring its pages lie,
// and then no head waits for another. Taking moves the ring's start, giving back its end.
//
// Thread rules: one caller at a time; Take spreads its copies over the caller's pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace kvant {

class FreeRing {
 public:
  // Pages 0 .. pages - 1, all free; the first to be taken is `first`.
  explicit FreeRing(int32_t pages, int32_t first = 0);

  int32_t free_pages() const { return free_; }
  int32_t total_pages() const { return static_cast<int32_t>(ring_.size()); }

  // wanted [heads]: pages for each, 0 or more. taken [sum of wanted]: head after head. False where
  // there are not as many: nothing has changed then.
  [[nodiscard]] bool Take(std::span<const int32_t> wanted, ThreadPool& pool,
                          std::span<int32_t> taken);

  // REQUIRES: pages that were taken, each once.
  void Give(std::span<const int32_t> pages);

 private:
  std::vector<int32_t> ring_;
  int64_t start_ = 0;  // of the free ones, modulo the ring
  int32_t free_ = 0;
};

// Pages of one head in a row of fixed length: the wide pool's grow from the left, the narrow pool's
// from the right end leftwards.
struct PageRow {
  std::span<int32_t> pages;
  int32_t wide = 0, narrow = 0;
};

// Parts what a prompt was written to. Before it is known how many tokens stay wide, a head takes
// `taken` pages from the left on: the wide ones, behind them the narrow ones, at last those that
// were not needed. The latter go back to the ring, and only then do the narrow ones move to the
// right end, the first one outermost: moving first would write over what is still to be given back.
// REQUIRES: wide + narrow <= taken <= pages.size().
void PartRow(int32_t taken, const PageRow& row, FreeRing* ring);

}  // namespace kvant
