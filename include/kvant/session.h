// Session: one timeline of tokens on a loaded model, with its keys and values in a quantised cache.
//
// Results do not depend on how a prompt is cut into chunks, on the number of threads or on what
// other sessions do: the same tokens give the same bits.
//
// Thread rules: one thread at a time for a session and all its forks together, which share a cache
// and a thread pool. Sessions made by Create are independent of each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvant/attention_mass.h"
#include "kvant/format.h"
#include "kvant/ledger.h"
#include "kvant/model.h"
#include "kvant/status.h"

namespace kvant {

struct SessionOptions {
  KvSpec kv;
  int64_t context_tokens = 0;   // longest timeline; 0: what the model was trained for
  int threads = 0;              // 0: one a core
  int chunk_tokens = 512;       // of a prompt, run together; 1 to 4096
  int64_t kv_budget_bytes = 0;  // upper bound of what the cache allocates; 0: none
};

// How a long call reports and is stopped. Both may be left out.
struct RunControl {
  std::function<void(int64_t done_tokens, int64_t total_tokens)> progress;
  const std::atomic<bool>* cancel = nullptr;  // may be set from any thread
};

// What goes of a timeline and what stays: tokens [0, keep) stay, the next `drop` go, and what
// follows moves down.
struct ContextShift {
  int64_t keep_tokens = 0, drop_tokens = 0;
};

class Session {
 public:
  // kInvalidArgument names an option or a part of the spec that is impossible; kOutOfMemory.
  static Result<Session> Create(const Model& model, const SessionOptions& options);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Appends tokens, chunk by chunk. kInvalidArgument names a token outside the vocabulary,
  // kOutOfRange both lengths when the context is too short; then nothing was appended. kCancelled
  // and kOutOfMemory leave the session valid with the chunks done so far: see length().
  Status Prefill(std::span<const int32_t> tokens, const RunControl& control = {});

  // Appends one token. The same errors; a session that fails is as before.
  Status Decode(int32_t token);

  // One token for each of several forks of one session, in one pass over the weights. All of them
  // are as before on error. kInvalidArgument unless they share a cache, each stands there once,
  // there are as many tokens, and at most chunk_tokens.
  static Status DecodeBatch(std::span<Session* const> sessions, std::span<const int32_t> tokens);

  // [vocab_size] of the token that follows the last one. Valid until the session changes.
  // kInvalidArgument when nothing was appended since the start, a Reset or a Truncate.
  Result<std::span<const float>> Logits();

  // A second timeline that shares what this one holds.
  Result<Session> Fork();
  // Drops the newest tokens; exact. kOutOfRange names the earliest length that is still possible.
  Status Truncate(int64_t length);
  // Back to no tokens at all.
  Status Reset();

  // The shift that makes room in a full context: about half of what follows the first keep_tokens
  // goes, or less where a layer's window would then see what it has given back. What stays is
  // rounded up to the sinks or to whole pages. kInvalidArgument when there are fewer than no tokens
  // to keep, kOutOfRange when context, keep and windows leave nothing to drop.
  Result<ContextShift> PlanShift(int64_t keep_tokens) const;
  // Drops tokens from the middle, as llama.cpp's context shift does: what follows keeps its keys
  // and values, at lower positions (Cache::Shift says what it costs by format). They were computed
  // while the model still saw what went, so the timeline is not one that was never longer. Logits
  // stay; an AttentionMass of this timeline has to be cleared. On error the session is as before.
  Status Shift(const ContextShift& shift);

  // Writes the timeline to a file (src/cache/snapshot.h), which appears whole or not at all. kIo.
  Status Save(const std::string& path) const;
  // Replaces the timeline by a saved one, bit for bit, logits included: what follows is what would
  // have followed. The file must come from the same model, formats, sinks, window and calibration;
  // each that differs is named (kInvalidArgument). kNotFound, kIo, kCorrupt, kUnsupported,
  // kOutOfRange where the context is too short, kOutOfMemory. On error the session is as before.
  Status Load(const std::string& path);

  // From then on calls the observer for each layer of each step of this session and of all that
  // share its cache: what attention gives each token. Queries come page by page, in the order of
  // position, on the thread that runs the step; the observer must not use the session. A step that
  // fails has told of some layers. Outputs stay the same to the bit; a step is slower, needs 4
  // bytes a query head, query of a page and cached token, and reads pages that sessions of a batch
  // share for each of them. An empty observer ends it.
  void ObserveAttention(AttentionObserver observer);

  const Model& model() const;
  int64_t length() const;                   // tokens
  std::span<const int32_t> tokens() const;  // of the timeline. Valid until the session changes.
  int64_t context_tokens() const;
  int threads() const;
  const KvSpec& kv() const;
  std::vector<FormatPair> layer_formats() const;  // effective, one a layer
  CacheLedger ledger() const;                     // of the cache: forks share it
  int64_t kv_bytes_read_per_token() const;        // by a decode step at this length, alone
  // By all steps so far of all sessions that share this one's cache: what attention read of the
  // cache, pages that the sessions of a DecodeBatch share once a step.
  int64_t kv_bytes_read() const;

  // Of the library itself.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  friend struct SessionMaker;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
