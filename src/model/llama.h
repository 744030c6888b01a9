// Llama: the forward pass of a llama-family transformer over a cache: llama itself, qwen2, qwen3,
// gemma3, deepseek2, as the config says what each does beyond the first.
//
// A step is a batch of parts: some sequences, each with the tokens that follow it. Every matrix is
// read once a step for all of them. What a row gets does not depend on the other rows, so results
// are bit-identical for every chunking of a prompt, every batch and every number of threads.
//
// Thread rules: one call at a time. Uses the pool, so nothing else may run on it meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "kvant/attention_mass.h"
#include "kvant/status.h"
#include "matmul/activations.h"
#include "matmul/matmul.h"
#include "model/config.h"
#include "model/latent_heads.h"
#include "model/rope.h"
#include "model/weights.h"

namespace kvant {

struct StepPart {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;  // at least one, each inside the vocabulary
  // Whether only the newest token's hidden state is asked for: a prompt's last layer is then
  // computed for that token alone, once the keys and values of all are stored.
  bool newest_only = false;
};

// What a layer of a step asks and stores, after the rotation by position: rows as in the step. Of
// models with a latent there is none.
struct LayerVectors {
  int layer = 0;
  int64_t rows = 0;
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  const float* q = nullptr;  // [rows][q_heads][head_dim]
  const float* k = nullptr;  // [rows][kv_heads][head_dim]
  const float* v = nullptr;

  const float* Query(int64_t row, int head) const { return q + (row * q_heads + head) * head_dim; }
  const float* Key(int64_t row, int head) const { return k + (row * kv_heads + head) * head_dim; }
  const float* Value(int64_t row, int head) const { return v + (row * kv_heads + head) * head_dim; }
};
using LayerObserver = std::function<void(const LayerVectors&)>;

class Llama {
 public:
  // config, weights, pool and cache must outlive it. max_rows bounds the tokens of a step.
  static Result<std::unique_ptr<Llama>> Create(const ModelConfig& config,
                                               const ModelWeights& weights, ActivationMode mode,
                                               int64_t max_rows, ThreadPool& pool, Cache& cache);

  // Appends the tokens of every part to its sequence. On error, or when *cancel becomes true on the
  // way (kCancelled; checked once a layer; cancel may be null), all sequences are as before.
  // REQUIRES: no sequence twice; tokens of all parts <= max_rows.
  Status Step(std::span<const StepPart> parts, const std::atomic<bool>* cancel);

  // The residual stream after the last layer of row `row` of the last step, the rows being the
  // tokens of the parts in order, or their newest where only those were asked for: [embedding].
  const float* hidden(int64_t row) const { return x_ + row * config_.embedding; }

  // Logits of rows of hidden states: out[rows][vocab]. REQUIRES: 1 <= rows <= max_rows. `hidden`
  // may be inside the last step's rows.
  void Logits(const float* hidden, int64_t rows, float* out);

  // Called in every layer of every step from then on, by the thread that runs the step; its vectors
  // are valid for the call. An empty observer: none. REQUIRES: the model has no latent.
  void Observe(LayerObserver observer) { observer_ = std::move(observer); }

  // Called in every layer of every step from then on, for the queries of one page after another,
  // part by part, by the thread that runs the step: of a part with newest_only, the newest query
  // alone in the last layer. Meanwhile parts do not read shared pages together. An empty observer:
  // none.
  void ObserveAttention(AttentionObserver observer) { attention_observer_ = std::move(observer); }
  bool observes_attention() const { return attention_observer_ != nullptr; }

  int64_t max_rows() const { return max_rows_; }

  // Bytes of cached keys and values that attention has read in all steps so far; pages that parts
  // of a step share count once a step.
  int64_t kv_bytes_read() const { return kv_bytes_read_; }

 private:
  Llama(const ModelConfig& config, const ModelWeights& weights, int64_t max_rows, ThreadPool& pool,
        Cache& cache);
  Status Allocate(ActivationMode mode);

  // Calls body(begin, end) for ranges of rows: on all threads where there is enough to do.
  template <typename Body>
  void ForRows(int64_t rows, const Body& body);

  Status ReserveAll(std::span<const StepPart> parts);
  void PlanRows(std::span<const StepPart> parts);
  Status RunLayers(std::span<const StepPart> parts, const std::atomic<bool>* cancel);
  void Embed();
  // What a block adds to the residual stream, one row of it: delta, normed if there is a weight.
  void AddDelta(int64_t row, const std::vector<float>& post_norm);
  // The residual stream gains delta_ (not if post_norm is null), and its norm goes to normed_,
  // quantised.
  void AddAndNorm(const std::vector<float>* post_norm, const std::vector<float>& weight);
  void ProjectQkv(const LayerWeights& layer, const RopeTable& rope);
  // What attention gave the rows, on its way into the residual stream: delta_.
  void ProjectOutput(const LayerWeights& layer);
  // Bias, norm and rotation of the heads of one row of q or k.
  void FinishHeads(int64_t row, int64_t values, const std::vector<float>& bias,
                   const std::vector<float>& norm, const RopeTable& rope, float* heads) const;
  Status StoreKv(std::span<const StepPart> parts, int layer);
  Status AttendAll(std::span<const StepPart> parts, int layer);
  // Tasks of all KV heads for the queries [begin, end), which lie in one page; the first is row
  // `row` of the step.
  void AddTasks(SequenceId sequence, int layer, int64_t begin, int64_t end, int64_t row);
  Status RunTasks();
  // Runs the tasks of one page of a part, and tells the cache and the observer of them.
  Status RunTasksObserved(SequenceId sequence, int part, int layer);
  // Drops the rows whose hidden states nobody asked for; q_ and x_ close up.
  void KeepWantedRows(std::span<const StepPart> parts);
  void ReleaseKv(std::span<const StepPart> parts, int layer);
  void FeedForward(const LayerWeights& layer);

  struct Row {
    int32_t token;
    int64_t position;
  };

  const ModelConfig& config_;
  const ModelWeights& weights_;
  const int64_t max_rows_;
  ThreadPool& pool_;
  Cache& cache_;
  std::vector<RopeTable> ropes_;  // as in the config
  std::optional<LatentHeads> latent_heads_;
  Activations activations_;
  AttentionWorkspace workspace_;
  LayerObserver observer_;
  AttentionObserver attention_observer_;
  AlignedBuffer probabilities_;  // of the page that is observed
  int64_t kv_bytes_read_ = 0;

  AlignedBuffer floats_;        // all of the following, row-major
  float* x_ = nullptr;          // [max_rows][embedding] the residual stream
  float* delta_ = nullptr;      // [max_rows][embedding] what a block adds to it
  float* normed_ = nullptr;     // [max_rows][embedding]
  float* q_ = nullptr;          // [max_rows][q_heads * head_dim]
  float* k_ = nullptr;          // [max_rows][k_values()] of the config
  float* v_ = nullptr;          // [max_rows][v_values()]
  float* attention_ = nullptr;  // [max_rows][attention_values()]
  float* values_ = nullptr;     // [max_rows][output_values()]; attention_ where there is no latent
  float* gate_ = nullptr;       // [max_rows][feed_forward]
  float* up_ = nullptr;         // [max_rows][feed_forward]

  // Of the step at hand; kept so that a step does not allocate.
  std::vector<Row> rows_;
  std::vector<AttentionTask> tasks_;
  std::vector<Status> statuses_;  // [parts * kv_heads]
};

}  // namespace kvant
