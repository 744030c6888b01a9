#include "policy/compaction.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace kvant {
namespace {

int64_t CountKept(std::span<const uint8_t> keep) {
  return std::count_if(keep.begin(), keep.end(), [](uint8_t k) { return k != 0; });
}

void FillFrom(int64_t first, std::span<const uint8_t> keep, std::span<int32_t> destination) {
  for (size_t i = 0; i < keep.size(); ++i) {
    destination[i] = keep[i] != 0 ? static_cast<int32_t>(first++) : kDroppedItem;
  }
}

}  // namespace

int64_t KeepDestinations(std::span<const uint8_t> keep, std::span<int32_t> destination) {
  FillFrom(0, keep, destination);
  return CountKept(keep);
}

int64_t KeepDestinations(std::span<const uint8_t> keep, int64_t block_items, ThreadPool& pool,
                         std::span<int32_t> destination) {
  const auto items = static_cast<int64_t>(keep.size());
  const int64_t blocks = (items + block_items - 1) / block_items;
  const auto each_block = [&](const auto& body) {
    pool.ParallelFor(blocks, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const auto first = static_cast<size_t>(b * block_items);
        const auto count = static_cast<size_t>(std::min(block_items, items - b * block_items));
        body(static_cast<size_t>(b), first, count);
      }
    });
  };
  std::vector<int64_t> first_place(static_cast<size_t>(blocks));
  each_block([&](size_t block, size_t first, size_t count) {
    first_place[block] = CountKept(keep.subspan(first, count));
  });
  int64_t kept = 0;
  for (int64_t& place : first_place) {
    const int64_t count = place;
    place = kept;
    kept += count;
  }
  each_block([&](size_t block, size_t first, size_t count) {
    FillFrom(first_place[block], keep.subspan(first, count), destination.subspan(first, count));
  });
  return kept;
}

int64_t CompactRows(std::span<const uint8_t> keep, int64_t row_bytes, std::byte* rows) {
  int64_t kept = 0;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] == 0) continue;
    std::memmove(rows + kept * row_bytes, rows + static_cast<int64_t>(i) * row_bytes,
                 static_cast<size_t>(row_bytes));
    ++kept;
  }
  return kept;
}

}  // namespace kvant
