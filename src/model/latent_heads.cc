#include "model/latent_heads.h"

#include <algorithm>

#include "model/elementwise.h"

namespace kvant {
Result<LatentHeads> LatentHeads::Create(const ModelConfig& config, ActivationMode mode,
                                        int64_t max_rows) {
  LatentHeads heads(config);
  const int64_t q_values = int64_t{config.q_heads} * (config.plain_dim + config.rope_dims);
  const int64_t q_low = PaddedFloats(max_rows * config.latent_q_dim);
  const int64_t q = PaddedFloats(max_rows * q_values),
                joint = PaddedFloats(max_rows * config.head_dim);
  KVANT_ASSIGN_OR_RETURN(
      heads.floats_, AlignedBuffer::Create(sizeof(float) * static_cast<size_t>(q_low + q + joint)));
  heads.q_low_ = heads.floats_.as<float>();
  heads.q_heads_ = heads.q_low_ + q_low;
  heads.joint_ = heads.q_heads_ + q;
  heads.matrices_.reserve(static_cast<size_t>(config.q_heads));
  heads.outs_.reserve(static_cast<size_t>(config.q_heads));
  // Of each head's vectors, which end in a group of their own; or of rows of q_low_.
  const int64_t widest = std::max(config.latent_dim, config.plain_dim) + kActivationGroup;
  KVANT_ASSIGN_OR_RETURN(
      heads.activations_,
      Activations::Create(max_rows, std::max<int64_t>(config.q_heads * widest, config.latent_q_dim),
                          mode));
  return heads;
}

void LatentHeads::MatMulHeads(ThreadPool& pool, const std::vector<PackedMatrix>& matrices,
                              float* out, int64_t stride) {
  matrices_.clear();
  outs_.clear();
  for (const PackedMatrix& matrix : matrices) {
    outs_.push_back({out + std::ssize(outs_) * stride, std::ssize(matrices) * stride});
    matrices_.push_back(&matrix);
  }
  MatMulEach(pool, matrices_, activations_, outs_);
}

void LatentHeads::Project(ThreadPool& pool, const LayerWeights& layer, const RopeTable& rope,
                          const Activations& normed, float* q, float* rope_key, float* latent) {
  const ModelConfig& c = *config_;
  const int64_t rows = normed.tokens();
  const int64_t head_values = c.plain_dim + c.rope_dims, q_values = c.q_heads * head_values;
  const bool has_low = c.latent_q_dim != 0;
  const PackedMatrix* const matrices[] = {&layer.kv_a, has_low ? &layer.q_a : &layer.q};
  const MatMulOutput outs[] = {
      {joint_, c.head_dim},
      has_low ? MatMulOutput{q_low_, c.latent_q_dim} : MatMulOutput{q_heads_, q_values}};
  MatMulMany(pool, matrices, normed, outs);
  if (has_low) {
    activations_.Set(pool, q_low_, c.latent_q_dim, rows, c.latent_q_dim, [&](int64_t r) {
      float* const x = q_low_ + r * c.latent_q_dim;
      RmsNorm(x, layer.q_a_norm.data(), c.latent_q_dim, c.rms_epsilon, x);
    });
    MatMul(pool, layer.q, activations_, q_heads_, q_values);
  }
  // Every head's plain part is one input of its own matrix; its RoPE part goes behind the result.
  activations_.Set(pool, q_heads_, head_values, rows * c.q_heads, c.plain_dim, [&](int64_t t) {
    float* const turned = q + t * c.head_dim + c.latent_dim;
    std::copy_n(q_heads_ + t * head_values + c.plain_dim, c.rope_dims, turned);
    rope.Rotate(t / c.q_heads, turned);
  });
  MatMulHeads(pool, layer.absorb, q, c.head_dim);
  pool.ParallelFor(rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = joint_ + r * c.head_dim;
      RmsNorm(x, layer.latent_norm.data(), c.latent_dim, c.rms_epsilon, latent + r * c.latent_dim);
      float* const key = rope_key + r * c.rope_dims;
      std::copy_n(x + c.latent_dim, c.rope_dims, key);
      rope.Rotate(r, key);
    }
  });
}

void LatentHeads::Expand(ThreadPool& pool, const LayerWeights& layer, const float* latents,
                         int64_t rows, float* values) {
  const ModelConfig& c = *config_;
  activations_.Set(pool, latents, c.latent_dim, rows * c.q_heads, c.latent_dim);
  MatMulHeads(pool, layer.expand, values, c.value_dim);
}

}  // namespace kvant
