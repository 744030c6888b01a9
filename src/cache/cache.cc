#include "cache/cache.h"

#include <cmath>

#include "cache/cache_impl.h"
#include "codec/rotation.h"
#include "kvant/calibration.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

// The first layer whose K format has the feature; `layers` if none has.
int FirstLayerWith(bool Format::*feature, const KvSpec& spec, int layers) {
  int layer = 0;
  while (layer < layers && !(LayerFormats(spec, layer).k.*feature)) ++layer;
  return layer;
}

Status CheckWindows(const KvGeometry& g, const KvSpec& spec,
                    std::span<const int64_t> layer_windows) {
  if (layer_windows.empty()) return Status::Ok();
  if (layer_windows.size() != static_cast<size_t>(g.layers)) {
    return Status::InvalidArgument("windows of " + std::to_string(layer_windows.size()) +
                                   " layers are given for a cache of " + std::to_string(g.layers));
  }
  for (size_t layer = 0; layer < layer_windows.size(); ++layer) {
    const std::string window = std::to_string(layer_windows[layer]);
    if (layer_windows[layer] < 0) {
      return Status::InvalidArgument("a layer's window of " + window + " tokens is negative");
    }
    if (layer_windows[layer] > kMaxLayerWindow) {
      return Status::InvalidArgument("a layer's window of " + window + " tokens is more than 2^32");
    }
  }
  const bool sees_all = std::count(layer_windows.begin(), layer_windows.end(), 0) > 0;
  if (spec.mixed == nullptr || sees_all) return Status::Ok();
  return Status::InvalidArgument(
      "mixed widths are possible in layers that see all tokens, and there is none");
}

Status CheckBalance(const KvGeometry& g, const KvSpec& spec, std::span<const float> k_balance) {
  const size_t values =
      static_cast<size_t>(g.layers) * static_cast<size_t>(g.kv_heads * g.head_dim);
  if (k_balance.empty()) {
    if (!NeedsBalance(spec, g.layers)) return Status::Ok();
    return Status::InvalidArgument(
        "K format " + FormatSpec(spec.k) +
        " needs the balance of the model's K channels, and there is none");
  }
  if (k_balance.size() != values) {
    return Status::InvalidArgument("a K balance of " + std::to_string(k_balance.size()) +
                                   " values is given where the shape asks for " +
                                   std::to_string(values));
  }
  for (const float b : k_balance) {
    if (b >= 0x1p-20f && b <= 0x1p20f) continue;
    return Status::InvalidArgument("a K balance of " + std::to_string(b) +
                                   " is not between 2^-20 and 2^20");
  }
  return Status::Ok();
}

Status CheckRopes(const KvGeometry& g, const KvSpec& spec, std::span<const Rope> ropes) {
  const int layer = FirstLayerWith(&Format::pre_rope, spec, g.layers);
  if (layer == g.layers) return Status::Ok();
  const Status status = CheckLayerRopes(g, ropes);
  if (status.ok()) return status;
  return Status::InvalidArgument("K format " + FormatSpec(LayerFormats(spec, layer).k) + ": " +
                                 status.message());
}

}  // namespace

Status CheckLayerRopes(const KvGeometry& g, std::span<const Rope> ropes) {
  if (ropes.size() != static_cast<size_t>(g.layers)) {
    return Status::InvalidArgument("the RoPE of " + std::to_string(g.layers) +
                                   " layers is needed, and there are " +
                                   std::to_string(ropes.size()));
  }
  for (const Rope& rope : ropes) {
    if (rope.frequencies.empty() ||
        2 * rope.frequencies.size() > static_cast<size_t>(g.k_channels())) {
      return Status::InvalidArgument("RoPE turns " + std::to_string(2 * rope.frequencies.size()) +
                                     " channels of a head of " + std::to_string(g.k_channels()));
    }
    for (const double frequency : rope.frequencies) {
      if (std::isfinite(frequency)) continue;
      return Status::InvalidArgument("a RoPE frequency of " + std::to_string(frequency) +
                                     " radians a position is not finite");
    }
  }
  return Status::Ok();
}

bool NeedsBalance(const KvSpec& spec, int layers) {
  return FirstLayerWith(&Format::balanced, spec, layers) < layers;
}
bool NeedsRopes(const KvSpec& spec, int layers) {
  return FirstLayerWith(&Format::pre_rope, spec, layers) < layers;
}

// ---- Creation

Result<std::unique_ptr<Cache>> Cache::Create(const KvGeometry& geometry, const KvSpec& given_spec,
                                             const CacheOptions& options) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckKvSpec(given_spec, geometry));
  constexpr int64_t kMaxContext = int64_t{1} << 30;  // positions are ints
  if (options.context_tokens < 1 || options.context_tokens > kMaxContext) {
    return Status::InvalidArgument("a context of " + std::to_string(options.context_tokens) +
                                   " tokens is not between 1 and 2^30");
  }
  if (options.budget_bytes < 0) {
    return Status::InvalidArgument("a KV budget of " + std::to_string(options.budget_bytes) +
                                   " bytes is negative");
  }
  KVANT_RETURN_IF_ERROR(CheckWindows(geometry, given_spec, options.layer_windows));
  const KvSpec spec = WithWindows(given_spec, options.layer_windows);
  KVANT_RETURN_IF_ERROR(CheckBalance(geometry, spec, options.k_balance));
  KVANT_RETURN_IF_ERROR(CheckRopes(geometry, spec, options.ropes));
  auto impl = std::make_unique<Impl>(geometry, spec, options.context_tokens, options.budget_bytes);
  impl->page_tokens = PageTokensOf(spec, geometry.layers);
  impl->window_pages = DivideUp(spec.window_tokens, impl->page_tokens);
  const int64_t layer_values = int64_t{geometry.kv_heads} * geometry.head_dim;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair formats = LayerFormats(spec, layer);
    const auto index = static_cast<size_t>(layer);
    const bool is_mixed = IsMixedLayer(spec, layer);
    impl->AddLayer(formats, options.layer_windows.empty() ? 0 : options.layer_windows[index],
                   is_mixed);
    LayerStore& store = impl->layers.back();
    const LayerCalibration* const calibration =
        spec.calibration == nullptr ? nullptr : &spec.calibration->layers[index];
    if (is_mixed) {
      impl->AddMixedLayer(calibration, store);
    } else if (calibration != nullptr) {
      impl->AddLevels(*calibration, store.stored, store.k_levels, store.v_levels);
    }
    const float* const balance =
        options.k_balance.empty() ? nullptr : options.k_balance.data() + layer * layer_values;
    impl->AddRotation(balance, calibration, store);
    if (formats.k.pre_rope) impl->AddRope(options.ropes[index], store);
  }
  if (spec.mixed != nullptr) KVANT_RETURN_IF_ERROR(impl->AddHeadClasses());
  impl->ShareBudget();
  return std::unique_ptr<Cache>(new Cache(std::move(impl)));
}

Result<std::unique_ptr<Cache>> Cache::CreateWithoutModel(const KvGeometry& g, const KvSpec& spec,
                                                         CacheOptions options) {
  KVANT_RETURN_IF_ERROR(CheckKvSpec(spec, g));
  const auto layers = static_cast<size_t>(g.layers);
  const size_t channels = layers * static_cast<size_t>(g.kv_heads * g.head_dim);
  const std::vector<float> balance(NeedsBalance(spec, g.layers) ? channels : 0, 1.0f);
  const std::vector<Rope> ropes(NeedsRopes(spec, g.layers) ? layers : 0, UsualRope(g.k_channels()));
  options.k_balance = balance;
  options.ropes = ropes;
  return Create(g, spec, options);
}

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;

// is_mixed: `formats` say how vectors are rotated; what is stored, AddMixedLayer adds.
void Cache::Impl::AddLayer(const FormatPair& formats, int64_t window_tokens, bool is_mixed) {
  LayerStore layer;
  static_cast<LayerLayouts&>(layer) =
      MakeLayerLayouts(formats, is_mixed, geometry, page_tokens, spec.sinks_tokens);
  layer.window_tokens = window_tokens;
  layer.rule = PageRule::Of(page_tokens, layer.coded, spec.window_tokens, window_tokens);
  layer.rule.takes_turns = layer.searched;
  takes_turns |= layer.searched;
  const bool passing = window_tokens != 0;
  layer.open_pool = layer.coded ? PoolFor(layer.open, PageUse::kOpen, true)
                                : PoolFor(layer.open, PageUse::kKept, passing);
  if (layer.coded && !is_mixed) {
    layer.stored_pool = PoolFor(layer.stored, PageUse::kStored, passing);
  }
  if (layer.has_sinks()) layer.sink_pool = PoolFor(layer.sink, PageUse::kSink, false);
  layers.push_back(std::move(layer));
}

void Cache::Impl::AddLevels(const LayerCalibration& calibration, PageLayout& stored,
                            std::unique_ptr<const FittedTable>& k_levels,
                            std::unique_ptr<const FittedTable>& v_levels) const {
  const auto add = [](const auto& levels, SideLayout& side,
                      std::unique_ptr<const FittedTable>& table) {
    if (side.format.levels != Levels::kFitted) return;
    const auto width = static_cast<size_t>(side.format.bits - kLeastFittedBits);
    table = std::make_unique<const FittedTable>(levels[width]);
    side.fitted = &table->table();
  };
  add(calibration.k_levels, stored.k, k_levels);
  add(calibration.v_levels, stored.v, v_levels);
}

void Cache::Impl::AddRotation(const float* k_balance, const LayerCalibration* calibration,
                              LayerStore& layer) const {
  const Format &k = layer.stored.k.format, &v = layer.stored.v.format;
  const int values = geometry.kv_heads * geometry.head_dim;
  const auto turn = [&](const Format& format, const std::vector<float>* matrices,
                        HeadRotations& rotations) {
    if (!format.is_rotated()) return;
    rotations.hadamard = !format.loaded_rotation;
    if (format.loaded_rotation) rotations.matrices = matrices->data();
  };
  turn(k, calibration == nullptr ? nullptr : &calibration->k_rotation, layer.to_key);
  layer.to_query = layer.to_key;
  turn(v, calibration == nullptr ? nullptr : &calibration->v_rotation, layer.to_value);
  for (int i = 0; i < values; ++i) {
    const float sign = RotationSign(i % geometry.head_dim);
    const float factor = k.balanced ? k_balance[i]
                         : k.smooth ? 1.0f / calibration->k_factors[i]
                                    : 1;
    if (layer.to_key.hadamard || k.balanced || k.smooth) {
      const float turned = layer.to_key.hadamard ? sign : 1.0f;
      layer.to_key.multipliers.push_back(turned * factor);
      layer.to_query.multipliers.push_back(turned / factor);
    }
    if (layer.to_value.hadamard) layer.to_value.multipliers.push_back(sign);
  }
}

void Cache::Impl::AddRope(const Rope& rope, LayerStore& layer) {
  const auto same = std::find_if(ropes.begin(), ropes.end(),
                                 [&](const KeyRopeTable& table) { return table.rope() == rope; });
  layer.rope = static_cast<int>(same - ropes.begin());
  if (same == ropes.end()) ropes.emplace_back(rope);
}

// Pages that stay have a pool of their own, or holes between them would be filled one by one.
int Cache::Impl::PoolFor(const PageLayout& layout, PageUse use, bool passing) {
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolEntry& p = pools[i];
    if (p.use == use && p.passing == passing && p.layout == layout) return static_cast<int>(i);
  }
  const int64_t slab_bytes = passing ? PagePool::kSmallSlabBytes : PagePool::kMaxSlabBytes;
  pools.push_back(
      {layout, use, passing, std::make_unique<PagePool>(layout.page_bytes, &budget, slab_bytes)});
  return static_cast<int>(pools.size()) - 1;
}

const KvGeometry& Cache::geometry() const { return impl_->geometry; }
const KvSpec& Cache::spec() const { return impl_->spec; }
int Cache::page_tokens() const { return impl_->page_tokens; }
int Cache::window_pages() const { return impl_->window_pages; }
const PageLayout& Cache::stored_layout(int layer) const {
  return impl_->layers[static_cast<size_t>(layer)].stored;
}
const PageLayout& Cache::open_layout(int layer) const {
  return impl_->layers[static_cast<size_t>(layer)].open;
}

// ---- Sequences

Sequence* Cache::Impl::Find(SequenceId id) const {
  if (id < 0 || static_cast<size_t>(id) >= sequences.size()) return nullptr;
  return sequences[static_cast<size_t>(id)].get();
}

Status Cache::Impl::NoSequence(SequenceId id) const {
  return Status::NotFound("the cache holds no sequence " + std::to_string(id));
}

std::unique_ptr<Sequence> Cache::Impl::MakeSequence() const {
  auto seq = std::make_unique<Sequence>();
  seq->heads.resize(static_cast<size_t>(geometry.layers * geometry.kv_heads));
  seq->reservations.resize(pools.size());
  ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
    if (layer.mixed == nullptr) return;
    head.mixed = std::make_unique<MixedHead>();
    head.mixed->pools.resize(layer.mixed->pools.size());
    const size_t index = static_cast<size_t>(&head - seq->heads.data());
    head.mixed->policy = mixed_policies.empty() ? spec.mixed->policy.get() : mixed_policies[index];
    head.mixed->budget_bytes = streams(index) ? 0 : head_budget_bytes;
  });
  return seq;
}

SequenceId Cache::Impl::Adopt(std::unique_ptr<Sequence> seq) {
  auto slot = std::find(sequences.begin(), sequences.end(), nullptr);
  if (slot == sequences.end()) slot = sequences.insert(slot, nullptr);
  *slot = std::move(seq);
  return static_cast<SequenceId>(slot - sequences.begin());
}

Result<SequenceId> Cache::NewSequence() { return impl_->Adopt(impl_->MakeSequence()); }

int64_t Cache::length(SequenceId id) const {
  const Sequence* seq = impl_->Find(id);
  return seq == nullptr ? 0 : seq->length;
}

void Cache::Impl::Drop(int pool, std::byte** pages, int begin, int end,
                       PagePool::Reservation* credit) const {
  for (int p = begin; p < end; ++p) Pool(pool).Release(pages[p], credit);
}

void Cache::Impl::DropStored(const LayerStore& layer, HeadPages& head, int sealed) const {
  if (layer.mixed != nullptr) {
    ReopenPages(layer, head, sealed);
    return;
  }
  Drop(layer.stored_pool, head.stored, std::max(sealed, head.dropped_stored), head.sealed);
  head.sealed = std::min(head.sealed, sealed);
}

// Outside a step: the open pages have no gap.
void Cache::Impl::DropHead(const LayerStore& layer, HeadPages& head) const {
  Drop(layer.open_pool, head.open, head.first_open, head.open_end);
  if (layer.mixed != nullptr) {
    DropPools(layer, head);
  } else {
    Drop(layer.stored_pool, head.stored, head.first_stored, head.sealed);
  }
  if (head.sink != nullptr) Pool(layer.sink_pool).Release(head.sink);
  head.first_open = head.open_end = head.first_stored = head.sealed = 0;
  head.sink = nullptr;
}

void Cache::Impl::TrimPools() const {
  for (const PoolEntry& entry : pools) entry.pool->Trim();
}

Status Cache::Free(SequenceId id) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  Rollback(id);
  impl_->ForEachHead(
      *seq, [&](const LayerStore& layer, HeadPages& head) { impl_->DropHead(layer, head); });
  impl_->sequences[static_cast<size_t>(id)].reset();
  impl_->TrimPools();
  return Status::Ok();
}

}  // namespace kvant
