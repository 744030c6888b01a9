// What a Session is made of, for modules that stand above it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "kvant/session.h"
#include "model/llama.h"

namespace kvant {

// Memory for logits that outlives what it is used for: sessions hold rows of it for as long as they
// need them, and it is used again once none does.
class LogitRows {
 public:
  // [values] that nobody else reads or writes. kOutOfMemory.
  Result<std::shared_ptr<float>> Take(int64_t values);

 private:
  std::shared_ptr<AlignedBuffer> buffer_;
};

// What a session and its forks share.
struct SessionEngine {
  explicit SessionEngine(Model model_in) : model(std::move(model_in)) {}

  Model model;
  std::shared_ptr<ThreadPool> pool;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Llama> llama;
  int64_t context_tokens = 0;
  LogitRows batch_logits;  // of DecodeBatch
};

struct Session::Impl {
  Impl(std::shared_ptr<SessionEngine> engine_in, SequenceId sequence_in)
      : engine(std::move(engine_in)), sequence(sequence_in) {}
  ~Impl();

  int64_t length() const { return engine->cache->length(sequence); }
  // The longest Step that may follow.
  int64_t max_step_tokens() const {
    return std::min(engine->llama->max_rows(), engine->cache->max_step_tokens(sequence));
  }
  Status Check(std::span<const int32_t> added) const;
  // Appends tokens as one step, at most max_step_tokens(). The rows stay in engine->llama: all, or
  // the newest token's alone.
  Status Step(std::span<const int32_t> added, const std::atomic<bool>* cancel,
              bool newest_only = false);
  // That `added` are part of the timeline now, and the last one's hidden state is row `row`.
  void TakeStep(std::span<const int32_t> added, int64_t row);

  std::shared_ptr<SessionEngine> engine;
  SequenceId sequence;
  std::vector<int32_t> tokens;          // [length()]
  std::vector<float> hidden;            // of the last token; empty: there is none
  std::shared_ptr<const float> logits;  // [vocab_size] of the last token; null: not computed yet
  LogitRows own_logits;
};

// How each layer turns its keys.
std::vector<Rope> LayerRopes(const ModelConfig& config, const ModelWeights& weights);

struct SessionMaker {
  // A session on a pool that others use too, though not at the same time.
  static Result<Session> Create(const Model& model, const SessionOptions& options,
                                std::shared_ptr<ThreadPool> pool);
  static Session Wrap(std::unique_ptr<Session::Impl> impl) { return Session(std::move(impl)); }
};

}  // namespace kvant
