// Puts pages of a head side by side again after token-by-token growth.
#include <cstring>
#include <functional>
#include <new>
#include <numeric>

#include "base/aligned_buffer.h"
#include "cache/cache_impl.h"

namespace kvant {
namespace {

// Trades the pages' places, so that the first pointers have the lowest addresses. Follows the
// cycles of the permutation with one page of room: what is in order already costs nothing.
void SortPlaces(const std::vector<std::byte**>& pages, size_t page_bytes) {
  std::vector<size_t> by_place(pages.size()), rank(pages.size());  // inverse of each other
  std::iota(by_place.begin(), by_place.end(), size_t{0});
  std::sort(by_place.begin(), by_place.end(), [&](size_t a, size_t b) {
    return std::less<const std::byte*>()(*pages[a], *pages[b]);
  });
  for (size_t place = 0; place < by_place.size(); ++place) rank[by_place[place]] = place;
  std::vector<std::byte*> places(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) places[rank[i]] = *pages[i];
  Result<AlignedBuffer> spare = AlignedBuffer::Create(page_bytes);
  if (!spare.ok()) return;
  for (size_t first = 0; first < pages.size(); ++first) {
    if (*pages[first] == places[first]) continue;
    std::memcpy(spare->data(), *pages[first], page_bytes);
    size_t hole = first;  // the page whose old place is free
    for (size_t next = rank[hole]; next != first; next = rank[hole]) {
      std::memcpy(places[next], *pages[next], page_bytes);
      hole = next;
      *pages[next] = places[next];
    }
    std::memcpy(places[first], spare->data(), page_bytes);
    *pages[first] = places[first];
  }
}

}  // namespace

// Heads of several widths fill their pages at a pace of their own. Those that came since the last
// time change places once they are kRunPages a head on average, all heads together.
void Cache::Impl::RegroupPooled(Sequence& seq, size_t pool) const {
  const PoolEntry& entry = pools[pool];
  int64_t heads = 0;
  std::vector<std::byte**> pages;
  const auto for_each = [&](const auto& visit) {
    ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
      for (size_t j = 0; layer.mixed != nullptr && j < layer.mixed->pools.size(); ++j) {
        if (layer.mixed->pools[j].pool == static_cast<int>(pool)) visit(head.mixed->pools[j]);
      }
    });
  };
  for_each([&](HeadPool& head) {
    ++heads;
    for (size_t p = head.grouped_pages; p < head.pages.size(); ++p) {
      if (!entry.pool->IsShared(head.pages[p])) pages.push_back(&head.pages[p]);
    }
  });
  if (std::ssize(pages) < kRunPages * heads) return;
  SortPlaces(pages, static_cast<size_t>(entry.layout.page_bytes));
  for_each([](HeadPool& head) { head.grouped_pages = head.pages.size(); });
}

// Without memory for the lists the pages stay where they are: slower to read, and right.
void Cache::Impl::Regroup(Sequence& seq, int64_t length_before) const try {
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolEntry& entry = pools[i];
    if (entry.use == PageUse::kPooled) RegroupPooled(seq, i);
    if (entry.use != PageUse::kStored && entry.use != PageUse::kKept) continue;
    std::vector<std::byte**> pages;
    ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
      const int pool = layer.coded ? layer.stored_pool : layer.open_pool;
      if (pool != static_cast<int>(i)) return;
      const auto complete = [&](int64_t length) {
        return layer.coded ? layer.rule.DuePages(length) : static_cast<int>(length / page_tokens);
      };
      const int before = complete(length_before), now = complete(seq.length);
      const int end = now / kRunPages * kRunPages;
      // A step of kRunPages pages or more made runs by itself.
      if (before >= end || now - before >= kRunPages) return;
      std::byte** const table = layer.coded ? head.stored : head.open;
      for (int p = std::max(head.first_held(), end - kRunPages); p < end; ++p) {
        if (!entry.pool->IsShared(table[p])) pages.push_back(&table[p]);
      }
    });
    SortPlaces(pages, static_cast<size_t>(entry.layout.page_bytes));
  }
} catch (const std::bad_alloc&) {
}

}  // namespace kvant
