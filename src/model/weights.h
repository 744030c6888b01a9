// ModelWeights: the tensors of a llama-family model, packed for the matmul kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kvant/model.h"
#include "kvant/status.h"
#include "matmul/packed_matrix.h"
#include "model/config.h"

namespace kvant {

struct LayerWeights {
  std::vector<float> attention_norm;          // [embedding]
  PackedMatrix q, k, v;                       // [heads * head_dim][embedding]
  std::vector<float> q_bias, k_bias, v_bias;  // [heads * head_dim]; empty as configured
  std::vector<float> q_norm, k_norm;          // [head_dim]; empty as configured
  // Multi-head latent attention has no k and v, but what makes a latent and a RoPE key, and of each
  // head what makes keys and values of a latent, kept as attention uses it: a query's plain part
  // becomes channels of the latent, weighted latents become values. q is behind q_a, if there is
  // one, and its rows are [heads * (plain_dim + rope_dims)].
  PackedMatrix q_a;                           // [latent_q_dim][embedding]; empty as configured
  PackedMatrix kv_a;                          // [latent_dim + rope_dims][embedding]
  std::vector<float> q_a_norm, latent_norm;   // [latent_q_dim], [latent_dim]
  std::vector<PackedMatrix> absorb;           // [q_heads] of [latent_dim][plain_dim]
  std::vector<PackedMatrix> expand;           // [q_heads] of [value_dim][latent_dim]
  PackedMatrix attention_output;              // [embedding][output_values()]
  std::vector<float> attention_post_norm;     // [embedding]; empty as configured
  std::vector<float> feed_forward_norm;       // [embedding]
  PackedMatrix gate, up;                      // [feed_forward][embedding]
  PackedMatrix down;                          // [embedding][feed_forward]
  std::vector<float> feed_forward_post_norm;  // [embedding]; empty as configured
};

// Immutable once loaded. Owns its bytes: the file may be closed.
struct ModelWeights {
  PackedMatrix embedding;  // [vocab][embedding]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [embedding]
  PackedMatrix output;             // [vocab][embedding]; empty when tied to the embedding
  bool tied = false;
  std::vector<float> rope_factors;     // [rope_dims / 2] the angle is divided by; empty: all 1
  std::vector<WeightTypeBytes> types;  // in order of first appearance
  int64_t parameters = 0;
  // What one decode step reads: all matrices once, of an untied embedding only a row, not counted.
  int64_t bytes_read_per_token = 0;

  const PackedMatrix& logits() const { return tied ? embedding : output; }

  // Everything held.
  int64_t packed_bytes() const;
};

// Checks that every tensor is there with the right shape and a type that kvant computes with, and
// that there is none whose meaning it does not know, before it allocates anything; then packs them
// one by one. kNotFound, kCorrupt or kUnsupported name the tensor; kOutOfMemory.
Result<ModelWeights> LoadWeights(const GgufFile& file, const ModelConfig& config, ThreadPool& pool);

}  // namespace kvant
