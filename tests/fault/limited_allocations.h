// An allocator that fails after so many allocations, for testing::ScopedAllocate.
#pragma once

#include <climits>
#include <cstddef>

#include "cache/cache_testing.h"

namespace kvant::testing {

inline int g_allocations_left = INT_MAX;

inline void* AllocateUntilSpent(size_t alignment, size_t bytes) {
  if (g_allocations_left == 0) return nullptr;
  --g_allocations_left;
  return AllocatePoisoned(alignment, bytes);
}

}  // namespace kvant::testing
