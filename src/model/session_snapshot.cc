// Session::Save and Session::Load: the timeline as a snapshot of its sequence, with its tokens and
// the hidden state of the last one.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/xxh64.h"
#include "cache/snapshot.h"
#include "gguf/atomic_file.h"
#include "gguf/mapped_file.h"
#include "kvant/session.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

Status CheckModel(uint64_t saved, uint64_t here) {
  if (saved == here) return Status::Ok();
  return Status::InvalidArgument("was saved with another model: its file hash is " +
                                 HashText(saved) + ", this model's " + HashText(here));
}

// What the cache does not check.
Status CheckTimeline(const Snapshot& snapshot, int vocab, int64_t embedding) {
  if (std::ssize(snapshot.tokens) != snapshot.header.length) {
    return Status::Corrupt("does not name its tokens");
  }
  for (const int32_t token : snapshot.tokens) {
    if (token >= 0 && token < vocab) continue;
    return Status::Corrupt("names token " + std::to_string(token) + " of a vocabulary of " +
                           std::to_string(vocab));
  }
  const size_t bytes = static_cast<size_t>(embedding) * sizeof(float);
  if (snapshot.state.empty() || snapshot.state.size() == bytes) return Status::Ok();
  return Status::Corrupt("has a hidden state of " + std::to_string(snapshot.state.size()) +
                         " bytes where the model has " + std::to_string(bytes));
}

Status About(const std::string& path, const Status& status) {
  return status.ok() ? status : Status(status.code(), path + ": " + status.message());
}

}  // namespace

Status Session::Save(const std::string& path) const {
  KVANT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  const SnapshotLabel label{.model_hash = model().file_hash(),
                            .tokens = impl_->tokens,
                            .state = std::as_bytes(std::span(impl_->hidden))};
  KVANT_RETURN_IF_ERROR(impl_->engine->cache->Save(
      impl_->sequence, label, [&](std::span<const std::byte> bytes) { return file.Write(bytes); }));
  return file.Commit();
}

Status Session::Load(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Result<Snapshot> snapshot = ParseSnapshot(file.bytes());
  if (!snapshot.ok()) return About(path, snapshot.status());
  const Model& model = impl_->engine->model;
  KVANT_RETURN_IF_ERROR(About(path, CheckModel(snapshot->header.model_hash, model.file_hash())));
  KVANT_RETURN_IF_ERROR(
      About(path, CheckTimeline(*snapshot, model.vocab_size(), model.impl().config.embedding)));
  std::vector<float> hidden(snapshot->state.size() / sizeof(float));
  if (!hidden.empty()) {
    std::memcpy(hidden.data(), snapshot->state.data(), snapshot->state.size());
  }
  const Result<SequenceId> restored = impl_->engine->cache->Restore(*snapshot);
  if (!restored.ok()) return About(path, restored.status());

  // Nothing from here on can fail, or the restored sequence would have no owner.
  impl_->tokens = std::move(snapshot->tokens);
  impl_->hidden = std::move(hidden);
  impl_->logits.reset();
  return impl_->engine->cache->Free(std::exchange(impl_->sequence, *restored));
}

}  // namespace kvant
