// Pages of a pool that nobody holds: a circular list, from which all rows take and to which all
// give back in one launch, without locks: a prefix sum of what the rows want tells each where its
// own begins (the compaction of DiffKV, arXiv 2412.03131). Giving back before taking lets a row's
// pages serve another in the same step.
#pragma once

#include "cuda/arguments.h"
#include "cuda/isa.h"

namespace kvant::cuda {

// Exclusive prefix sum of one value a thread over the block; *total: of all. scratch
// [kBlockThreads], shared.
KVANT_DEVICE int PrefixSum(int value, int* scratch, int* total) {
  const int thread = ThreadIndex();
  scratch[thread] = value;
  SyncThreads();
  KVANT_LOOP
  for (int distance = 1; distance < kBlockThreads; distance *= 2) {
    const int before = thread >= distance ? scratch[thread - distance] : 0;
    SyncThreads();
    scratch[thread] += before;
    SyncThreads();
  }
  *total = scratch[kBlockThreads - 1];
  const int inclusive = scratch[thread];
  SyncThreads();  // the next call writes scratch
  return inclusive - value;
}

// One block. take: counts[row] pages from the list's front to pages[row]; otherwise from pages[row]
// to its end. Where the list does not hold (or has no room for) all of them, nothing moves and
// state[2] says how many are lacking.
KVANT_DEVICE void MovePages(const FreeListArguments& args, bool take) {
  KVANT_SHARED(int, scratch, kBlockThreads);
  const int start = args.state[0], count = args.state[1];
  int total = 0;
  for (int base = 0; base < args.rows; base += kBlockThreads) {
    const int row = base + ThreadIndex();
    int chunk;
    PrefixSum(row < args.rows ? args.counts[row] : 0, scratch, &chunk);
    total += chunk;
  }
  const int lacking = total - (take ? count : args.capacity - count);
  SyncThreads();  // everybody has read the state
  int before = 0;
  for (int base = 0; base < args.rows && lacking <= 0; base += kBlockThreads) {
    const int row = base + ThreadIndex(), own = row < args.rows ? args.counts[row] : 0;
    int chunk;
    const int prefix = before + PrefixSum(own, scratch, &chunk);
    before += chunk;
    for (int i = 0; i < own; ++i) {
      uint32_t& page = args.pages[static_cast<int64_t>(row) * args.pages_stride + i];
      uint32_t& place = args.free_pages[(start + (take ? 0 : count) + prefix + i) % args.capacity];
      if (take) {
        page = place;
      } else {
        place = page;
      }
    }
  }
  if (ThreadIndex() != 0) return;
  args.state[2] = lacking > 0 ? lacking : 0;
  if (lacking > 0) return;
  args.state[0] = take ? (start + total) % args.capacity : start;
  args.state[1] = take ? count - total : count + total;
}

}  // namespace kvant::cuda
