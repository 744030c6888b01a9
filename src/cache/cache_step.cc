// One step of a sequence: Reserve, then per head Append, Seal, Release, then Commit or Rollback.
#include <cassert>
#include <cmath>
#include <functional>

#include "base/aligned_buffer.h"
#include "cache/cache_impl.h"
#include "cache/token_writer.h"
#include "codec/codec.h"
#include "codec/rotation.h"

namespace kvant {
namespace {

std::string FloatName(FloatType type) {
  return type == FloatType::kF32 ? "f32" : type == FloatType::kF16 ? "f16" : "bf16";
}

std::string ValueName(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return std::to_string(value);
}

// Rotated copies of the rows of one head, which `rows` leads to from then on. The result owns them.
Result<AlignedBuffer> RotateRows(const LayerStore& store, int head_dim, int kv_head,
                                 int64_t new_tokens, HeadRows& rows) {
  const int64_t values = new_tokens * head_dim;
  KVANT_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                         AlignedBuffer::Create(static_cast<size_t>(2 * values) * sizeof(float)));
  const auto rotate = [&](const HeadRotations& rotations, float* to, const float*& from,
                          int64_t& stride) {
    if (rotations.empty()) return;
    const Rotation rotation = rotations.Of(kv_head, head_dim);
    for (int64_t t = 0; t < new_tokens; ++t) {
      float* row = to + t * head_dim;
      std::copy_n(from + t * stride, head_dim, row);
      Rotate(rotation, head_dim, row);
    }
    from = to;
    stride = head_dim;
  };
  rotate(store.to_key, buffer.as<float>(), rows.k, rows.k_stride);
  rotate(store.to_value, buffer.as<float>() + values, rows.v, rows.v_stride);
  return buffer;
}

}  // namespace

// ---- Reserve

int64_t Cache::max_step_tokens(SequenceId id) const {
  const Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return 0;
  const int64_t room = impl_->context_tokens - seq->length;
  if (impl_->spec.mixed == nullptr) return room;
  return std::min(room, impl_->page_tokens - seq->length % impl_->page_tokens);
}

Status Cache::Reserve(SequenceId id, int64_t new_tokens) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  const std::string name = "sequence " + std::to_string(id);
  if (seq->step_tokens != 0) {
    return Status::InvalidArgument("a step of " + name + " is already running");
  }
  if (new_tokens < 1) {
    return Status::InvalidArgument("a step of " + std::to_string(new_tokens) +
                                   " tokens adds nothing to " + name);
  }
  if (new_tokens > impl_->context_tokens - seq->length) {
    return Status::OutOfRange(name + " holds " + std::to_string(seq->length) + " tokens and " +
                              std::to_string(new_tokens) + " more exceed the context of " +
                              std::to_string(impl_->context_tokens));
  }
  if (new_tokens > max_step_tokens(id)) {
    return Status::InvalidArgument(
        "a step of " + std::to_string(new_tokens) + " tokens from position " +
        std::to_string(seq->length) + " of " + name +
        " leaves its page of 64: a cache of mixed widths takes at most " +
        std::to_string(max_step_tokens(id)) + " there");
  }
  KVANT_RETURN_IF_ERROR(seq->EnsurePages(impl_->PagesOf(seq->length + new_tokens)));
  for (KeyRopeTable& rope : impl_->ropes) {
    KVANT_RETURN_IF_ERROR(rope.Grow(seq->length + new_tokens));
  }
  seq->step_tokens = new_tokens;
  const Status status = impl_->ReservePages(*seq);
  if (!status.ok()) {
    impl_->CancelReservations(*seq);
    seq->step_tokens = 0;
  }
  return status;
}

// A page that is made and passed within the step is needed by one layer at a time.
void Cache::Impl::AddDemand(Sequence& seq, int layer_index, std::vector<PageDemand>& demand) const {
  const int64_t before = seq.length, after = seq.length + seq.step_tokens;
  const LayerStore& layer = layers[static_cast<size_t>(layer_index)];
  for (PageDemand& d : demand) d.layer_passing = 0;
  // Of pages [made, end), those from first_held on stay.
  const auto add = [&](int pool, int made, int end, int first_held) {
    if (pool < 0) return;
    PageDemand& d = demand[static_cast<size_t>(pool)];
    const int passed = std::clamp(first_held, made, end) - made;
    d.staying += end - made - passed;
    d.layer_passing += passed;
    d.passing = std::max(d.passing, d.layer_passing);
  };
  const PageRule& rule = layer.rule;
  for (int h = 0; h < geometry.kv_heads; ++h) {
    const HeadPages& head = HeadOf(seq, layer_index, h);
    add(layer.open_pool, PagesOf(before), PagesOf(after), rule.FirstOpen(after));
    const int sealed = SealedPages(seq, layer, head, before);
    add(layer.stored_pool, head.sealed, sealed, 0);
    add(layer.stored_pool, sealed, SealedPages(seq, layer, head, after), rule.FirstStored(after));
    if (before == 0) add(layer.sink_pool, 0, 1, 0);
  }
}

// Pages that stay are reserved before those that one layer needs for a moment: each demand makes
// slabs of its own, and those of the passing one become empty as a whole.
Status Cache::Impl::ReservePages(Sequence& seq) const {
  if (!OpensPages(seq) && !takes_turns) return Status::Ok();
  std::vector<PageDemand> demand(pools.size());
  for (int layer = 0; layer < geometry.layers; ++layer) AddDemand(seq, layer, demand);
  const auto reserve = [&](size_t pool, int64_t pages) {
    if (pages == 0) return Status::Ok();
    return pools[pool].pool->Reserve(pages, &seq.reservations[pool]);
  };
  for (size_t i = 0; i < pools.size(); ++i) KVANT_RETURN_IF_ERROR(reserve(i, demand[i].staying));
  for (size_t i = 0; i < pools.size(); ++i) KVANT_RETURN_IF_ERROR(reserve(i, demand[i].passing));
  return Status::Ok();
}

void Cache::Impl::CancelReservations(Sequence& seq) const {
  for (size_t i = 0; i < pools.size(); ++i) pools[i].pool->Cancel(&seq.reservations[i]);
}

// ---- Append

Status Cache::Append(SequenceId id, int layer, int kv_head, const float* k, int64_t k_stride,
                     const float* v, int64_t v_stride, int64_t new_tokens) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  const auto place = [&] {
    return " of layer " + std::to_string(layer) + ", KV head " + std::to_string(kv_head);
  };
  if (layer < 0 || layer >= impl_->geometry.layers || kv_head < 0 ||
      kv_head >= impl_->geometry.kv_heads) {
    return Status::InvalidArgument("the cache has no pages" + place());
  }
  HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  if (new_tokens != seq->step_tokens || head.written_tokens != seq->length) {
    return Status::InvalidArgument(
        "an append of " + std::to_string(new_tokens) + " tokens to K and V" + place() +
        " does not fit a step of " + std::to_string(seq->step_tokens) +
        (head.written_tokens == seq->length ? "" : ", which has been appended already"));
  }
  const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
  HeadRows rows{k, k_stride, v, v_stride};
  KVANT_RETURN_IF_ERROR(impl_->CheckRows(*seq, store, place, rows, new_tokens));
  if (store.rope >= 0) {
    const KeyRope rope = impl_->ropes[static_cast<size_t>(store.rope)].view();
    KVANT_RETURN_IF_ERROR(impl_->CheckPairs(*seq, rope, place, rows, new_tokens));
  }
  AlignedBuffer rotated;
  if (store.rotated()) {
    KVANT_ASSIGN_OR_RETURN(rotated,
                           RotateRows(store, impl_->geometry.head_dim, kv_head, new_tokens, rows));
    const auto rotated_place = [&] { return place() + ", rotated"; };
    KVANT_RETURN_IF_ERROR(impl_->CheckRows(*seq, store, rotated_place, rows, new_tokens));
  }
  KVANT_RETURN_IF_ERROR(impl_->MakePages(*seq, store, head));

  const auto write = [&](const PageLayout& layout, std::byte* page, int first, int64_t row,
                         int count) {
    WriteTokens(layout.k, page, first, count, rows.k + row * rows.k_stride, rows.k_stride);
    WriteTokens(layout.v, page + layout.v_offset_bytes, first, count, rows.v + row * rows.v_stride,
                rows.v_stride);
  };
  const int page_tokens = impl_->page_tokens;
  for (int64_t row = 0; row < new_tokens;) {
    const int64_t position = seq->length + row;
    const int first = static_cast<int>(position % page_tokens);
    const int count = static_cast<int>(std::min<int64_t>(new_tokens - row, page_tokens - first));
    write(store.open, head.open[position / page_tokens], first, row, count);
    row += count;
  }
  if (head.sink != nullptr && seq->length < impl_->spec.sinks_tokens) {
    const int64_t count = std::min(new_tokens, impl_->spec.sinks_tokens - seq->length);
    write(store.sink, head.sink, static_cast<int>(seq->length), 0, static_cast<int>(count));
  }
  head.written_tokens = seq->length + new_tokens;
  return Status::Ok();
}

// Every value must fit the type of the open pages. place: what the values belong to.
Status Cache::Impl::CheckRows(const Sequence& seq, const LayerStore& store,
                              const std::function<std::string()>& place, const HeadRows& rows,
                              int64_t new_tokens) const {
  const auto check = [&](const char* name, const SideLayout& side, const float* values,
                         int64_t stride) {
    const FloatType type = side.format.float_type;
    const auto bad = FindUnstorable(type, values, stride, new_tokens, side.head_dim);
    if (!bad) return Status::Ok();
    return Status::InvalidArgument(name + place() + ", position " +
                                   std::to_string(seq.length + bad->token) + ", channel " +
                                   std::to_string(bad->channel) + " is " + ValueName(bad->value) +
                                   ", which " + FloatName(type) + " cannot hold");
  };
  KVANT_RETURN_IF_ERROR(check("K", store.open.k, rows.k, rows.k_stride));
  return check("V", store.open.v, rows.v, rows.v_stride);
}

// Turned back, no channel of a pair may exceed what f16 holds.
Status Cache::Impl::CheckPairs(const Sequence& seq, const KeyRope& rope,
                               const std::function<std::string()>& place, const HeadRows& rows,
                               int64_t new_tokens) const {
  for (int64_t t = 0; t < new_tokens; ++t) {
    const float* const k = rows.k + t * rows.k_stride;
    for (int i = 0; i < rope.count; ++i) {
      const int first = rope.step * i, second = first + rope.to_partner;
      const float length = std::hypot(k[first], k[second]);
      if (length <= kMaxPairLength) continue;
      return Status::InvalidArgument(
          "K" + place() + ", position " + std::to_string(seq.length + t) + ", channels " +
          std::to_string(first) + " and " + std::to_string(second) + " have the length " +
          std::to_string(length) + ", which f16 cannot hold before RoPE");
    }
  }
  return Status::Ok();
}

// What was made stays in the table when a later page is refused: Rollback gives it back.
Status Cache::Impl::MakePages(Sequence& seq, const LayerStore& layer, HeadPages& head) const {
  const auto reservation = [&](int pool) { return &seq.reservations[static_cast<size_t>(pool)]; };
  const int end = PagesOf(seq.length + seq.step_tokens);
  for (int p = head.open_end; p < end; ++p) {
    KVANT_ASSIGN_OR_RETURN(head.open[p],
                           Pool(layer.open_pool).Allocate(reservation(layer.open_pool)));
    head.open_end = p + 1;
  }
  if (layer.sink_pool >= 0 && head.sink == nullptr && seq.length == 0) {
    KVANT_ASSIGN_OR_RETURN(head.sink, Pool(layer.sink_pool).Allocate(reservation(layer.sink_pool)));
  }
  return Status::Ok();
}

// ---- Seal and Release

Status Cache::Seal(SequenceId id, int layer, int kv_head) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
  HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  if (head.written_tokens != seq->length + seq->step_tokens) {
    return Status::InvalidArgument("layer " + std::to_string(layer) + ", KV head " +
                                   std::to_string(kv_head) + " is sealed before it is appended");
  }
  if (store.mixed != nullptr) return impl_->ClosePages(*seq, store, head);
  const int target = impl_->SealedPages(*seq, store, head, head.written_tokens);
  while (head.sealed < target) {
    const int p = head.sealed;
    KVANT_ASSIGN_OR_RETURN(
        std::byte * page,
        impl_->Pool(store.stored_pool)
            .Allocate(&seq->reservations[static_cast<size_t>(store.stored_pool)]));
    const int first_token = p == 0 ? impl_->spec.sinks_tokens : 0;
    const Status status = impl_->EncodeK(store, p, head.open[p], first_token, page);
    if (!status.ok()) {
      impl_->Pool(store.stored_pool)
          .Release(page, &seq->reservations[static_cast<size_t>(store.stored_pool)]);
      return status;
    }
    EncodeSide(store.open.v, head.open[p] + store.open.v_offset_bytes, store.stored.v, first_token,
               page + store.stored.v_offset_bytes);
    head.stored[p] = page;
    ++head.sealed;
  }
  return Status::Ok();
}

Status Cache::Impl::EncodeK(const LayerStore& store, int page, const std::byte* open,
                            int first_token, std::byte* stored) const {
  if (store.rope < 0) {
    EncodeSide(store.open.k, open, store.stored.k, first_token, stored);
    return Status::Ok();
  }
  KVANT_ASSIGN_OR_RETURN(AlignedBuffer before,
                         AlignedBuffer::Create(static_cast<size_t>(store.open.k.bytes)));
  TurnBack(ropes[static_cast<size_t>(store.rope)].view(), store.open.k, open,
           static_cast<int64_t>(page) * page_tokens, before.data());
  EncodeSide(store.open.k, before.data(), store.stored.k, first_token, stored);
  return Status::Ok();
}

void Cache::Release(SequenceId id, int layer, int kv_head) {
  Sequence* seq = impl_->Find(id);
  assert(seq != nullptr);
  impl_->ReleaseStepPages(*seq, impl_->layers[static_cast<size_t>(layer)],
                          impl_->HeadOf(*seq, layer, kv_head));
}

// Pages that were there before the step wait for Commit: Rollback may want them.
void Cache::Impl::ReleaseStepPages(Sequence& seq, const LayerStore& layer, HeadPages& head) const {
  const PageRule& rule = layer.rule;
  assert(head.sealed == SealedPages(seq, layer, head, head.written_tokens));
  if (!OpensPages(seq)) return;
  const auto release = [&](int pool, std::byte** pages, int made, int first_held, int& dropped) {
    const int begin = std::max(made, dropped);
    if (begin >= first_held) return;
    Drop(pool, pages, begin, first_held, &seq.reservations[static_cast<size_t>(pool)]);
    dropped = first_held;
  };
  release(layer.open_pool, head.open, PagesOf(seq.length), rule.FirstOpen(head.written_tokens),
          head.dropped);
  release(layer.stored_pool, head.stored, SealedPages(seq, layer, head, seq.length),
          rule.FirstStored(head.written_tokens), head.dropped_stored);
}

// ---- Commit and Rollback

// Gives back what was there before the step and what the new length does not need.
void Cache::Impl::CloseHead(const Sequence& seq, const LayerStore& layer, HeadPages& head) const {
  const PageRule& rule = layer.rule;
  const int64_t before = seq.length, after = seq.length + seq.step_tokens;
  const auto close = [&](int pool, std::byte** pages, int end, int first_held, int& first) {
    if (first_held <= first) return;
    Drop(pool, pages, first, std::min(first_held, end));
    first = first_held;
  };
  close(layer.open_pool, head.open, PagesOf(before), rule.FirstOpen(after), head.first_open);
  close(layer.stored_pool, head.stored, SealedPages(seq, layer, head, before),
        rule.FirstStored(after), head.first_stored);
  if (head.sink != nullptr && rule.FirstHeld(after) > 0) {
    Pool(layer.sink_pool).Release(head.sink);
    head.sink = nullptr;
  }
  head.dropped = head.dropped_stored = 0;
}

void Cache::Commit(SequenceId id, int64_t new_tokens) {
  Sequence* seq = impl_->Find(id);
  assert(seq != nullptr && seq->step_tokens == new_tokens);
  (void)new_tokens;
  const bool more_pages = impl_->OpensPages(*seq);
  if (more_pages) {
    impl_->ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
      impl_->ReleaseStepPages(*seq, layer, head);
      impl_->CloseHead(*seq, layer, head);
    });
  }
  if (measures_attention()) {
    impl_->ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
      if (layer.mixed != nullptr) impl_->CommitMass(head);
    });
  }
  impl_->CancelReservations(*seq);
  const int64_t after = seq->length + seq->step_tokens;
  const int64_t before = seq->length;
  seq->length = after;
  seq->step_tokens = 0;
  if (more_pages) impl_->Compact(*seq);
  if (more_pages || before / impl_->page_tokens != after / impl_->page_tokens) {
    impl_->Regroup(*seq, before);
  }
}

// A step leaves as many holes as the pages that waited for Commit; filling them from other slabs
// keeps what the pools hold near what is in use.
void Cache::Impl::Compact(Sequence& seq) const {
  for (size_t i = 0; i < pools.size(); ++i) {
    PagePool& pool = *pools[i].pool;
    if (!pools[i].passing || !pool.BeginCompaction()) continue;
    const auto relocate = [&](int from_pool, std::byte** pages, int begin, int end) {
      if (from_pool != static_cast<int>(i)) return;
      for (int p = begin; p < end; ++p) pages[p] = pool.Relocate(pages[p]);
    };
    ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
      relocate(layer.open_pool, head.open, head.first_open, head.open_end);
      relocate(layer.stored_pool, head.stored, head.first_stored, head.sealed);
    });
    pool.EndCompaction();
  }
}

void Cache::Rollback(SequenceId id) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr || seq->step_tokens == 0) return;
  const int pages = impl_->PagesOf(seq->length);
  impl_->ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
    impl_->Drop(layer.open_pool, head.open, std::max(pages, head.dropped), head.open_end);
    head.open_end = std::min(head.open_end, pages);
    impl_->DropStored(layer, head, impl_->SealedPages(*seq, layer, head, seq->length));
    head.dropped = head.dropped_stored = 0;
    if (head.mixed != nullptr) head.mixed->mass.next.clear();
    if (seq->length == 0 && head.sink != nullptr) {
      impl_->Pool(layer.sink_pool).Release(head.sink);
      head.sink = nullptr;
    }
    head.written_tokens = seq->length;
  });
  seq->step_tokens = 0;
  impl_->CancelReservations(*seq);
  impl_->TrimPools();
}

}  // namespace kvant
