// Cache::Save and Cache::Restore: the pages of a sequence to a snapshot and back.
#include <cstring>
#include <new>

#include "base/aligned_buffer.h"
#include "base/byte_writer.h"
#include "base/xxh64.h"
#include "cache/cache_impl.h"
#include "cache/layer_writer.h"
#include "cache/snapshot.h"
#include "kvant/calibration.h"
#include "kvant/mixed_spec.h"

namespace kvant {
namespace {

std::string Shape(const KvGeometry& g) {
  return std::to_string(g.layers) + " layers of " + std::to_string(g.kv_heads) + " KV heads of " +
         std::to_string(g.head_dim) + " channels" +
         (g.is_latent() ? ", " + std::to_string(g.latent_dim) + " of them a latent," : "") +
         " for " + std::to_string(g.q_heads) + " query heads";
}

Status Differs(const std::string& what, const std::string& saved, const std::string& here) {
  return Status::InvalidArgument("the snapshot has " + what + saved + ", this cache " + here);
}

}  // namespace

// Of what the formats read; 0 where none reads one.
uint64_t Cache::Impl::CalibrationHash() const {
  const auto reads_one = [](const PageLayout& layout) {
    return layout.k.format.needs_calibration() || layout.v.format.needs_calibration();
  };
  const bool needed = std::any_of(layers.begin(), layers.end(), [&](const LayerStore& layer) {
    if (layer.mixed == nullptr) return reads_one(layer.stored);
    return std::any_of(layer.mixed->pools.begin(), layer.mixed->pools.end(),
                       [&](const MixedLayer::Pool& pool) { return reads_one(pool.layout); });
  });
  if (!needed) return 0;
  Xxh64Stream all;
  const auto number = [&](const auto& n) { all.Add(std::as_bytes(std::span(&n, 1))); };
  const auto array = [&](const auto& values) { all.Add(std::as_bytes(std::span(values))); };
  number(spec.calibration->model_hash);
  for (const LayerCalibration& layer : spec.calibration->layers) {
    for (const auto* side : {&layer.k_levels, &layer.v_levels}) {
      for (const FittedLevels& levels : *side) {
        number(levels.sigma);
        array(levels.levels);
      }
    }
    array(layer.k_factors);
    array(layer.k_rotation);
    array(layer.v_rotation);
  }
  return all.Hash();
}

// Pages that hold every layer's heads, which are all alike.
SnapshotHeader Cache::Impl::HeaderOf(const Sequence& seq, uint64_t model_hash) const {
  SnapshotHeader h;
  h.model_hash = model_hash;
  h.calibration_hash = CalibrationHash();
  h.geometry = geometry;
  h.kv.sinks_tokens = spec.sinks_tokens;
  h.kv.window_tokens = spec.window_tokens;
  h.page_tokens = page_tokens;
  h.length = seq.length;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const HeadPages& head = seq.heads[static_cast<size_t>(layer * geometry.kv_heads)];
    h.kv.layers.push_back(LayerFormats(spec, layer));
    h.windows.push_back(layers[static_cast<size_t>(layer)].window_tokens);
    // What a head has coded ahead it can code again, and one of several widths says for itself what
    // came beyond what is due.
    const PageRule& rule = layers[static_cast<size_t>(layer)].rule;
    h.stored.push_back({head.first_stored, rule.DuePages(seq.length)});
    h.open.push_back({head.first_open, head.open_end});
  }
  if (spec.mixed != nullptr) h.widths = WidthsOf(seq);
  return h;
}

Status Cache::Save(SequenceId id, const SnapshotLabel& label, const ByteSink& sink) const {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  KVANT_RETURN_IF_ERROR(CheckMixedSnapshot(impl_->spec));
  if (seq->step_tokens != 0) {
    return Status::InvalidArgument("sequence " + std::to_string(id) +
                                   " cannot be saved while a step of it is running");
  }
  KVANT_RETURN_IF_ERROR(impl_->CheckAllMass(*seq));
  if (!label.tokens.empty() && std::ssize(label.tokens) != seq->length) {
    return Status::InvalidArgument(std::to_string(label.tokens.size()) +
                                   " tokens are named of a sequence of " +
                                   std::to_string(seq->length));
  }
  int spare_bytes = 0;
  for (const LayerStore& layer : impl_->layers) {
    spare_bytes = std::max({spare_bytes, layer.open.page_bytes, layer.sink.page_bytes});
    for (size_t j = 0; layer.mixed != nullptr && j < layer.mixed->pools.size(); ++j) {
      spare_bytes = std::max(spare_bytes, layer.mixed->pools[j].layout.page_bytes);
    }
  }
  KVANT_ASSIGN_OR_RETURN(AlignedBuffer spare,
                         AlignedBuffer::Create(2 * static_cast<size_t>(spare_bytes)));
  std::fill_n(spare.data(), spare.bytes(), std::byte{0});
  KVANT_RETURN_IF_ERROR(sink(SnapshotFront(impl_->HeaderOf(*seq, label.model_hash), label)));
  for (int i = 0; i < impl_->geometry.layers; ++i) {
    const LayerStore& layer = impl_->layers[static_cast<size_t>(i)];
    LayerWriter writer(sink, spare.data(), spare.data() + spare_bytes);
    for (int h = 0; h < impl_->geometry.kv_heads; ++h) {
      const HeadPages& head = impl_->HeadOf(*seq, i, h);
      if (head.sink != nullptr) {
        const int64_t tokens = std::min<int64_t>(impl_->spec.sinks_tokens, seq->length);
        KVANT_RETURN_IF_ERROR(writer.Open(layer.sink, head.sink, tokens));
      }
      if (layer.mixed != nullptr) KVANT_RETURN_IF_ERROR(impl_->SavePools(layer, head, writer));
      const int due = impl_->DuePages(layer, head);
      for (int p = head.first_stored; layer.mixed == nullptr && p < due; ++p) {
        KVANT_RETURN_IF_ERROR(writer.Stored(layer.stored, head.stored[p]));
      }
      for (int p = head.first_open; p < head.open_end; ++p) {
        const int64_t tokens = seq->length - static_cast<int64_t>(p) * impl_->page_tokens;
        KVANT_RETURN_IF_ERROR(writer.Open(layer.open, head.open[p], tokens));
      }
    }
    KVANT_RETURN_IF_ERROR(writer.Finish());
  }
  return Status::Ok();
}

// ---- Restore

// Everything that could be wrong of a snapshot for this cache but memory.
Status Cache::Impl::CheckSnapshot(const SnapshotHeader& h) const {
  KVANT_RETURN_IF_ERROR(CheckMixedSnapshot(spec));
  if (h.geometry != geometry) return Differs("", Shape(h.geometry), Shape(geometry));
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair saved = h.kv.layers[static_cast<size_t>(layer)];
    const FormatPair here = LayerFormats(spec, layer);
    const auto text = [](const FormatPair& p) { return FormatSpec(p.k) + "/" + FormatSpec(p.v); };
    if (saved != here) {
      return Differs("layer " + std::to_string(layer) + " as ", text(saved), text(here));
    }
    const auto at = static_cast<size_t>(layer);
    if (h.windows[at] != layers[at].window_tokens) {
      return Differs("layer " + std::to_string(layer) + " with a window of ",
                     std::to_string(h.windows[at]), std::to_string(layers[at].window_tokens));
    }
  }
  if (h.kv.sinks_tokens != spec.sinks_tokens || h.kv.window_tokens != spec.window_tokens) {
    const auto text = [](const KvSpec& kv) {
      return std::to_string(kv.sinks_tokens) + " sinks and a window of " +
             std::to_string(kv.window_tokens);
    };
    return Differs("", text(h.kv), text(spec));
  }
  KVANT_RETURN_IF_ERROR(CheckSavedWidths(h.widths));
  if (h.calibration_hash != CalibrationHash()) {
    return Status::InvalidArgument("the snapshot was coded with another calibration");
  }
  if (h.length > context_tokens) {
    return Status::OutOfRange("the snapshot holds " + std::to_string(h.length) +
                              " tokens, more than the context of " +
                              std::to_string(context_tokens));
  }
  return Status::Ok();
}

// What was read stays in the table when a later page is refused.
Status Cache::Impl::ReadPages(const Snapshot& snapshot, Sequence& seq) const try {
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const LayerStore& store = layers[at];
    const std::byte* from = snapshot.pages[at].data();
    const auto read = [&](int pool, const PageLayout& layout) -> Result<std::byte*> {
      PagePool::Reservation& reserved = seq.reservations[static_cast<size_t>(pool)];
      KVANT_ASSIGN_OR_RETURN(std::byte * page, Pool(pool).Allocate(&reserved));
      std::memcpy(page, from, static_cast<size_t>(layout.page_bytes));
      from += layout.page_bytes;
      return page;
    };
    for (int h = 0; h < geometry.kv_heads; ++h) {
      HeadPages& head = HeadOf(seq, layer, h);
      if (store.sink_pool >= 0 && snapshot.header.HoldsSinks(layer)) {
        KVANT_ASSIGN_OR_RETURN(head.sink, read(store.sink_pool, store.sink));
      }
      if (store.mixed != nullptr) {
        KVANT_RETURN_IF_ERROR(
            ReadPools(snapshot.header.widths.HeadOf(layer, h), store, seq, head, from));
      } else {
        head.first_stored = head.sealed = snapshot.header.stored[at].first;
        for (; head.sealed < snapshot.header.stored[at].end; ++head.sealed) {
          KVANT_ASSIGN_OR_RETURN(head.stored[head.sealed], read(store.stored_pool, store.stored));
        }
      }
      head.first_open = head.open_end = snapshot.header.open[at].first;
      for (; head.open_end < snapshot.header.open[at].end; ++head.open_end) {
        KVANT_ASSIGN_OR_RETURN(head.open[head.open_end], read(store.open_pool, store.open));
      }
      head.written_tokens = seq.length;
    }
  }
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the lists of a restored sequence's tokens");
}

// Set aside in one piece a pool, so that slabs are as large as what they will hold.
Status Cache::Impl::ReserveSnapshot(const SnapshotHeader& h, Sequence& seq) const {
  std::vector<int64_t> demand(pools.size(), 0);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto add = [&](int pool, int64_t pages) {
      if (pool >= 0) demand[static_cast<size_t>(pool)] += pages * geometry.kv_heads;
    };
    add(layers[i].sink_pool, h.HoldsSinks(static_cast<int>(i)) ? 1 : 0);
    add(layers[i].stored_pool, h.stored[i].count());
    add(layers[i].open_pool, h.open[i].count());
    if (layers[i].mixed != nullptr) AddSavedPages(h.widths, static_cast<int>(i), demand);
  }
  for (size_t i = 0; i < pools.size(); ++i) {
    if (demand[i] == 0) continue;
    KVANT_RETURN_IF_ERROR(pools[i].pool->Reserve(demand[i], &seq.reservations[i]));
  }
  return Status::Ok();
}

Result<SequenceId> Cache::Restore(const Snapshot& snapshot) {
  KVANT_RETURN_IF_ERROR(impl_->CheckSnapshot(snapshot.header));
  std::unique_ptr<Sequence> seq = impl_->MakeSequence();
  seq->length = snapshot.header.length;
  if (seq->length == 0) return impl_->Adopt(std::move(seq));
  KVANT_RETURN_IF_ERROR(seq->EnsurePages(impl_->PagesOf(seq->length)));
  for (KeyRopeTable& rope : impl_->ropes) KVANT_RETURN_IF_ERROR(rope.Grow(seq->length));
  Status status = impl_->ReserveSnapshot(snapshot.header, *seq);
  if (status.ok()) status = impl_->ReadPages(snapshot, *seq);
  if (!status.ok()) {
    impl_->ForEachHead(
        *seq, [&](const LayerStore& layer, HeadPages& head) { impl_->DropHead(layer, head); });
  }
  impl_->CancelReservations(*seq);
  if (!status.ok()) return status;
  return impl_->Adopt(std::move(seq));
}

}  // namespace kvant
