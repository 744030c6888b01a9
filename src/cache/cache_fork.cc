// Fork and Truncate: timelines that share pages.
//
// A page is written only by the sequence whose end lies in it, and that one must hold it alone.
// Fork shares everything and Truncate re-opens what may be shared; both then give the sequence its
// own copy of the page (and of the sinks) in which it goes on writing.
#include "cache/cache_impl.h"
#include "cache/page_copies.h"

namespace kvant {

// Gives the sequence its own copy of what it will write next at `length`. kOutOfMemory changes
// nothing.
Status Cache::Impl::MakeWritable(Sequence& seq, int64_t length) const {
  const bool open_partial = length % page_tokens != 0;
  const bool sink_partial = length < spec.sinks_tokens;
  PageCopies copies;
  Status status;
  ForEachHead(seq, [&](const LayerStore& layer, HeadPages& head) {
    if (status.ok() && open_partial) {
      status = copies.Add(&Pool(layer.open_pool), layer.open, head.open + PagesOf(length) - 1);
    }
    if (status.ok() && sink_partial && head.sink != nullptr) {
      status = copies.Add(&Pool(layer.sink_pool), layer.sink, &head.sink);
    }
  });
  if (status.ok()) copies.Apply();
  return status;
}

// REQUIRES: no step is running in `from`; the table of `to` is large enough.
void Cache::Impl::ShareHead(const LayerStore& layer, const HeadPages& from, HeadPages& to) const {
  to.written_tokens = from.written_tokens;
  to.first_open = from.first_open;
  to.open_end = from.open_end;
  to.first_stored = from.first_stored;
  to.sealed = from.sealed;
  to.sink = from.sink;
  for (int p = to.first_open; p < to.open_end; ++p) {
    to.open[p] = from.open[p];
    Pool(layer.open_pool).Share(to.open[p]);
  }
  if (layer.mixed != nullptr) SharePools(layer, from, to);
  for (int p = to.first_stored; layer.mixed == nullptr && p < to.sealed; ++p) {
    to.stored[p] = from.stored[p];
    Pool(layer.stored_pool).Share(to.stored[p]);
  }
  if (to.sink != nullptr) Pool(layer.sink_pool).Share(to.sink);
}

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
  const HeadPages* from = parent->heads.data();
  impl_->ForEachHead(*child, [&](const LayerStore& layer, HeadPages& to) {
    impl_->ShareHead(layer, *from++, to);
  });
  const Status status = impl_->MakeWritable(*child, child->length);
  if (!status.ok()) {
    impl_->ForEachHead(
        *child, [&](const LayerStore& layer, HeadPages& head) { impl_->DropHead(layer, head); });
    return status;
  }
  return impl_->Adopt(std::move(child));
}

int64_t Cache::earliest_truncate(SequenceId id) const {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return 0;
  if (measures_attention()) return seq->length;
  int64_t earliest = 0;
  impl_->ForEachHead(*seq, [&](const LayerStore& layer, const HeadPages& head) {
    earliest = std::max(earliest, layer.rule.EarliestCut(head.first_open, head.first_stored));
    // What has changed the pools for good must have been due.
    if (head.mixed != nullptr && head.sealed > 0 && !head.mixed->can_undo) {
      earliest = std::max(earliest,
                          int64_t{head.sealed + layer.rule.window_pages} * layer.rule.page_tokens);
    }
  });
  return earliest;
}

Status Cache::Impl::CheckTruncate(SequenceId id, int64_t length, int64_t earliest) const {
  const Sequence& seq = *Find(id);
  const auto refuse = [&](StatusCode code, const std::string& why) {
    return Status(code, "sequence " + std::to_string(id) + " cannot be cut to " +
                            std::to_string(length) + " tokens: " + why);
  };
  if (seq.step_tokens != 0) {
    return refuse(StatusCode::kInvalidArgument, "a step of it is running");
  }
  if (length < 0 || length > seq.length) {
    return refuse(StatusCode::kOutOfRange, "it holds " + std::to_string(seq.length));
  }
  if (length < seq.length && measures_attention()) {
    return refuse(StatusCode::kOutOfRange,
                  "policy " + spec.mixed->policy->name() +
                      " judges by attention, and what the newest queries gave is not taken back");
  }
  if (length < seq.length && length < earliest) {
    return refuse(StatusCode::kOutOfRange, "pages that it reads there are gone, " +
                                               std::to_string(earliest) + " is the earliest");
  }
  return Status::Ok();
}

Status Cache::Truncate(SequenceId id, int64_t length) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  KVANT_RETURN_IF_ERROR(impl_->CheckTruncate(id, length, earliest_truncate(id)));
  if (length == seq->length) return Status::Ok();
  if (length > 0) KVANT_RETURN_IF_ERROR(impl_->MakeWritable(*seq, length));
  const int pages = impl_->PagesOf(length);
  impl_->ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
    head.written_tokens = length;
    if (length == 0) {
      impl_->DropHead(layer, head);
      return;
    }
    impl_->Drop(layer.open_pool, head.open, pages, head.open_end);
    head.open_end = pages;
    impl_->DropStored(layer, head, impl_->SealedPages(*seq, layer, head, length));
  });
  seq->length = length;
  impl_->TrimPools();
  return Status::Ok();
}

}  // namespace kvant
