#include "eval/filled_cache.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

constexpr int64_t kPeriodValues = 1 << 20;

}  // namespace

RandomTokens::RandomTokens(int head_dim, uint64_t seed) : head_dim_(head_dim) {
  values_.resize(static_cast<size_t>(kPeriodValues + kMaxRows * head_dim));
  uint64_t state = seed;
  for (size_t i = 0; i < static_cast<size_t>(kPeriodValues); ++i) {
    float sum = 0;
    for (int part = 0; part < 4; ++part) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5f;
    }
    values_[i] = sum * std::sqrt(3.0f);
  }
  std::copy_n(values_.begin(), kMaxRows * head_dim, values_.begin() + kPeriodValues);
}

const float* RandomTokens::Rows(Side side, int64_t head, int64_t position) const {
  const int64_t start = (2 * head + (side == Side::kV ? 1 : 0)) * 19'997;
  return values_.data() + (start + position * head_dim_) % kPeriodValues;
}

std::vector<float> RandomTokens::Queries(int64_t count) const {
  std::vector<float> q(static_cast<size_t>(count));
  for (size_t i = 0; i < q.size(); ++i) q[i] = values_[(i + 777'777) % kPeriodValues];
  return q;
}

Result<FilledCache> FilledCache::Create(const KvGeometry& geometry, const KvSpec& spec,
                                        int64_t batch, int64_t depth, const RandomTokens& tokens) {
  FilledCache filled;
  KVANT_ASSIGN_OR_RETURN(filled.cache_,
                         Cache::CreateWithoutModel(geometry, spec, {.context_tokens = depth}));
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    KVANT_ASSIGN_OR_RETURN(const SequenceId sequence, filled.cache_->NewSequence());
    filled.sequences_.push_back(sequence);
    for (int64_t done = 0; done < depth;) {
      const int64_t count = std::min(
          {RandomTokens::kMaxRows, depth - done, filled.cache_->max_step_tokens(sequence)});
      KVANT_RETURN_IF_ERROR(filled.Fill(i, count, tokens));
      done += count;
    }
  }
  return filled;
}

Status FilledCache::Fill(size_t sequence, int64_t count, const RandomTokens& tokens) {
  const KvGeometry& g = cache_->geometry();
  const SequenceId id = sequences_[sequence];
  const int64_t position = cache_->length(id);
  KVANT_RETURN_IF_ERROR(cache_->Reserve(id, count));
  int64_t head = static_cast<int64_t>(sequence) * g.layers * g.kv_heads;
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int h = 0; h < g.kv_heads; ++h, ++head) {
      const float* const k = tokens.Rows(Side::kK, head, position);
      const float* const v = tokens.Rows(Side::kV, head, position);
      KVANT_RETURN_IF_ERROR(
          cache_->Append(id, layer, h, k, g.k_channels(), v, g.v_channels(), count));
      KVANT_RETURN_IF_ERROR(cache_->Seal(id, layer, h));
      cache_->Release(id, layer, h);
    }
  }
  cache_->Commit(id, count);
  return Status::Ok();
}

int64_t FilledCache::bytes_read_per_step() const {
  int64_t bytes = 0;
  for (SequenceId sequence : sequences_) bytes += cache_->bytes_read_per_token(sequence);
  return bytes;
}

HeadView FilledCache::View(size_t sequence, int layer, int kv_head) const {
  const SequenceId id = sequences_[sequence];
  return cache_->View(id, layer, kv_head, (cache_->length(id) - 1) / cache_->page_tokens());
}

void FilledCache::AddTasks(int layer, const float* q, float* out, float* probabilities,
                           std::vector<AttentionTask>* tasks) const {
  const KvGeometry& g = cache_->geometry();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const int64_t position = cache_->length(sequences_[i]) - 1;
    for (int head = 0; head < g.kv_heads; ++head) {
      const int64_t first_row = static_cast<int64_t>(i) * g.q_heads + head * g.group_ratio();
      AttentionTask task;
      task.view = View(i, layer, head);
      task.first_position = position;
      task.queries = 1;
      task.group_ratio = g.group_ratio();
      task.q = q + first_row * g.head_dim;
      task.q_query_stride = int64_t{g.q_heads} * g.head_dim;
      task.out = out + first_row * g.v_channels();
      task.out_query_stride = int64_t{g.q_heads} * g.v_channels();
      task.probability_stride = position + 1;
      if (probabilities != nullptr) {
        task.probabilities = probabilities + first_row * task.probability_stride;
      }
      tasks->push_back(task);
    }
  }
}

float UsualSoftmaxScale(int head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

Status RunDecodeStep(const FilledCache& cache, DecodeStage& stage) {
  const KvGeometry& g = cache.cache().geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    stage.tasks.clear();
    float* const probabilities = stage.probabilities.empty() ? nullptr : stage.probabilities.data();
    cache.AddTasks(layer, stage.q.data(), stage.out.data(), probabilities, &stage.tasks);
    KVANT_RETURN_IF_ERROR(Attend(*stage.pool, stage.tasks, g.head_dim,
                                 UsualSoftmaxScale(g.head_dim), stage.workspace));
  }
  return Status::Ok();
}

}  // namespace kvant
