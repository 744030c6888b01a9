// A cache of random tokens and a decode step over it, for benchmarks without a model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "format/page_layout.h"

namespace kvant {

// Keys and values of about unit variance; what they are does not matter to the time, only that no
// format finds them constant. They repeat after 2^20 values.
class RandomTokens {
 public:
  static constexpr int64_t kMaxRows = 512;  // of one call

  RandomTokens(int head_dim, uint64_t seed);

  int head_dim() const { return head_dim_; }
  // [kMaxRows][head_dim] of the positions from `position` on.
  const float* Rows(Side side, int64_t head, int64_t position) const;
  // `count` values of queries.
  std::vector<float> Queries(int64_t count) const;

 private:
  int head_dim_;
  std::vector<float> values_;
};

// `batch` sequences of `depth` tokens. Head h of layer l of sequence s holds the RandomTokens of
// head (s * layers + l) * kv_heads + h.
class FilledCache {
 public:
  static Result<FilledCache> Create(const KvGeometry& geometry, const KvSpec& spec, int64_t batch,
                                    int64_t depth, const RandomTokens& tokens);

  const Cache& cache() const { return *cache_; }
  int64_t bytes_read_per_step() const;
  // What the newest token's query sees.
  HeadView View(size_t sequence, int layer, int kv_head) const;

  // The newest token's queries against one layer, for every sequence and KV head.
  //   q, out         [sequences][q_heads][head_dim]; with a latent, out has its channels
  //   probabilities  [sequences][q_heads][tokens], or null
  void AddTasks(int layer, const float* q, float* out, float* probabilities,
                std::vector<AttentionTask>* tasks) const;

 private:
  Status Fill(size_t sequence, int64_t count, const RandomTokens& tokens);

  std::unique_ptr<Cache> cache_;
  std::vector<SequenceId> sequences_;
};

// What a step needs besides the cache. All layers share queries and outputs.
struct DecodeStage {
  std::unique_ptr<ThreadPool> pool;
  AttentionWorkspace workspace;
  std::vector<float> q, out, probabilities;  // the last empty where nobody asks for them
  std::vector<AttentionTask> tasks;
};

float UsualSoftmaxScale(int head_dim);
Status RunDecodeStep(const FilledCache& cache, DecodeStage& stage);

}  // namespace kvant
