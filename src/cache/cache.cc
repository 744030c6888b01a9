#include "cache/cache.h"

#include <cassert>
#include <cstring>

#include "cache/cache_impl.h"
#include "kvant/isa.h"

namespace kvant {

// ---- Creation

Result<std::unique_ptr<Cache>> Cache::Create(const KvGeometry& geometry, const KvSpec& spec,
                                             int64_t context_tokens, int64_t budget_bytes) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckKvSpec(spec, geometry));
  constexpr int64_t kMaxContext = int64_t{1} << 30;  // positions are ints
  if (context_tokens < 1 || context_tokens > kMaxContext) {
    return Status::InvalidArgument("a context of " + std::to_string(context_tokens) +
                                   " tokens is not between 1 and 2^30");
  }
  if (budget_bytes < 0) {
    return Status::InvalidArgument("a KV budget of " + std::to_string(budget_bytes) +
                                   " bytes is negative");
  }
  auto impl = std::make_unique<Impl>(geometry, spec, context_tokens, budget_bytes);
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair formats = LayerFormats(spec, layer);
    impl->page_tokens = std::max(impl->page_tokens, PageTokensFor(formats.k, formats.v));
  }
  impl->window_pages = DivideUp(spec.window_tokens, impl->page_tokens);
  for (int layer = 0; layer < geometry.layers; ++layer) impl->AddLayer(LayerFormats(spec, layer));
  return std::unique_ptr<Cache>(new Cache(std::move(impl)));
}

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;

void Cache::Impl::AddLayer(const FormatPair& formats) {
  LayerStore layer;
  layer.coded = !formats.k.is_float() || !formats.v.is_float();
  layer.stored = MakePageLayout(formats.k, formats.v, geometry.head_dim, page_tokens);
  if (!layer.coded) {
    layer.open = layer.stored;
    layer.open_pool = PoolFor(layer.open, PageUse::kKept);
  } else {
    const FormatPair open = OpenFormats(formats);
    layer.open = MakePageLayout(open.k, open.v, geometry.head_dim, page_tokens);
    layer.open_pool = PoolFor(layer.open, PageUse::kOpen);
    layer.stored_pool = PoolFor(layer.stored, PageUse::kStored);
    if (spec.sinks_tokens > 0) {
      const int tokens = DivideUp(spec.sinks_tokens, kLaneBlock) * kLaneBlock;
      layer.sink = MakePageLayout(open.k, open.v, geometry.head_dim, tokens);
      layer.sink_pool = PoolFor(layer.sink, PageUse::kSink);
    }
  }
  layers.push_back(layer);
}

int Cache::Impl::PoolFor(const PageLayout& layout, PageUse use) {
  for (size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].use == use && pools[i].layout == layout) return static_cast<int>(i);
  }
  const int64_t slab_bytes =
      use == PageUse::kOpen ? PagePool::kSmallSlabBytes : PagePool::kMaxSlabBytes;
  pools.push_back(
      {layout, use, std::make_unique<PagePool>(layout.page_bytes, &budget, slab_bytes)});
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

// Outside a step: the open pages have no gap.
void Cache::Impl::DropHead(const LayerStore& layer, HeadPages& head) const {
  Drop(layer.open_pool, head.open, head.first_open, head.open_end);
  Drop(layer.stored_pool, head.stored, 0, head.sealed);
  if (head.sink != nullptr) Pool(layer.sink_pool).Release(head.sink);
  head.first_open = head.open_end = head.sealed = 0;
  head.sink = nullptr;
}

void Cache::Impl::TrimPools() const {
  for (const PoolEntry& entry : pools) entry.pool->Trim();
}

Status Cache::Free(SequenceId id) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  Rollback(id);
  for (int layer = 0; layer < impl_->geometry.layers; ++layer) {
    for (int head = 0; head < impl_->geometry.kv_heads; ++head) {
      impl_->DropHead(impl_->layers[static_cast<size_t>(layer)], impl_->HeadOf(*seq, layer, head));
    }
  }
  impl_->sequences[static_cast<size_t>(id)].reset();
  impl_->TrimPools();
  return Status::Ok();
}

namespace {

// Pages that have to be copied because they will be written while another sequence holds them:
// allocated all before anything changes, given back if that fails or they stay unused.
class Copies {
 public:
  ~Copies() {
    for (const Copy& c : copies_) {
      if (c.done) continue;
      c.pool->Release(c.to);
      c.pool->Trim();
    }
  }
  // Remembers to replace *slot by a copy of `from`.
  Status Add(PagePool* pool, const PageLayout& layout, const std::byte* from, std::byte** slot) {
    KVANT_ASSIGN_OR_RETURN(std::byte * to, pool->Allocate());
    copies_.push_back({pool, static_cast<size_t>(layout.page_bytes), from, to, slot, false});
    return Status::Ok();
  }
  // `release_old`: the slots held a reference to what was copied.
  void Apply(bool release_old) {
    for (Copy& c : copies_) {
      std::memcpy(c.to, c.from, c.bytes);
      if (release_old) c.pool->Release(c.from);
      *c.slot = c.to;
      c.done = true;
    }
  }

 private:
  struct Copy {
    PagePool* pool;
    size_t bytes;
    const std::byte* from;
    std::byte* to;
    std::byte** slot;
    bool done;
  };
  std::vector<Copy> copies_;
};

}  // namespace

Result<SequenceId> Cache::Fork(SequenceId id) {
  Sequence* parent = impl_->Find(id);
  if (parent == nullptr) return impl_->NoSequence(id);
  if (parent->step_tokens != 0) {
    return Status::InvalidArgument("sequence " + std::to_string(id) +
                                   " cannot be forked while a step of it is running");
  }
  std::unique_ptr<Sequence> child = impl_->MakeSequence();
  child->length = parent->length;
  KVANT_RETURN_IF_ERROR(child->EnsurePages(impl_->PagesOf(parent->length)));
  const bool open_partial = parent->length % impl_->page_tokens != 0;
  const bool sink_partial = parent->length < impl_->spec.sinks_tokens;
  Copies copies;
  for (size_t i = 0; i < child->heads.size(); ++i) {
    const LayerStore& layer = impl_->layers[i / static_cast<size_t>(impl_->geometry.kv_heads)];
    const HeadPages& from = parent->heads[i];
    HeadPages& to = child->heads[i];
    if (open_partial) {
      const int last = from.open_end - 1;
      KVANT_RETURN_IF_ERROR(
          copies.Add(&impl_->Pool(layer.open_pool), layer.open, from.open[last], to.open + last));
    }
    if (sink_partial && from.sink != nullptr) {
      KVANT_RETURN_IF_ERROR(
          copies.Add(&impl_->Pool(layer.sink_pool), layer.sink, from.sink, &to.sink));
    }
  }
  copies.Apply(/*release_old=*/false);
  for (size_t i = 0; i < child->heads.size(); ++i) {
    const LayerStore& layer = impl_->layers[i / static_cast<size_t>(impl_->geometry.kv_heads)];
    const HeadPages& from = parent->heads[i];
    HeadPages& to = child->heads[i];
    to.written_tokens = from.written_tokens;
    to.first_open = from.first_open;
    to.open_end = from.open_end;
    to.sealed = from.sealed;
    for (int p = from.first_open; p < from.open_end - (open_partial ? 1 : 0); ++p) {
      to.open[p] = from.open[p];
      impl_->Pool(layer.open_pool).Share(to.open[p]);
    }
    for (int p = 0; p < from.sealed; ++p) {
      to.stored[p] = from.stored[p];
      impl_->Pool(layer.stored_pool).Share(to.stored[p]);
    }
    if (from.sink != nullptr && !sink_partial) {
      to.sink = from.sink;
      impl_->Pool(layer.sink_pool).Share(to.sink);
    }
  }
  return impl_->Adopt(std::move(child));
}

// ---- Truncation

int64_t Cache::earliest_truncate(SequenceId id) const {
  const Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return 0;
  int first = 0;
  for (const HeadPages& head : seq->heads) first = std::max(first, head.first_open);
  // Page `first` must not be stored yet at the new length.
  return first == 0 ? 0
                    : static_cast<int64_t>(first + impl_->window_pages) * impl_->page_tokens + 1;
}

Status Cache::Truncate(SequenceId id, int64_t length) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  const auto refuse = [&](StatusCode code, const std::string& why) {
    return Status(code, "sequence " + std::to_string(id) + " cannot be cut to " +
                            std::to_string(length) + " tokens: " + why);
  };
  if (seq->step_tokens != 0) {
    return refuse(StatusCode::kInvalidArgument, "a step of it is running");
  }
  if (length < 0 || length > seq->length) {
    return refuse(StatusCode::kOutOfRange, "it holds " + std::to_string(seq->length));
  }
  if (length == seq->length) return Status::Ok();
  if (const int64_t earliest = earliest_truncate(id); length < earliest) {
    return refuse(StatusCode::kOutOfRange,
                  "the pages as written are gone, the earliest possible "
                  "length is " +
                      std::to_string(earliest));
  }
  const int pages = impl_->PagesOf(length), sealed = impl_->SealedPages(length);
  const bool open_partial = length % impl_->page_tokens != 0;
  const bool sink_partial = length < impl_->spec.sinks_tokens && length > 0;
  const auto kv_heads = static_cast<size_t>(impl_->geometry.kv_heads);
  Copies copies;
  for (size_t i = 0; i < seq->heads.size(); ++i) {
    const LayerStore& layer = impl_->layers[i / kv_heads];
    HeadPages& head = seq->heads[i];
    PagePool& open_pool = impl_->Pool(layer.open_pool);
    if (open_partial && open_pool.IsShared(head.open[pages - 1])) {
      KVANT_RETURN_IF_ERROR(
          copies.Add(&open_pool, layer.open, head.open[pages - 1], head.open + (pages - 1)));
    }
    if (sink_partial && head.sink != nullptr && impl_->Pool(layer.sink_pool).IsShared(head.sink)) {
      KVANT_RETURN_IF_ERROR(
          copies.Add(&impl_->Pool(layer.sink_pool), layer.sink, head.sink, &head.sink));
    }
  }
  copies.Apply(/*release_old=*/true);
  for (size_t i = 0; i < seq->heads.size(); ++i) {
    const LayerStore& layer = impl_->layers[i / kv_heads];
    HeadPages& head = seq->heads[i];
    head.written_tokens = length;
    if (length == 0) {
      impl_->DropHead(layer, head);
      continue;
    }
    impl_->Drop(layer.open_pool, head.open, pages, head.open_end);
    head.open_end = pages;
    if (layer.coded) {
      impl_->Drop(layer.stored_pool, head.stored, sealed, head.sealed);
      head.sealed = sealed;
    }
  }
  seq->length = length;
  impl_->TrimPools();
  return Status::Ok();
}

}  // namespace kvant
