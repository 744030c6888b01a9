// LatentHeads: what a layer with multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) does
// around the cache, in the absorbed form. With a head's keys W_k c and values W_v c of a latent c,
//   (W_k c) . q = c . (W_k^T q)   and   sum_t p_t W_v c_t = W_v (sum_t p_t c_t),
// so that keys and values are never made: queries come to the latents, and what they bring back
// becomes values.
//
// Thread rules: one call at a time. Uses the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kvant/status.h"
#include "matmul/activations.h"
#include "matmul/matmul.h"
#include "model/config.h"
#include "model/rope.h"
#include "model/weights.h"

namespace kvant {

class LatentHeads {
 public:
  // config must outlive it, and has a latent.
  static Result<LatentHeads> Create(const ModelConfig& config, ActivationMode mode,
                                    int64_t max_rows);

  // Of `rows` normed rows of the residual stream, as `normed` has them:
  //   q  [rows][q_heads][latent_dim + rope_dims], absorbed
  //   rope_key  [rows][rope_dims]   latent  [rows][latent_dim]
  void Project(ThreadPool& pool, const LayerWeights& layer, const RopeTable& rope,
               const Activations& normed, float* q, float* rope_key, float* latent);

  // values [rows][q_heads][value_dim] of weighted latents [rows][q_heads][latent_dim].
  void Expand(ThreadPool& pool, const LayerWeights& layer, const float* latents, int64_t rows,
              float* values);

 private:
  explicit LatentHeads(const ModelConfig& config) : config_(&config) {}

  // Input t of activations_ through the matrix of head t % q_heads: out [rows][q_heads][stride].
  void MatMulHeads(ThreadPool& pool, const std::vector<PackedMatrix>& matrices, float* out,
                   int64_t stride);

  const ModelConfig* config_;
  std::vector<const PackedMatrix*> matrices_;  // of one call, as outs_; kept for their memory
  std::vector<MatMulOutput> outs_;
  Activations activations_;
  AlignedBuffer floats_;      // all of the following, row-major
  float* q_low_ = nullptr;    // [max_rows][latent_q_dim]
  float* q_heads_ = nullptr;  // [max_rows][q_heads][plain_dim + rope_dims]
  float* joint_ = nullptr;    // [max_rows][latent_dim + rope_dims]
};

}  // namespace kvant
