// A llama so small that tests can make one: random weights in a GGUF file, and the same forward
// pass written again in double, plainly and without a cache.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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
  int layers = 2;
  int embedding = 32;
  int feed_forward = 48;
  int q_heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int vocab = 40;
  int rope_dims = 16;
  bool tied = false;
};

// Everything that will be in the file; tests change what they like before they write it.
struct ToyModel {
  struct Tensor {
    std::vector<int64_t> dims;  // row length first
    std::vector<float> values;
  };

  explicit ToyModel(const ToyShape& shape_in = {}, uint64_t seed = 1) : shape(shape_in) {
    RandomStream random(seed);
    const int64_t e = shape.embedding, f = shape.feed_forward, vocab = shape.vocab;
    const int64_t q = shape.q_heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    numbers = {{"llama.block_count", shape.layers},
               {"llama.context_length", 512},
               {"llama.embedding_length", shape.embedding},
               {"llama.feed_forward_length", shape.feed_forward},
               {"llama.attention.head_count", shape.q_heads},
               {"llama.attention.head_count_kv", shape.kv_heads},
               {"llama.attention.key_length", shape.head_dim},
               {"llama.attention.value_length", shape.head_dim},
               {"llama.rope.dimension_count", shape.rope_dims}};
    floats = {{"llama.attention.layer_norm_rms_epsilon", 1e-5f}, {"llama.rope.freq_base", 1000.0f}};
    strings = {{"general.architecture", "llama"},
               {"tokenizer.ggml.model", "gpt2"},
               {"tokenizer.ggml.pre", "smollm"}};
    for (int i = 0; i < shape.vocab; ++i) spellings.push_back("t" + std::to_string(i));
    Add("token_embd.weight", {e, vocab}, 1.0, random);
    if (!shape.tied) Add("output.weight", {e, vocab}, 2.0, random);
    Add("output_norm.weight", {e}, 1.0, random);
    for (int layer = 0; layer < shape.layers; ++layer) {
      const std::string block = "blk." + std::to_string(layer) + ".";
      Add(block + "attn_norm.weight", {e}, 1.0, random);
      Add(block + "attn_q.weight", {e, q}, 2.0, random);  // sharp enough for attention to matter
      Add(block + "attn_k.weight", {e, kv}, 2.0, random);
      Add(block + "attn_v.weight", {e, kv}, 1.0, random);
      Add(block + "attn_output.weight", {q, e}, 1.0, random);
      Add(block + "ffn_norm.weight", {e}, 1.0, random);
      Add(block + "ffn_gate.weight", {e, f}, 1.0, random);
      Add(block + "ffn_up.weight", {e, f}, 1.0, random);
      Add(block + "ffn_down.weight", {f, e}, 1.0, random);
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

// The forward pass in double: one logit row a token.
class ToyReference {
 public:
  explicit ToyReference(const ToyModel& toy) : toy_(toy), s_(toy.shape) {}

  std::vector<std::vector<double>> Logits(std::span<const int32_t> tokens) const {
    std::vector<Row> x;
    for (const int32_t token : tokens) x.push_back(Column("token_embd.weight", token));
    for (int layer = 0; layer < s_.layers; ++layer) Layer(layer, x);
    for (Row& row : x) {
      row = Multiply(s_.tied ? "token_embd.weight" : "output.weight",
                     Norm("output_norm.weight", row));
    }
    return x;
  }

 private:
  using Row = std::vector<double>;

  const std::vector<float>& Values(const std::string& name) const {
    return toy_.tensors.at(name).values;
  }
  Row Column(const std::string& name, int64_t row) const {
    const auto begin = Values(name).begin() + row * s_.embedding;
    return Row(begin, begin + s_.embedding);
  }
  Row Multiply(const std::string& name, const Row& x) const {
    const auto& w = Values(name);
    Row out(w.size() / x.size());
    for (size_t r = 0; r < out.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) out[r] += w[r * x.size() + c] * x[c];
    }
    return out;
  }
  Row Norm(const std::string& name, const Row& x) const {
    const double epsilon = toy_.floats.at("llama.attention.layer_norm_rms_epsilon");
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      out[i] =
          x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * Values(name)[i];
    }
    return out;
  }
  void Rope(Row& heads, int64_t position) const {
    const double base = toy_.floats.at("llama.rope.freq_base");
    const auto scale = toy_.floats.find("llama.rope.scaling.factor");
    for (size_t h = 0; h < heads.size(); h += static_cast<size_t>(s_.head_dim)) {
      for (int i = 0; i < s_.rope_dims / 2; ++i) {
        double angle = static_cast<double>(position) * std::pow(base, -2.0 * i / s_.rope_dims);
        if (scale != toy_.floats.end()) angle /= scale->second;
        if (toy_.tensors.contains("rope_freqs.weight")) {
          angle /= Values("rope_freqs.weight")[static_cast<size_t>(i)];
        }
        double& a = heads[h + 2 * static_cast<size_t>(i)];
        double& b = heads[h + 2 * static_cast<size_t>(i) + 1];
        const double c = std::cos(angle), s = std::sin(angle), even = a, odd = b;
        a = even * c - odd * s;
        b = even * s + odd * c;
      }
    }
  }
  // Causal attention of all heads of one position.
  Row Attend(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v,
             size_t position) const {
    const size_t d = static_cast<size_t>(s_.head_dim);
    Row out(q.size());
    for (size_t h = 0; h < q.size() / d; ++h) {
      const size_t kv = h / static_cast<size_t>(s_.q_heads / s_.kv_heads) * d;
      Row weights(position + 1);
      for (size_t t = 0; t <= position; ++t) {
        for (size_t c = 0; c < d; ++c) weights[t] += q[h * d + c] * k[t][kv + c];
        weights[t] /= std::sqrt(static_cast<double>(d));
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - top);
      for (size_t t = 0; t <= position; ++t) {
        for (size_t c = 0; c < d; ++c) out[h * d + c] += weights[t] / sum * v[t][kv + c];
      }
    }
    return out;
  }
  void Layer(int layer, std::vector<Row>& x) const {
    const std::string block = "blk." + std::to_string(layer) + ".";
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row normed = Norm(block + "attn_norm.weight", x[t]);
      q.push_back(Multiply(block + "attn_q.weight", normed));
      k.push_back(Multiply(block + "attn_k.weight", normed));
      v.push_back(Multiply(block + "attn_v.weight", normed));
      Rope(q.back(), static_cast<int64_t>(t));
      Rope(k.back(), static_cast<int64_t>(t));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      AddTo(x[t], Multiply(block + "attn_output.weight", Attend(q[t], k, v, t)));
      const Row normed = Norm(block + "ffn_norm.weight", x[t]);
      Row gate = Multiply(block + "ffn_gate.weight", normed);
      const Row up = Multiply(block + "ffn_up.weight", normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      AddTo(x[t], Multiply(block + "ffn_down.weight", gate));
    }
  }
  static void AddTo(Row& x, const Row& delta) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
  }

  const ToyModel& toy_;
  const ToyShape s_;
};

}  // namespace kvant
