// What a Session is made of, for modules that stand above it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cache/cache.h"
#include "kvant/session.h"
#include "model/llama.h"

namespace kvant {

// What a session and its forks share.
struct SessionEngine {
  explicit SessionEngine(Model model_in) : model(std::move(model_in)) {}

  Model model;
  std::shared_ptr<ThreadPool> pool;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Llama> llama;
  int64_t context_tokens = 0;
  std::vector<float> batch_logits;  // of DecodeBatch: [sessions][vocab]
};

struct Session::Impl {
  Impl(std::shared_ptr<SessionEngine> engine_in, SequenceId sequence_in)
      : engine(std::move(engine_in)), sequence(sequence_in) {}
  ~Impl();

  int64_t length() const { return engine->cache->length(sequence); }
  Status Check(std::span<const int32_t> tokens) const;
  // Runs tokens as one step, at most max_rows of them. The rows stay in engine->llama.
  Status Step(std::span<const int32_t> tokens, const std::atomic<bool>* cancel);
  void TakeHidden(int64_t row);

  std::shared_ptr<SessionEngine> engine;
  SequenceId sequence;
  std::vector<float> hidden;  // of the last token; empty: there is none
  std::vector<float> logits;  // of the last token, once has_logits
  bool has_logits = false;
};

struct SessionMaker {
  // A session on a pool that others use too, though not at the same time.
  static Result<Session> Create(const Model& model, const SessionOptions& options,
                                std::shared_ptr<ThreadPool> pool);
  static Session Wrap(std::unique_ptr<Session::Impl> impl) { return Session(std::move(impl)); }
};

}  // namespace kvant
