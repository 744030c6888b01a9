// ModelConfig: the shape of a model, from a GGUF file's metadata, with every value checked.
#pragma once

#include <cstdint>
#include <string>

#include "gguf/gguf_file.h"
#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty
  int layers = 0;
  int embedding = 0;     // values of the residual stream
  int feed_forward = 0;  // values inside the feed-forward network
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;  // tokens
  int64_t context_tokens = 0;
  float rms_epsilon = 0;
  int rope_dims = 0;    // the first channels of a head, the ones that rotate
  float rope_base = 0;  // angle of pair i at position p: p / scale * base^(-2i / dims)
  float rope_position_scale = 1;

  int q_values() const { return q_heads * head_dim; }
  int kv_values() const { return kv_heads * head_dim; }
  KvGeometry geometry() const { return {layers, kv_heads, head_dim, q_heads}; }
};

// kUnsupported names an architecture, a rope scaling or a feature that the forward pass does not
// compute; kNotFound a missing key; kCorrupt a key whose value is impossible.
Result<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace kvant
