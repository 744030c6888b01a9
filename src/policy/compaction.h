// Compaction: what is kept moves to the front, in order. The place of an item is the exclusive
// prefix sum of the keep mask; places never lie behind the items, so one pass upwards needs no
// second buffer. The same numbers are StreamingLLM's positions: the slots of the tokens that stay.
//
// Thread rules: reentrant; the parallel one uses the caller's pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace kvant {

inline constexpr int32_t kDroppedItem = -1;

// destination [items]: place of each item that is kept, kDroppedItem of the others. Returns how
// many are kept.
int64_t KeepDestinations(std::span<const uint8_t> keep, std::span<int32_t> destination);

// The same, with blocks of `block_items` counted and filled in parallel.
int64_t KeepDestinations(std::span<const uint8_t> keep, int64_t block_items, ThreadPool& pool,
                         std::span<int32_t> destination);

// Moves the rows that are kept to the front. rows: [items] of row_bytes each; what lies behind the
// kept ones afterwards is unspecified. Returns how many are kept.
int64_t CompactRows(std::span<const uint8_t> keep, int64_t row_bytes, std::byte* rows);

}  // namespace kvant
