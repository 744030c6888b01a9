// Puts pages of a head side by side again after token-by-token growth.
#include <cstring>
#include <functional>

#include "base/aligned_buffer.h"
#include "cache/cache_impl.h"

namespace kvant {
namespace {

// Trades the pages' places, so that the first pointers have the lowest addresses. The memory stays
// the same; without room for a copy everything stays as it is.
void SortPlaces(const std::vector<std::byte**>& pages, size_t page_bytes) {
  Result<AlignedBuffer> copy = AlignedBuffer::Create(pages.size() * page_bytes);
  if (!copy.ok()) return;
  std::vector<std::byte*> places;
  for (size_t i = 0; i < pages.size(); ++i) {
    std::memcpy(copy->data() + i * page_bytes, *pages[i], page_bytes);
    places.push_back(*pages[i]);
  }
  std::sort(places.begin(), places.end(), std::less<>());
  for (size_t i = 0; i < pages.size(); ++i) {
    std::memcpy(places[i], copy->data() + i * page_bytes, page_bytes);
    *pages[i] = places[i];
  }
}

}  // namespace

void Cache::Impl::Regroup(Sequence& seq, int64_t length_before) const {
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolEntry& entry = pools[i];
    if (entry.use != PageUse::kStored && entry.use != PageUse::kKept) continue;
    std::vector<std::byte**> pages;
    ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
      const int pool = layer.coded ? layer.stored_pool : layer.open_pool;
      if (pool != static_cast<int>(i)) return;
      // Pages that are complete, before the step and now; a longer step makes runs by itself.
      const auto complete = [&](int64_t length) {
        return layer.coded ? SealedPages(length) : static_cast<int>(length / page_tokens);
      };
      const int end = complete(seq.length) / kRunPages * kRunPages;
      if (end == 0 || complete(length_before) != end - 1) return;
      std::byte** const table = layer.coded ? head.stored : head.open;
      for (int p = end - kRunPages; p < end; ++p) {
        if (!entry.pool->IsShared(table[p])) pages.push_back(&table[p]);
      }
    });
    if (!pages.empty()) SortPlaces(pages, static_cast<size_t>(entry.layout.page_bytes));
  }
}

}  // namespace kvant
