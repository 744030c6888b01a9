#include "model/llama.h"

#include <algorithm>
#include <cstring>

#include "model/elementwise.h"

namespace kvant {
namespace {

// Rows times embedding below which a fork costs more than it saves.
constexpr int64_t kParallelValues = 8192;

// Rows that a part still has: all its tokens, or, once the last layer has stored them, the wanted.
int64_t RowsOf(const StepPart& part, bool last_layer) {
  return last_layer && part.newest_only ? 1 : static_cast<int64_t>(part.tokens.size());
}

bool Cancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

}  // namespace

Llama::Llama(const ModelConfig& config, const ModelWeights& weights, int64_t max_rows,
             ThreadPool& pool, Cache& cache)
    : config_(config), weights_(weights), max_rows_(max_rows), pool_(pool), cache_(cache) {
  for (const RopeSpec& rope : config.ropes) {
    ropes_.emplace_back(MakeRope(rope, config.rope_dims, config.rope_pairs, weights.rope_factors),
                        max_rows);
  }
}

Result<std::unique_ptr<Llama>> Llama::Create(const ModelConfig& config, const ModelWeights& weights,
                                             ActivationMode mode, int64_t max_rows,
                                             ThreadPool& pool, Cache& cache) {
  std::unique_ptr<Llama> llama(new Llama(config, weights, max_rows, pool, cache));
  KVANT_RETURN_IF_ERROR(llama->Allocate(mode));
  return llama;
}

Status Llama::Allocate(ActivationMode mode) {
  struct Part {
    float** pointer;
    int64_t columns;
  };
  const int64_t embedding = config_.embedding, feed_forward = config_.feed_forward;
  const bool has_latent = config_.latent_dim != 0;
  const int64_t outputs = config_.output_values();
  const Part parts[] = {{&x_, embedding},
                        {&delta_, embedding},
                        {&normed_, embedding},
                        {&q_, config_.q_values()},
                        {&k_, config_.k_values()},
                        {&v_, config_.v_values()},
                        {&gate_, feed_forward},
                        {&up_, feed_forward},
                        {&attention_, config_.attention_values()},
                        {&values_, has_latent ? outputs : 0}};
  int64_t values = 0;
  for (const Part& part : parts) values += PaddedFloats(max_rows_ * part.columns);
  KVANT_ASSIGN_OR_RETURN(floats_,
                         AlignedBuffer::Create(sizeof(float) * static_cast<size_t>(values)));
  float* at = floats_.as<float>();
  for (const Part& part : parts) {
    *part.pointer = at;
    at += PaddedFloats(max_rows_ * part.columns);
  }
  KVANT_ASSIGN_OR_RETURN(
      activations_,
      Activations::Create(max_rows_, std::max({embedding, outputs, feed_forward}), mode));
  if (!has_latent) {
    values_ = attention_;
    return Status::Ok();
  }
  KVANT_ASSIGN_OR_RETURN(latent_heads_, LatentHeads::Create(config_, mode, max_rows_));
  return Status::Ok();
}

template <typename Body>
void Llama::ForRows(int64_t rows, const Body& body) {
  if (rows * config_.embedding < kParallelValues) {
    body(int64_t{0}, rows);
  } else {
    pool_.ParallelFor(rows, body);
  }
}

Status Llama::Step(std::span<const StepPart> parts, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(ReserveAll(parts));
  PlanRows(parts);
  const Status status = RunLayers(parts, cancel);
  for (const StepPart& part : parts) {
    if (status.ok()) {
      cache_.Commit(part.sequence, static_cast<int64_t>(part.tokens.size()));
    } else {
      cache_.Rollback(part.sequence);
    }
  }
  return status;
}

Status Llama::ReserveAll(std::span<const StepPart> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Status status =
        cache_.Reserve(parts[i].sequence, static_cast<int64_t>(parts[i].tokens.size()));
    if (status.ok()) continue;
    for (size_t j = 0; j < i; ++j) cache_.Rollback(parts[j].sequence);
    return status;
  }
  return Status::Ok();
}

void Llama::PlanRows(std::span<const StepPart> parts) {
  rows_.clear();
  for (const StepPart& part : parts) {
    int64_t position = cache_.length(part.sequence);
    for (const int32_t token : part.tokens) rows_.push_back({token, position++});
  }
  statuses_.assign(parts.size() * static_cast<size_t>(config_.kv_heads), Status::Ok());
}

Status Llama::RunLayers(std::span<const StepPart> parts, const std::atomic<bool>* cancel) {
  Embed();
  const std::vector<float>* post_norm = nullptr;
  for (int i = 0; i < config_.layers; ++i) {
    if (Cancelled(cancel)) return Status::Cancelled("cancelled by the caller");
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
    AddAndNorm(post_norm, layer.attention_norm);
    ProjectQkv(layer, ropes_[config_.rope_of(i)]);
    if (observer_) {
      observer_({.layer = i,
                 .rows = static_cast<int64_t>(rows_.size()),
                 .q_heads = config_.q_heads,
                 .kv_heads = config_.kv_heads,
                 .head_dim = config_.head_dim,
                 .q = q_,
                 .k = k_,
                 .v = v_});
    }
    KVANT_RETURN_IF_ERROR(StoreKv(parts, i));
    if (i + 1 == config_.layers) KeepWantedRows(parts);
    KVANT_RETURN_IF_ERROR(AttendAll(parts, i));
    ReleaseKv(parts, i);
    ProjectOutput(layer);
    AddAndNorm(&layer.attention_post_norm, layer.feed_forward_norm);
    FeedForward(layer);
    post_norm = &layer.feed_forward_post_norm;
  }
  ForRows(static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) AddDelta(r, *post_norm);
  });
  return Status::Ok();
}

void Llama::Embed() {
  ForRows(static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const Row& row = rows_[static_cast<size_t>(r)];
      float* const x = x_ + r * config_.embedding;
      weights_.embedding.DecodeRow(row.token, x);
      if (config_.embedding_scale != 1.0f) ScaleBy(config_.embedding_scale, config_.embedding, x);
      for (RopeTable& rope : ropes_) rope.Fill(r, row.position);
    }
  });
}

void Llama::AddDelta(int64_t row, const std::vector<float>& post_norm) {
  const int64_t n = config_.embedding;
  float* const delta = delta_ + row * n;
  if (!post_norm.empty()) RmsNorm(delta, post_norm.data(), n, config_.rms_epsilon, delta);
  AddTo(delta, n, x_ + row * n);
}

void Llama::AddAndNorm(const std::vector<float>* post_norm, const std::vector<float>& weight) {
  const int64_t n = config_.embedding, rows = static_cast<int64_t>(rows_.size());
  activations_.Set(pool_, normed_, n, rows, n, [&](int64_t r) {
    if (post_norm != nullptr) AddDelta(r, *post_norm);
    RmsNorm(x_ + r * n, weight.data(), n, config_.rms_epsilon, normed_ + r * n);
  });
}

void Llama::FinishHeads(int64_t row, int64_t values, const std::vector<float>& bias,
                        const std::vector<float>& norm, const RopeTable& rope, float* heads) const {
  const int64_t n = config_.head_dim;
  if (!bias.empty()) AddTo(bias.data(), values, heads);
  for (int64_t c = 0; c < values; c += n) {
    if (!norm.empty()) RmsNorm(heads + c, norm.data(), n, config_.rms_epsilon, heads + c);
    rope.Rotate(row, heads + c);
  }
}

void Llama::ProjectQkv(const LayerWeights& layer, const RopeTable& rope) {
  if (latent_heads_) {
    latent_heads_->Project(pool_, layer, rope, activations_, q_, k_, v_);
    return;
  }
  const int64_t q_values = config_.q_values(), kv_values = config_.k_values();
  const PackedMatrix* const matrices[] = {&layer.q, &layer.k, &layer.v};
  const MatMulOutput outs[] = {{q_, q_values}, {k_, kv_values}, {v_, kv_values}};
  MatMulMany(pool_, matrices, activations_, outs);
  ForRows(static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      FinishHeads(r, q_values, layer.q_bias, layer.q_norm, rope, q_ + r * q_values);
      FinishHeads(r, kv_values, layer.k_bias, layer.k_norm, rope, k_ + r * kv_values);
      if (!layer.v_bias.empty()) AddTo(layer.v_bias.data(), kv_values, v_ + r * kv_values);
    }
  });
}

void Llama::ProjectOutput(const LayerWeights& layer) {
  const int64_t n = config_.output_values(), rows = static_cast<int64_t>(rows_.size());
  if (latent_heads_) latent_heads_->Expand(pool_, layer, attention_, rows, values_);
  activations_.Set(pool_, values_, n, rows, n);
  MatMul(pool_, layer.attention_output, activations_, delta_, config_.embedding);
}

Status Llama::StoreKv(std::span<const StepPart> parts, int layer) {
  const int64_t heads = config_.kv_heads;
  const int64_t k_values = config_.k_values(), v_values = config_.v_values();
  const auto store = [&](int64_t begin, int64_t end) {  // of (part, head), head the faster
    int64_t item = 0, row = 0;
    for (const StepPart& part : parts) {
      const int64_t tokens = static_cast<int64_t>(part.tokens.size());
      for (int head = 0; head < heads; ++head, ++item) {
        if (item < begin || item >= end) continue;
        const float* const k = k_ + row * k_values + head * (k_values / heads);
        const float* const v = v_ + row * v_values + head * (v_values / heads);
        Status& status = statuses_[static_cast<size_t>(item)];
        status = cache_.Append(part.sequence, layer, head, k, k_values, v, v_values, tokens);
        if (status.ok()) status = cache_.Seal(part.sequence, layer, head);
      }
      row += tokens;
    }
  };
  const int64_t items = static_cast<int64_t>(statuses_.size());
  if (static_cast<int64_t>(rows_.size()) * config_.embedding < kParallelValues) {
    store(0, items);
  } else {
    pool_.ParallelFor(items, store);
  }
  for (const Status& status : statuses_) KVANT_RETURN_IF_ERROR(status);
  return Status::Ok();
}

void Llama::KeepWantedRows(std::span<const StepPart> parts) {
  const int64_t q_values = config_.q_values(), embedding = config_.embedding;
  int64_t from = 0, to = 0;
  for (const StepPart& part : parts) {
    const int64_t tokens = static_cast<int64_t>(part.tokens.size()), rows = RowsOf(part, true);
    from += tokens - rows;
    for (int64_t r = 0; r < rows; ++r, ++from, ++to) {
      if (from == to) continue;
      std::memcpy(q_ + to * q_values, q_ + from * q_values, sizeof(float) * q_values);
      std::memcpy(x_ + to * embedding, x_ + from * embedding, sizeof(float) * embedding);
      rows_[static_cast<size_t>(to)] = rows_[static_cast<size_t>(from)];
    }
  }
  rows_.resize(static_cast<size_t>(to));
}

Status Llama::AttendAll(std::span<const StepPart> parts, int layer) {
  const int64_t page_tokens = cache_.page_tokens();
  tasks_.clear();
  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    const int64_t end = cache_.length(part.sequence) + static_cast<int64_t>(part.tokens.size());
    for (int64_t position = end - RowsOf(part, layer + 1 == config_.layers); position < end;) {
      const int64_t stop = std::min(end, (position / page_tokens + 1) * page_tokens);
      AddTasks(part.sequence, layer, position, stop, row);
      row += stop - position;
      position = stop;
      if (!attention_observer_ && !cache_.measures_attention(layer)) continue;
      KVANT_RETURN_IF_ERROR(RunTasksObserved(part.sequence, static_cast<int>(i), layer));
      tasks_.clear();
    }
  }
  return tasks_.empty() ? Status::Ok() : RunTasks();
}

void Llama::AddTasks(SequenceId sequence, int layer, int64_t begin, int64_t end, int64_t row) {
  const int64_t q_values = config_.q_values(), out_values = config_.attention_values();
  const int64_t kv_heads = config_.kv_heads;
  for (int head = 0; head < kv_heads; ++head) {
    tasks_.push_back({.view = cache_.View(sequence, layer, head, begin / cache_.page_tokens()),
                      .first_position = begin,
                      .queries = static_cast<int>(end - begin),
                      .group_ratio = static_cast<int>(config_.q_heads / kv_heads),
                      .window_tokens = config_.layer_windows[static_cast<size_t>(layer)],
                      .q = q_ + row * q_values + head * (q_values / kv_heads),
                      .q_query_stride = q_values,
                      .out = attention_ + row * out_values + head * (out_values / kv_heads),
                      .out_query_stride = out_values});
  }
}

Status Llama::RunTasks() {
  KVANT_RETURN_IF_ERROR(Attend(pool_, tasks_, config_.head_dim, config_.softmax_scale, workspace_));
  kv_bytes_read_ += workspace_.plan().read_bytes();
  return Status::Ok();
}

Status Llama::RunTasksObserved(SequenceId sequence, int part, int layer) {
  const AttentionTask& first = tasks_[0];
  const int64_t tokens = first.view.end_position(), stride = PaddedFloats(tokens);
  const size_t bytes =
      sizeof(float) * static_cast<size_t>(config_.kv_heads * first.rows() * stride);
  if (probabilities_.bytes() < bytes) {
    KVANT_ASSIGN_OR_RETURN(probabilities_, AlignedBuffer::Create(bytes));
  }
  float* to = probabilities_.as<float>();
  for (AttentionTask& task : tasks_) {
    task.probabilities = to;
    task.probability_stride = stride;
    to += task.rows() * stride;
  }
  KVANT_RETURN_IF_ERROR(RunTasks());
  for (int head = 0; head < config_.kv_heads; ++head) {
    const AttentionTask& task = tasks_[static_cast<size_t>(head)];
    if (cache_.measures_attention(layer)) {
      KVANT_RETURN_IF_ERROR(cache_.AddAttention(sequence, layer, head, task.probabilities, stride));
    }
    if (!attention_observer_) continue;
    KVANT_RETURN_IF_ERROR(
        cache_.SortByPosition(sequence, layer, head, task.rows(), stride, task.probabilities));
  }
  if (!attention_observer_) return Status::Ok();
  attention_observer_({.layer = layer,
                       .part = part,
                       .first_position = first.first_position,
                       .queries = first.queries,
                       .q_heads = config_.q_heads,
                       .kv_heads = config_.kv_heads,
                       .tokens = tokens,
                       .probabilities = probabilities_.as<float>(),
                       .stride = stride});
  return Status::Ok();
}

void Llama::ReleaseKv(std::span<const StepPart> parts, int layer) {
  for (const StepPart& part : parts) {
    for (int head = 0; head < config_.kv_heads; ++head) cache_.Release(part.sequence, layer, head);
  }
}

void Llama::FeedForward(const LayerWeights& layer) {
  const int64_t n = config_.feed_forward, rows = static_cast<int64_t>(rows_.size());
  const PackedMatrix* const matrices[] = {&layer.gate, &layer.up};
  const MatMulOutput outs[] = {{gate_, n}, {up_, n}};
  MatMulMany(pool_, matrices, activations_, outs);
  const auto times = config_.activation == Activation::kGelu ? GeluTimes : SiluTimes;
  activations_.Set(pool_, gate_, n, rows, n,
                   [&](int64_t r) { times(up_ + r * n, n, gate_ + r * n); });
  MatMul(pool_, layer.down, activations_, delta_, config_.embedding);
}

void Llama::Logits(const float* hidden, int64_t rows, float* out) {
  const int64_t n = config_.embedding;
  activations_.Set(pool_, normed_, n, rows, n, [&](int64_t r) {
    RmsNorm(hidden + r * n, weights_.output_norm.data(), n, config_.rms_epsilon, normed_ + r * n);
  });
  MatMul(pool_, weights_.logits(), activations_, out, config_.vocab);
}

}  // namespace kvant
