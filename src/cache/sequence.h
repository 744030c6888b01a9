// Sequence: the page table of one timeline. Plain bookkeeping: which pages each (layer, KV head)
// holds. Cache decides what happens to them; this file only knows where the pointers lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/mixed_head.h"
#include "cache/page_pool.h"
#include "kvant/status.h"

namespace kvant {

// One (layer, KV head) of a sequence. Pages are numbered by position: page p holds tokens
// [p * page_tokens, (p + 1) * page_tokens).
//
//   stored[first_stored .. sealed)   encoded pages; none in float layers
//   open[first_open .. open_end)     pages as written
// Of those that the running step made, the ones before `dropped_stored` and `dropped` are given
// back already.
// Aligned, since different threads work on neighbouring heads.
struct alignas(64) HeadPages {
  std::byte** open = nullptr;    // [capacity]
  std::byte** stored = nullptr;  // [capacity]
  std::byte* sink = nullptr;     // nullptr: no sinks, or nothing written yet
  int64_t written_tokens = 0;    // length, or length + new tokens once appended
  int first_open = 0;
  int open_end = 0;
  int first_stored = 0;
  int sealed = 0;
  int dropped = 0;
  int dropped_stored = 0;
  // Layers of several widths: where the tokens of pages [0, sealed) are; `stored` is not used.
  std::unique_ptr<MixedHead> mixed;

  // No page before it is held, in whatever form.
  int first_held() const { return sealed > 0 ? first_stored : first_open; }
};

struct Sequence {
  int64_t length = 0;
  int64_t step_tokens = 0;       // of the step between Reserve and Commit or Rollback; 0: none
  std::vector<HeadPages> heads;  // [layers][kv_heads]
  std::vector<PagePool::Reservation> reservations;  // [pools of the cache]

  // Makes the table hold `pages` pages a head, growing in proportion. kOutOfMemory leaves it as it
  // was. Invalidates page pointer arrays (not the pages).
  Status EnsurePages(int64_t pages);

 private:
  AlignedBuffer table_;  // [heads][2][capacity_] pointers
  int64_t capacity_ = 0;
};

}  // namespace kvant
