// Save and Restore of layers whose tokens have several widths: what snapshot_cache.cc asks of them.
#include <cstring>

#include "cache/cache_impl.h"
#include "cache/head_mass.h"
#include "cache/layer_writer.h"
#include "cache/snapshot.h"
#include "kvant/policy.h"

namespace kvant {
namespace {

SavedMixedHead SavedHeadOf(const HeadPages& head) {
  const MixedHead& mixed = *head.mixed;
  SavedMixedHead saved{
      .sealed = head.sealed,
      .can_undo = mixed.can_undo,
      .requantised_tokens = mixed.requantised_tokens,
      .dropped_tokens = mixed.dropped_tokens,
      .dropped_before = mixed.can_undo ? mixed.dropped_before : mixed.dropped_tokens};
  for (const HeadPool& pool : mixed.pools) {
    saved.pools.push_back({.tokens = pool.tokens(),
                           .coded_tokens = pool.coded_tokens,
                           .tokens_before = mixed.can_undo ? pool.tokens_before : pool.tokens(),
                           .coded_before = mixed.can_undo ? pool.coded_before : pool.coded_tokens,
                           .has_spare = pool.spare_tail != nullptr});
  }
  return saved;
}

}  // namespace

SavedWidths Cache::Impl::WidthsOf(const Sequence& seq) const {
  SavedWidths saved{.pools = spec.mixed->pools,
                    .once = spec.mixed->once,
                    .budget_bytes = spec.mixed->budget_bytes,
                    .policy = spec.mixed->policy->name(),
                    .sums = sums_per_token()};
  const HeadPages* head = seq.heads.data();
  for (const LayerStore& layer : layers) {
    const bool is_mixed = layer.mixed != nullptr;
    saved.first_head.push_back(is_mixed ? static_cast<int>(saved.heads.size()) : -1);
    for (int h = 0; h < geometry.kv_heads; ++h, ++head) {
      if (is_mixed) saved.heads.push_back(SavedHeadOf(*head));
    }
  }
  return saved;
}

Status Cache::Impl::SavePools(const LayerStore& layer, const HeadPages& head,
                              LayerWriter& writer) const {
  for (size_t j = 0; j < head.mixed->pools.size(); ++j) {
    const HeadPool& pool = head.mixed->pools[j];
    const PageLayout& layout = layer.mixed->pools[j].layout;
    KVANT_RETURN_IF_ERROR(writer.Positions(pool.positions));
    for (size_t p = 0; p < pool.pages.size(); ++p) {
      const int64_t tokens = pool.coded_tokens - static_cast<int64_t>(p) * kPageTokens;
      KVANT_RETURN_IF_ERROR(writer.Pooled(layout, pool.pages[p], tokens));
    }
    if (pool.tail != nullptr) {
      KVANT_RETURN_IF_ERROR(writer.Open(layer.open, pool.tail, pool.tail_tokens()));
    }
    if (pool.spare_tail != nullptr) {
      KVANT_RETURN_IF_ERROR(writer.Stored(layer.open, pool.spare_tail));  // it was full
    }
  }
  return writer.Sums(head.mixed->mass.now);
}

Status Cache::Impl::CheckSavedWidths(const SavedWidths& saved) const {
  const auto differs = [](const std::string& there, const std::string& here) {
    return Status::InvalidArgument("the snapshot has " + there + ", this cache " + here);
  };
  const auto pools_text = [](const std::vector<MixedPool>& of) {
    return of.empty() ? std::string("one width a layer") : "widths " + MixedPoolsText(of);
  };
  const MixedSpec none, &here = spec.mixed == nullptr ? none : *spec.mixed;
  if (saved.pools != here.pools) return differs(pools_text(saved.pools), pools_text(here.pools));
  if (saved.empty()) return Status::Ok();
  const auto policy_text = [](const std::string& name, bool once, int64_t budget_bytes) {
    return "policy " + name + (once ? ", asked once," : "") + " with a budget of " +
           std::to_string(budget_bytes) + " bytes";
  };
  const std::string there = policy_text(saved.policy, saved.once, saved.budget_bytes);
  const std::string ours = policy_text(here.policy->name(), here.once, here.budget_bytes);
  if (there != ours) return differs(there, ours);
  if (saved.sums != sums_per_token()) {
    const auto text = [](int sums) { return std::to_string(sums) + " sums of attention a token"; };
    return differs(text(saved.sums), text(sums_per_token()));
  }
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const bool is_mixed = layers[static_cast<size_t>(layer)].mixed != nullptr;
    if (saved.is_mixed(layer) == is_mixed) continue;
    const auto text = [&](bool several) {
      return (several ? "several widths" : "one width") + std::string(" in layer ") +
             std::to_string(layer);
    };
    return differs(text(!is_mixed), text(is_mixed));
  }
  return Status::Ok();
}

void Cache::Impl::AddSavedPages(const SavedWidths& saved, int layer,
                                std::vector<int64_t>& demand) const {
  const MixedLayer& mixed = *layers[static_cast<size_t>(layer)].mixed;
  for (int h = 0; h < geometry.kv_heads; ++h) {
    const SavedMixedHead& head = saved.HeadOf(layer, h);
    for (size_t j = 0; j < head.pools.size(); ++j) {
      const SavedPool& pool = head.pools[j];
      demand[static_cast<size_t>(mixed.pools[j].pool)] += pool.coded_pages();
      demand[static_cast<size_t>(mixed.tail_pool)] += pool.pages_as_written();
    }
  }
}

// from: moves behind what was read. Throws std::bad_alloc; what was read then stays in the head.
Status Cache::Impl::ReadPools(const SavedMixedHead& saved, const LayerStore& layer, Sequence& seq,
                              HeadPages& head, const std::byte*& from) const {
  MixedHead& mixed = *head.mixed;
  mixed.can_undo = saved.can_undo;
  mixed.requantised_tokens = saved.requantised_tokens;
  mixed.dropped_tokens = saved.dropped_tokens;
  mixed.dropped_before = saved.dropped_before;
  const auto read = [&](int from_pool, const PageLayout& layout) -> Result<std::byte*> {
    PagePool::Reservation& reserved = seq.reservations[static_cast<size_t>(from_pool)];
    KVANT_ASSIGN_OR_RETURN(std::byte * page, Pool(from_pool).Allocate(&reserved));
    std::memcpy(page, from, static_cast<size_t>(layout.page_bytes));
    from += layout.page_bytes;
    return page;
  };
  for (size_t j = 0; j < saved.pools.size(); ++j) {
    const SavedPool& source = saved.pools[j];
    const MixedLayer::Pool& store = layer.mixed->pools[j];
    HeadPool& pool = mixed.pools[j];
    pool.positions.resize(static_cast<size_t>(source.tokens));
    pool.pages.reserve(static_cast<size_t>(source.coded_pages()));
    const size_t bytes = pool.positions.size() * sizeof(int32_t);
    if (bytes > 0) std::memcpy(pool.positions.data(), from, bytes);
    from += bytes;
    pool.coded_tokens = source.coded_tokens;
    pool.tokens_before = source.tokens_before;
    pool.coded_before = source.coded_before;
    for (int64_t p = 0; p < source.coded_pages(); ++p) {
      KVANT_ASSIGN_OR_RETURN(std::byte * page, read(store.pool, store.layout));
      pool.pages.push_back(page);
    }
    pool.grouped_pages = pool.pages.size();
    if (source.tail_tokens() > 0) {
      KVANT_ASSIGN_OR_RETURN(pool.tail, read(layer.mixed->tail_pool, layer.open));
    }
    if (source.has_spare) {
      KVANT_ASSIGN_OR_RETURN(pool.spare_tail, read(layer.mixed->tail_pool, layer.open));
    }
  }
  head.first_stored = 0;
  head.sealed = saved.sealed;
  if (mixed.policy->needs_scores()) {
    const HeldPlaces places(mixed, spec.sinks_tokens, head.sealed, seq.length);
    mixed.mass.now.resize(static_cast<size_t>(sums_per_token() * places.count()));
    const size_t bytes = mixed.mass.now.size() * sizeof(float);
    std::memcpy(mixed.mass.now.data(), from, bytes);
    from += bytes;
  }
  return Status::Ok();
}

}  // namespace kvant
