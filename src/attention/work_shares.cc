#include "attention/work_shares.h"

namespace kvant {

void WorkShares::Cut(std::span<const int64_t> costs, int threads) {
  threads_ = threads;
  if (shares_.size() < static_cast<size_t>(threads)) {
    shares_ = std::vector<Share>(static_cast<size_t>(threads));
  }
  int64_t total = 0;
  for (int64_t cost : costs) total += cost;
  const int count = static_cast<int>(costs.size());
  int64_t before = 0;
  int item = 0;
  for (int t = 0; t < threads; ++t) {
    const int begin = item;
    // An item belongs where its middle lies.
    const int64_t stop = total / threads * (t + 1);
    while (item < count &&
           (t + 1 == threads || before + costs[static_cast<size_t>(item)] / 2 < stop)) {
      before += costs[static_cast<size_t>(item++)];
    }
    shares_[static_cast<size_t>(t)].whole = Range(begin, item);
  }
  Restart();
}

void WorkShares::Restart() {
  for (int t = 0; t < threads_; ++t) {
    Share& share = shares_[static_cast<size_t>(t)];
    share.left.store(share.whole, std::memory_order_relaxed);
  }
}

int WorkShares::Take(int thread) {
  // Nothing but the range itself is handed over, so relaxed order will do.
  constexpr auto kRelaxed = std::memory_order_relaxed;
  for (int i = 0; i < threads_; ++i) {
    const bool own = i == 0;
    std::atomic<uint64_t>& left = shares_[static_cast<size_t>((thread + i) % threads_)].left;
    for (uint64_t range = left.load(kRelaxed); Begin(range) < End(range);) {
      const int begin = Begin(range), end = End(range);
      const uint64_t rest = own ? Range(begin + 1, end) : Range(begin, end - 1);
      if (left.compare_exchange_weak(range, rest, kRelaxed)) return own ? begin : end - 1;
    }
  }
  return -1;
}

int WorkShares::Peek(int thread) const {
  const uint64_t range = shares_[static_cast<size_t>(thread)].left.load(std::memory_order_relaxed);
  return Begin(range) < End(range) ? Begin(range) : -1;
}

}  // namespace kvant
