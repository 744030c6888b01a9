// Shift of layers whose tokens have several widths, in two passes as cache_shift.cc has them.
//
// Tokens keep their width, and those of a pool their order: what goes leaves no hole, so that the
// newest page can still be taken out again. V is copied bit for bit, as is K of tokens that did not
// move; K of those that did is decoded, turned and coded again, each token by itself. Where formats
// share figures among the tokens of a page, it is decoded and coded again as a whole
// (cache/pool_packer.h), and what the newest page changed is not known any more.
#include <algorithm>

#include "cache/cache_impl.h"
#include "cache/page_copies.h"
#include "cache/page_turner.h"
#include "cache/pool_packer.h"

namespace kvant {
namespace {

// The tokens of page p of a pool that stand at `from` or behind, by their slot in the page.
std::span<const int> TokensFrom(const HeadPool& pool, size_t p, int64_t from,
                                std::span<int> slots) {
  size_t count = 0;
  const int64_t first = static_cast<int64_t>(p) * kPageTokens;
  const int64_t end = std::min<int64_t>(first + kPageTokens, pool.tokens());
  for (int64_t t = first; t < end; ++t) {
    if (pool.positions[static_cast<size_t>(t)] >= from) {
      slots[count++] = static_cast<int>(t - first);
    }
  }
  return slots.first(count);
}

bool IsByToken(const PageLayout& layout) {
  return kvant::IsByToken({layout.k.format, layout.v.format});
}

}  // namespace

KeysOfHead Cache::Impl::KeysOf(const Sequence& seq, const LayerStore& layer,
                               const HeadPages& head) const {
  const auto index = static_cast<int>(&head - seq.heads.data());
  return {&layer, index / geometry.kv_heads, index % geometry.kv_heads};
}

// Turns what will move, checks it, and copies what is shared and will be written.
Status Cache::Impl::PlanPoolShift(Sequence& seq, const TokenGap& gap, PageTurner& turner,
                                  PageCopies& copies) const {
  Status status;
  ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
    if (layer.mixed == nullptr) return;
    const KeysOfHead keys = KeysOf(seq, layer, head);
    for (size_t j = 0; status.ok() && j < head.mixed->pools.size(); ++j) {
      status = PlanPoolShift(keys, gap, j, turner, copies, head.mixed->pools[j]);
    }
  });
  return status;
}

Status Cache::Impl::PlanPoolShift(const KeysOfHead& keys, const TokenGap& gap, size_t index,
                                  PageTurner& turner, PageCopies& copies, HeadPool& pool) const {
  const MixedLayer::Pool& store = keys.store->mixed->pools[index];
  if (!IsByToken(store.layout)) return PlanPacking(keys, gap, index, turner, copies, pool);
  const auto stays = [&](int32_t position) { return !gap.Drops(position); };
  const int64_t left = std::count_if(pool.positions.begin(), pool.positions.end(), stays);
  bool changes = false;  // in this page, or before
  int slots[kPageTokens];
  for (size_t p = 0; p < pool.pages.size(); ++p) {
    changes |= !TokensFrom(pool, p, gap.keep_tokens, slots).empty();
    if (changes && static_cast<int64_t>(p) * kPageTokens < left) {
      KVANT_RETURN_IF_ERROR(copies.Add(&Pool(store.pool), store.layout, &pool.pages[p]));
    }
    turner.Decode(store.layout.k, pool.pages[p]);
    for (const int t : TokensFrom(pool, p, gap.end(), slots)) {
      const int32_t position = pool.positions[p * kPageTokens + static_cast<size_t>(t)];
      turner.Turn(keys, t, 1);
      KVANT_RETURN_IF_ERROR(turner.Check(keys, t, 1, position - gap.drop_tokens));
    }
  }
  return Status::Ok();
}

Status Cache::Impl::PlanPacking(const KeysOfHead& keys, const TokenGap& gap, size_t index,
                                PageTurner& turner, PageCopies& copies, HeadPool& pool) const {
  const MixedLayer::Pool& store = keys.store->mixed->pools[index];
  const PageLayout& open = keys.store->open;
  PagePool& tails = Pool(keys.store->mixed->tail_pool);
  const PackedPages packed(gap, pool);
  int slots[kPageTokens];
  for (int64_t p = packed.first; p * kPageTokens < pool.tokens(); ++p) {
    const auto at = static_cast<size_t>(p);
    const bool is_tail = p * kPageTokens >= pool.coded_tokens;
    if (!is_tail && p < packed.coded()) {
      KVANT_RETURN_IF_ERROR(copies.Add(&Pool(store.pool), store.layout, &pool.pages[at]));
    }
    turner.Decode(is_tail ? open.k : store.layout.k, is_tail ? pool.tail : pool.pages[at]);
    for (const int t : TokensFrom(pool, at, gap.end(), slots)) {
      const int32_t position = pool.positions[at * kPageTokens + static_cast<size_t>(t)];
      turner.Turn(keys, t, 1);
      KVANT_RETURN_IF_ERROR(turner.Check(keys, t, 1, position - gap.drop_tokens));
    }
  }
  if (!packed.has_tail()) return Status::Ok();
  return pool.tail == nullptr ? copies.AddNew(&tails, &pool.tail)
                              : copies.Add(&tails, open, &pool.tail);
}

void Cache::Impl::ShiftPools(Sequence& seq, const TokenGap& gap, PageTurner& turner,
                             PoolPacker& packer) const {
  ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
    if (layer.mixed == nullptr) return;
    MixedHead& mixed = *head.mixed;
    const KeysOfHead keys = KeysOf(seq, layer, head);
    const int64_t sealed = head.sealed - gap.drop_tokens / kPageTokens;
    // The newest page may be among those that go.
    mixed.can_undo = mixed.can_undo && gap.end() / kPageTokens < head.sealed &&
                     std::all_of(layer.mixed->pools.begin(), layer.mixed->pools.end(),
                                 [](const auto& pool) { return IsByToken(pool.layout); });
    const auto dropped = [&](int64_t pages, const auto& tokens_of) {
      int64_t left = std::max<int64_t>(0, pages * kPageTokens - spec.sinks_tokens);
      for (const HeadPool& pool : mixed.pools) left -= tokens_of(pool);
      return left;
    };
    ShiftMass(gap, seq.length, head);
    for (size_t j = 0; j < mixed.pools.size(); ++j) {
      HeadPool& pool = mixed.pools[j];
      const MixedLayer::Pool& store = layer.mixed->pools[j];
      if (!IsByToken(store.layout)) {
        packer.Pack(
            PagesOf(layer, j), gap, [&](float* k) { turner.Turn(keys, k); }, pool);
        continue;
      }
      TakeOutGap(PagesOf(layer, j), gap, pool);
      int slots[kPageTokens];
      for (size_t p = 0; p < pool.pages.size(); ++p) {
        const std::span<const int> moved = TokensFrom(pool, p, gap.keep_tokens, slots);
        if (moved.empty()) continue;
        turner.Decode(store.layout.k, pool.pages[p]);
        for (const int t : moved) turner.Turn(keys, t, 1);
        turner.EncodeTokens(layer, store.layout.k, moved, pool.pages[p]);
      }
    }
    mixed.dropped_tokens = dropped(sealed, [](const HeadPool& pool) { return pool.tokens(); });
    mixed.dropped_before =
        mixed.can_undo
            ? dropped(sealed - 1, [](const HeadPool& pool) { return pool.tokens_before; })
            : mixed.dropped_tokens;
  });
}

int64_t Cache::Impl::RecodedPooledTokens(const LayerStore& layer, const HeadPages& head,
                                         int64_t from) const {
  int64_t tokens = 0;
  for (size_t j = 0; j < head.mixed->pools.size(); ++j) {
    const PageLayout& layout = layer.mixed->pools[j].layout;
    if (layout.k.format.is_float()) continue;
    const HeadPool& pool = head.mixed->pools[j];
    if (IsByToken(layout)) {
      tokens += std::count_if(pool.positions.begin(), pool.positions.end(),
                              [&](int32_t position) { return position >= from; });
    } else {  // whole pages, and none that waits in the tail
      const auto first = std::find_if(pool.positions.begin(), pool.positions.end(),
                                      [&](int32_t position) { return position >= from; });
      const int64_t page = (first - pool.positions.begin()) / kPageTokens;
      tokens += std::max<int64_t>(0, pool.coded_tokens - page * kPageTokens);
    }
  }
  return tokens;
}

Result<PageTurner> Cache::Impl::MakeTurner(std::span<const Rope> layer_ropes,
                                           int64_t positions) const {
  int64_t coded_bytes = 0;
  for (const LayerStore& layer : layers) {
    for (size_t j = 0; layer.mixed != nullptr && j < layer.mixed->pools.size(); ++j) {
      coded_bytes = std::max<int64_t>(coded_bytes, layer.mixed->pools[j].layout.k.bytes);
    }
  }
  return PageTurner::Create(page_tokens, geometry.k_channels(), coded_bytes, layer_ropes,
                            positions);
}

Result<PoolPacker> Cache::Impl::MakePacker() const {
  int64_t open_bytes = 0;
  for (const LayerStore& layer : layers) {
    if (layer.mixed != nullptr) open_bytes = std::max<int64_t>(open_bytes, layer.open.page_bytes);
  }
  return PoolPacker::Create(open_bytes == 0 ? 0 : geometry.head_dim, open_bytes);
}

}  // namespace kvant
