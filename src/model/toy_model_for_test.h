// A model so small that tests can make one: random weights in a GGUF file. toy_reference_for_test.h
// has its forward pass.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_writer.h"
#include "kvant/model.h"
#include "kvant/sampler.h"

namespace kvant {

struct ToyShape {
  std::string architecture = "llama";
  int layers = 2;
  int embedding = 32;
  int feed_forward = 48;
  int q_heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int vocab = 40;
  int rope_dims = 16;
  bool tied = false;
  int window_tokens = 0;  // of gemma3
  // Of deepseek2, which heeds neither kv_heads nor head_dim.
  int latent_dim = 0, latent_q_dim = 0;  // the second 0: queries come from the residual stream
  int plain_dim = 0, value_dim = 0;      // of a head
  bool joint_heads = false;              // keys and values of all heads are one tensor
};

// What the heads of a deepseek2 file have; no queries of low rank where latent_q is 0.
struct LatentWidths {
  int rope, latent, latent_q, plain, value;
};

inline ToyShape LatentShape(const LatentWidths& widths) {
  ToyShape shape;
  shape.architecture = "deepseek2";
  shape.rope_dims = widths.rope;
  shape.latent_dim = widths.latent;
  shape.latent_q_dim = widths.latent_q;
  shape.plain_dim = widths.plain;
  shape.value_dim = widths.value;
  return shape;
}

// Everything that will be in the file; tests change what they like before they write it.
struct ToyModel {
  struct Tensor {
    std::vector<int64_t> dims;  // row length first
    std::vector<float> values;
  };

  explicit ToyModel(const ToyShape& shape_in = {}, uint64_t seed = 1) : shape(shape_in) {
    RandomStream random(seed);
    const int64_t e = shape.embedding, f = shape.feed_forward, vocab = shape.vocab;
    numbers = {{Key("block_count"), shape.layers},
               {Key("context_length"), 512},
               {Key("embedding_length"), shape.embedding},
               {Key("feed_forward_length"), shape.feed_forward},
               {Key("attention.head_count"), shape.q_heads},
               {Key("rope.dimension_count"), shape.rope_dims}};
    shape.latent_dim == 0 ? AddHeadKeys() : AddLatentKeys();
    if (shape.window_tokens != 0) numbers[Key("attention.sliding_window")] = shape.window_tokens;
    floats = {{Key("attention.layer_norm_rms_epsilon"), 1e-5f}, {Key("rope.freq_base"), 1000.0f}};
    strings = {{"general.architecture", shape.architecture},
               {"tokenizer.ggml.model", "gpt2"},
               {"tokenizer.ggml.pre", "smollm"}};
    for (int i = 0; i < shape.vocab; ++i) spellings.push_back("t" + std::to_string(i));
    Add("token_embd.weight", {e, vocab}, 1.0, random);
    if (!shape.tied) Add("output.weight", {e, vocab}, 2.0, random);
    Add("output_norm.weight", {e}, 1.0, random);
    for (int layer = 0; layer < shape.layers; ++layer) {
      const std::string block = "blk." + std::to_string(layer) + ".";
      Add(block + "attn_norm.weight", {e}, 1.0, random);
      shape.latent_dim == 0 ? AddHeads(block, random) : AddLatentHeads(block, random);
      Add(block + "ffn_norm.weight", {e}, 1.0, random);
      Add(block + "ffn_gate.weight", {e, f}, 1.0, random);
      Add(block + "ffn_up.weight", {e, f}, 1.0, random);
      Add(block + "ffn_down.weight", {f, e}, 1.0, random);
      AddExtras(block, random);
    }
  }

  std::string Key(const std::string& name) const { return shape.architecture + "." + name; }

  void AddHeadKeys() {
    numbers[Key("attention.head_count_kv")] = shape.kv_heads;
    numbers[Key("attention.key_length")] = shape.head_dim;
    numbers[Key("attention.value_length")] = shape.head_dim;
  }
  // As files have them today: the usual names say what is cached.
  void AddLatentKeys() {
    numbers[Key("attention.head_count_kv")] = 1;
    numbers[Key("attention.kv_lora_rank")] = shape.latent_dim;
    if (shape.latent_q_dim != 0) numbers[Key("attention.q_lora_rank")] = shape.latent_q_dim;
    numbers[Key("attention.key_length")] = shape.latent_dim + shape.rope_dims;
    numbers[Key("attention.value_length")] = shape.latent_dim;
    numbers[Key("attention.key_length_mla")] = shape.plain_dim + shape.rope_dims;
    numbers[Key("attention.value_length_mla")] = shape.value_dim;
  }

  void AddHeads(const std::string& block, RandomStream& random) {
    const int64_t e = shape.embedding;
    const int64_t q = shape.q_heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    Add(block + "attn_q.weight", {e, q}, 2.0, random);  // sharp enough for attention to matter
    Add(block + "attn_k.weight", {e, kv}, 2.0, random);
    Add(block + "attn_v.weight", {e, kv}, 1.0, random);
    Add(block + "attn_output.weight", {q, e}, 1.0, random);
  }
  void AddLatentHeads(const std::string& block, RandomStream& random) {
    const int64_t e = shape.embedding, heads = shape.q_heads, latent = shape.latent_dim;
    const int64_t plain = shape.plain_dim, rope = shape.rope_dims, value = shape.value_dim;
    if (shape.latent_q_dim == 0) {
      Add(block + "attn_q.weight", {e, heads * (plain + rope)}, 2.0, random);
    } else {
      const int64_t low = shape.latent_q_dim;
      Add(block + "attn_q_a.weight", {e, low}, 1.0, random);
      Add(block + "attn_q_a_norm.weight", {low}, 1.0, random);
      Add(block + "attn_q_b.weight", {low, heads * (plain + rope)}, 2.0, random);
    }
    Add(block + "attn_kv_a_mqa.weight", {e, latent + rope}, 2.0, random);
    Add(block + "attn_kv_a_norm.weight", {latent}, 1.0, random);
    if (shape.joint_heads) {
      Add(block + "attn_kv_b.weight", {latent, heads * (plain + value)}, 1.5, random);
    } else {
      Add(block + "attn_k_b.weight", {plain, latent, heads}, 2.0, random);
      Add(block + "attn_v_b.weight", {latent, value, heads}, 1.0, random);
    }
    Add(block + "attn_output.weight", {heads * value, e}, 1.0, random);
  }

  // What an architecture has in a layer beyond llama.
  void AddExtras(const std::string& block, RandomStream& random) {
    const int64_t e = shape.embedding, d = shape.head_dim;
    const int64_t q = shape.q_heads * d, kv = shape.kv_heads * d;
    const std::string& name = shape.architecture;
    if (name == "qwen2") {
      Add(block + "attn_q.bias", {q}, 1.0, random);
      Add(block + "attn_k.bias", {kv}, 1.0, random);
      Add(block + "attn_v.bias", {kv}, 1.0, random);
    }
    if (name == "qwen3" || name == "gemma3") {
      Add(block + "attn_q_norm.weight", {d}, 1.0, random);
      Add(block + "attn_k_norm.weight", {d}, 1.0, random);
    }
    if (name == "gemma3") {
      Add(block + "post_attention_norm.weight", {e}, 1.0, random);
      Add(block + "post_ffw_norm.weight", {e}, 1.0, random);
    }
  }

  // Rows of about unit length times `gain`; vectors about 1.
  void Add(const std::string& name, std::vector<int64_t> dims, double gain, RandomStream& random) {
    const int64_t count =
        std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    Tensor tensor{dims, std::vector<float>(static_cast<size_t>(count))};
    const double spread = gain * std::sqrt(3.0 / static_cast<double>(dims[0]));
    for (float& value : tensor.values) {
      const double uniform = 2 * random.NextUnit() - 1;
      value = static_cast<float>(dims.size() == 1 ? 1 + 0.3 * uniform : spread * uniform);
    }
    tensors[name] = std::move(tensor);
  }

  std::vector<std::byte> ToBytes() const {
    GgufWriter writer;
    Write(writer);
    return writer.ToBytes();
  }

  // Into the test's temporary folder; returns the path.
  std::string WriteFile(const std::string& name) const {
    GgufWriter writer;
    Write(writer);
    const std::string path = testing::TempDir() + "kvant_toy_" + name + ".gguf";
    const Status status = writer.WriteFile(path);
    EXPECT_TRUE(status.ok()) << status.message();
    return path;
  }

  Result<Model> Load(const std::string& name, const ModelOptions& options = {}) const {
    return Model::Load(WriteFile(name), options);
  }

  ToyShape shape;
  std::map<std::string, int64_t> numbers;
  std::map<std::string, float> floats;
  std::map<std::string, bool> bools;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<uint32_t>> arrays;
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> spellings;  // [vocab]

 private:
  void Write(GgufWriter& writer) const {
    const auto ok = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    for (const auto& [key, value] : numbers) ok(writer.AddU32(key, static_cast<uint32_t>(value)));
    for (const auto& [key, value] : floats) ok(writer.AddF32(key, value));
    for (const auto& [key, value] : bools) ok(writer.AddBool(key, value));
    for (const auto& [key, value] : strings) ok(writer.AddString(key, value));
    for (const auto& [key, value] : arrays) ok(writer.AddU32Array(key, value));
    ok(writer.AddStringArray("tokenizer.ggml.tokens",
                             std::vector<std::string_view>(spellings.begin(), spellings.end())));
    ok(writer.AddStringArray("tokenizer.ggml.merges", std::vector<std::string_view>{}));
    for (const auto& [name, tensor] : tensors) {
      ok(writer.AddTensor(name, WeightType::kF32, tensor.dims,
                          std::as_bytes(std::span<const float>(tensor.values))));
    }
  }
};

inline std::vector<int32_t> ToyTokens(int64_t count, int vocab, uint64_t seed = 7) {
  RandomStream random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.Next() % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

}  // namespace kvant
