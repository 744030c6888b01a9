// ModelConfig: the shape of a model, from a GGUF file's metadata, with every value checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/view.h"
#include "gguf/gguf_file.h"
#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

enum class Activation { kSilu, kGelu };  // kGelu: by its tanh formula

// The angle of pair i at position p: p / position_scale * base^(-2i / dims).
struct RopeSpec {
  float base = 10000;
  float position_scale = 1;
  bool operator==(const RopeSpec&) const = default;
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty
  int layers = 0;
  int embedding = 0;     // values of the residual stream
  int feed_forward = 0;  // values inside the feed-forward network
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  // of the cache: with a latent, that and the channels that rotate
  int vocab = 0;     // tokens
  int64_t context_tokens = 0;
  float rms_epsilon = 0;
  float softmax_scale = 0;
  float embedding_scale = 1;  // of a token's embedding on its way into the residual stream
  Activation activation = Activation::kSilu;
  bool qkv_biases = false;  // q, k and v have a bias each
  bool qk_norms = false;    // every head of q and k is normed before it rotates
  bool post_norms = false;  // what attention and the feed-forward network add is normed too
  int rope_dims = 0;        // the first channels of a head, the ones that rotate
  // Multi-head latent attention (KvGeometry::latent_dim); 0 where there is none.
  int latent_dim = 0;
  int latent_q_dim = 0;  // what queries are computed from; 0: the residual stream
  int plain_dim = 0;     // channels of a head's query that do not rotate; the others follow them
  int value_dim = 0;     // channels that a head makes of its latent
  RopePairs rope_pairs = RopePairs::kNeighbours;
  std::vector<RopeSpec> ropes;         // [0] of layers without a window, [1] of those with one
  std::vector<int64_t> layer_windows;  // [layers] tokens seen, a token itself included; 0: all

  KvGeometry geometry() const { return {layers, kv_heads, head_dim, q_heads, latent_dim}; }
  int q_values() const { return q_heads * head_dim; }
  int k_values() const { return kv_heads * geometry().k_channels(); }
  int v_values() const { return kv_heads * geometry().v_channels(); }
  // What attention gives a token, and what of that the output projection takes.
  int attention_values() const { return q_heads * geometry().v_channels(); }
  int output_values() const { return latent_dim == 0 ? attention_values() : q_heads * value_dim; }
  size_t rope_of(int layer) const { return layer_windows[static_cast<size_t>(layer)] != 0; }
};

// kUnsupported names an architecture, a rope scaling or a feature that the forward pass does not
// compute; kNotFound a missing key; kCorrupt a key whose value is impossible.
Result<ModelConfig> ReadModelConfig(const GgufFile& file);

// ModelConfig::layer_windows of a file of `layers` layers, for files that need not be run
// otherwise.
Result<std::vector<int64_t>> ReadLayerWindows(const GgufFile& file, int layers);

}  // namespace kvant
