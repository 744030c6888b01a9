// Layers whose tokens have several widths (kvant/mixed_spec.h).
//
// When page p leaves the window, the policy judges the tokens of a head and each of p's goes to the
// pool of its width. Formats that keep each token apart code it there; in others it waits in the
// pool's tail, a page as written, which is coded when it is full. (Tails for all formats were
// tried: three of them took 12 % of a step, since a page as written that holds few tokens is
// fetched almost whole, and a kernel call has its price.) Where widths may change later, tokens of
// other pages leave theirs too: what is left in a pool moves up bit for bit, and what becomes
// narrower is decoded, rounded to f16 and coded again. All of it depends on the tokens before the
// step only, so a head whose page came may keep it when the step is abandoned.
#include <new>
#include <optional>

#include "base/float16.h"
#include "cache/cache_impl.h"
#include "cache/head_mass.h"
#include "cache/head_tokens.h"
#include "cache/pool_edit.h"
#include "kvant/head_classes.h"
#include "policy/policies.h"

namespace kvant {
namespace {

// One token for the pool that takes it. A decoded value may lie half a step above the largest f16.
void PutToken(const HeadTokens& tokens, size_t i, int head_dim, TokenReader& reader,
              PoolChange& change) {
  const TokenReader::Row row = reader.Read(tokens.place(i));
  change.positions.push_back(tokens.position(i));
  for (int c = 0; c < head_dim; ++c) {
    change.k.push_back(std::clamp(row.k[c], -kF16Max, kF16Max));
    change.v.push_back(std::clamp(row.v[c], -kF16Max, kF16Max));
  }
}

bool HasPool(const MixedLayer& layer, int width) {
  return std::any_of(layer.pools.begin(), layer.pools.end(),
                     [&](const MixedLayer::Pool& pool) { return pool.width == width; });
}

// What the policy's widths ask of each pool.
struct MixedChange {
  std::vector<PoolChange> pools;
  int64_t requantised_tokens = 0, dropped_tokens = 0;
  bool takes_out = false;
};

Result<MixedChange> PlanChange(const MixedSource& source, const MixedSpec& spec,
                               const HeadTokens& tokens, std::span<const uint8_t> width) {
  const MixedLayer& layer = source.layer;
  const int head_dim = source.open.k.head_dim;
  MixedChange change;
  change.pools.resize(layer.pools.size());
  TokenReader reader(source);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenPlace& place = tokens.place(i);
    const bool is_stored = place.where == TokenPlace::kStored;
    if (width[i] == tokens.width(i) && place.where != TokenPlace::kClosing) continue;
    if (is_stored && spec.once) continue;
    if (place.is_fixed() || width[i] > tokens.width(i) ||
        (width[i] != 0 && !HasPool(layer, width[i]))) {
      return Status::InvalidArgument("policy " + source.head.mixed->policy->name() +
                                     " gives width " + std::to_string(width[i]) + " to position " +
                                     std::to_string(tokens.position(i)) + ", which " +
                                     (place.is_fixed()
                                          ? "sinks or window hold"
                                          : "has width " + std::to_string(tokens.width(i)) +
                                                " in pools of " + MixedPoolsText(spec.pools)));
    }
    if (is_stored) {
      std::vector<bool>& keep = change.pools[place.pool].keep;
      keep.resize(source.head.mixed->pools[place.pool].positions.size(), true);
      keep[static_cast<size_t>(place.slot)] = false;
      change.takes_out = true;
      change.requantised_tokens += width[i] != 0;
    }
    if (width[i] == 0) {
      ++change.dropped_tokens;
    } else {
      PutToken(tokens, i, head_dim, reader, change.pools[layer.PoolOf(width[i])]);
    }
  }
  return change;
}

}  // namespace

// ---- Creation

void Cache::Impl::AddMixedLayer(const LayerCalibration* calibration, LayerStore& layer) {
  layer.mixed = std::make_unique<MixedLayer>();
  MixedLayer& mixed = *layer.mixed;
  mixed.tail_pool = PoolFor(layer.open, PageUse::kTail, false);
  const auto sums = static_cast<size_t>(sums_per_token());  // a streaming head has none
  const auto beside_bytes = static_cast<int64_t>(sizeof(int32_t) + sizeof(float) * sums);
  mixed.token_bytes[kWrittenWidth] = layer.open.page_bytes / kPageTokens + beside_bytes;
  for (const MixedPool& from : spec.mixed->pools) {
    MixedLayer::Pool& pool = mixed.pools.emplace_back();
    pool.width = from.width;
    pool.layout = MakePageLayout(from.formats.k, from.formats.v, geometry.head_dim, page_tokens);
    if (calibration != nullptr) {
      AddLevels(*calibration, pool.layout, pool.k_levels, pool.v_levels);
    }
    pool.pool = PoolFor(pool.layout, PageUse::kPooled, false);
    mixed.token_bytes[static_cast<size_t>(from.width)] =
        pool.layout.page_bytes / kPageTokens + beside_bytes;
  }
}

Status Cache::Impl::AddHeadClasses() {
  const HeadClasses* const classes = spec.mixed->heads.get();
  if (classes == nullptr) return Status::Ok();
  if (classes->layers != geometry.layers || classes->kv_heads != geometry.kv_heads) {
    return Status::InvalidArgument("the head classes are of " + std::to_string(classes->layers) +
                                   " layers of " + std::to_string(classes->kv_heads) +
                                   " KV heads, the cache has " + std::to_string(geometry.layers) +
                                   " of " + std::to_string(geometry.kv_heads));
  }
  streaming = MakeStreaming(classes->first_tokens, classes->recent_tokens);
  for (const uint8_t full : FullHeads(classes->gates, classes->sparsity)) {
    mixed_policies.push_back(full != 0 ? spec.mixed->policy.get() : streaming.get());
  }
  return Status::Ok();
}

// Heads that stream have a bound of their own, which comes off what the others share.
void Cache::Impl::ShareBudget() {
  if (spec.mixed == nullptr || spec.mixed->budget_bytes == 0) return;
  int64_t left_bytes = spec.mixed->budget_bytes, heads = 0;
  for (size_t head = 0; head < layers.size() * static_cast<size_t>(geometry.kv_heads); ++head) {
    const MixedLayer* const layer =
        layers[head / static_cast<size_t>(geometry.kv_heads)].mixed.get();
    if (layer == nullptr) continue;
    if (streams(head)) {
      const auto& bytes = layer->token_bytes;
      const HeadClasses& classes = *spec.mixed->heads;
      left_bytes -= (spec.sinks_tokens + spec.window_tokens) * bytes[kWrittenWidth] +
                    (classes.first_tokens + classes.recent_tokens) *
                        bytes[static_cast<size_t>(layer->pools.front().width)];
    } else {
      ++heads;
    }
  }
  head_budget_bytes = std::max<int64_t>(1, left_bytes / std::max<int64_t>(1, heads));
}

PoolPages Cache::Impl::PagesOf(const LayerStore& layer, size_t pool) const {
  const MixedLayer::Pool& store = layer.mixed->pools[pool];
  return {Pool(store.pool), Pool(layer.mixed->tail_pool), store.layout, layer.open};
}

// ---- A page that leaves the window

Status Cache::Impl::ClosePages(const Sequence& seq, const LayerStore& layer, HeadPages& head) const
    try {
  const int target = layer.rule.DuePages(head.written_tokens);
  while (head.sealed < target) {
    const MixedSource source{*layer.mixed,      layer.open,  layer.sink, head,
                             spec.sinks_tokens, head.sealed, seq.length, geometry.group_ratio()};
    KVANT_RETURN_IF_ERROR(CheckMass(head, seq.length));
    const Policy& policy = *head.mixed->policy;
    const HeadTokens tokens(source, policy);
    PolicyLimits limits;
    limits.sinks = spec.sinks_tokens;
    limits.length = seq.length;
    limits.window_tokens = static_cast<int>(seq.length - (head.sealed + 1) * int64_t{kPageTokens});
    limits.budget_bytes = head.mixed->budget_bytes;
    limits.token_bytes = layer.mixed->token_bytes;
    KVANT_RETURN_IF_ERROR(CheckPolicyInput(policy, tokens.view(), limits));
    std::vector<uint8_t> width(tokens.size());
    policy.Choose(tokens.view(), limits, width);
    KVANT_ASSIGN_OR_RETURN(const MixedChange change,
                           PlanChange(source, *spec.mixed, tokens, width));
    std::vector<std::optional<PoolEdit>> edits(layer.mixed->pools.size());
    for (size_t j = 0; j < edits.size(); ++j) {
      edits[j].emplace(PagesOf(layer, j), change.pools[j], !change.takes_out, head.mixed->pools[j]);
      KVANT_RETURN_IF_ERROR(edits[j]->Prepare());
    }
    MixedHead& mixed = *head.mixed;
    std::vector<float> mass(mixed.mass.now.size() / tokens.size() *
                            (tokens.size() - static_cast<size_t>(change.dropped_tokens)));
    for (std::optional<PoolEdit>& edit : edits) edit->Apply();
    mixed.can_undo = !change.takes_out;
    mixed.requantised_tokens += change.requantised_tokens;
    mixed.dropped_before = mixed.dropped_tokens;
    mixed.dropped_tokens += change.dropped_tokens;
    ++head.sealed;
    if (policy.needs_scores()) MoveMass(tokens, seq.length, head, std::move(mass));
  }
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate what choosing the widths of " +
                             std::to_string(seq.length) + " tokens takes");
}

// Back to `sealed` pages, where the head holds more: one page at most, if it can be taken out.
void Cache::Impl::ReopenPages(const LayerStore& layer, HeadPages& head, int sealed) const {
  MixedHead& mixed = *head.mixed;
  if (head.sealed <= sealed || !mixed.can_undo) return;
  for (size_t j = 0; j < mixed.pools.size(); ++j) UndoEdit(PagesOf(layer, j), mixed.pools[j]);
  mixed.can_undo = false;
  if (mixed.policy->needs_scores()) mixed.mass.now = std::move(mixed.mass.before);
  mixed.dropped_tokens = mixed.dropped_before;
  --head.sealed;
}

// ---- Whole heads

void Cache::Impl::SharePools(const LayerStore& layer, const HeadPages& from, HeadPages& to) const {
  *to.mixed = *from.mixed;
  for (size_t j = 0; j < from.mixed->pools.size(); ++j) {
    SharePool(PagesOf(layer, j), from.mixed->pools[j]);
  }
}

void Cache::Impl::DropPools(const LayerStore& layer, HeadPages& head) const {
  MixedHead& mixed = *head.mixed;
  for (size_t j = 0; j < mixed.pools.size(); ++j) DropPool(PagesOf(layer, j), mixed.pools[j]);
  mixed.mass = HeadMass();
  mixed.can_undo = false;
  mixed.requantised_tokens = mixed.dropped_tokens = mixed.dropped_before = 0;
}

void Cache::Impl::AddPoolRuns(const LayerStore& layer, const HeadPages& head,
                              HeadView& view) const {
  size_t run = 1;
  for (size_t j = 0; j < head.mixed->pools.size(); ++j) {
    const HeadPool& pool = head.mixed->pools[j];
    view.runs[run++] = MakeRun(layer.mixed->pools[j].layout, pool.pages.data(),
                               static_cast<int>(pool.pages.size()), 0, 0, pool.coded_tokens);
    view.runs[run++] = MakeRun(layer.open, &pool.tail, 1, 0, 0, pool.tail_tokens());
  }
}

void Cache::Impl::AddWidths(CacheLedger& ledger) const {
  if (spec.mixed == nullptr) return;
  for (const MixedPool& pool : spec.mixed->pools) ledger.widths.push_back({.width = pool.width});
  std::vector<bool> is_counted(pools.size());
  for (const LayerStore& layer : layers) {
    for (size_t j = 0; layer.mixed != nullptr && j < ledger.widths.size(); ++j) {
      const auto pool = static_cast<size_t>(layer.mixed->pools[j].pool);
      if (is_counted[pool]) continue;
      is_counted[pool] = true;
      ledger.widths[j].page_bytes +=
          pools[pool].pool->counts().used_pages * pools[pool].layout.page_bytes;
    }
  }
  for (const auto& seq : sequences) {
    for (size_t i = 0; seq != nullptr && i < seq->heads.size(); ++i) {
      const MixedHead* const head = seq->heads[i].mixed.get();
      if (head == nullptr) continue;
      for (size_t j = 0; j < head->pools.size(); ++j) {
        ledger.widths[j].head_tokens += head->pools[j].tokens();
        ledger.metadata_bytes += head->pools[j].tokens() * static_cast<int64_t>(sizeof(int32_t));
      }
      ledger.metadata_bytes += static_cast<int64_t>(head->mass.now.size() * sizeof(float));
      ledger.dropped_head_tokens += head->dropped_tokens;
      ledger.requantised_head_tokens += head->requantised_tokens;
    }
  }
}

std::span<const int32_t> Cache::PoolPositions(SequenceId id, int layer, int kv_head,
                                              int width) const {
  Sequence* seq = impl_->Find(id);
  const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
  if (seq == nullptr || store.mixed == nullptr || !HasPool(*store.mixed, width)) return {};
  return impl_->HeadOf(*seq, layer, kv_head).mixed->pools[store.mixed->PoolOf(width)].positions;
}

}  // namespace kvant
