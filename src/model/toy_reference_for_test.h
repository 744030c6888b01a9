// The forward pass of a toy model in double, plainly and without a cache: one logit row a token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/toy_model_for_test.h"

namespace kvant {

// What an architecture computes beyond llama. Written down a second time, so that a wrong entry in
// ReadModelConfig is seen; tests also change it, to see that each part matters.
struct ToyMath {
  bool half_pairs = false;  // rope turns channels (i, i + n / 2), not (2i, 2i + 1)
  bool qkv_biases = false;
  bool qk_norms = false;
  bool post_norms = false;
  bool gelu = false;
  bool scaled_embedding = false;
  int64_t window_tokens = 0;  // that a token sees, itself included; 0: all
  int full_every = 1;         // every n-th layer has no window
  double window_rope_base = 0;
  // Of a latent: whether it is normed, as are what queries are made of; whether keys turn.
  bool latent_norms = true, rope_keys = true;

  static ToyMath Of(const ToyShape& shape) {
    const std::string& name = shape.architecture;
    const bool gemma = name == "gemma3";
    return {.half_pairs = name != "llama" && name != "deepseek2",
            .qkv_biases = name == "qwen2",
            .qk_norms = gemma || name == "qwen3",
            .post_norms = gemma,
            .gelu = gemma,
            .scaled_embedding = gemma,
            .window_tokens = shape.window_tokens,
            .full_every = gemma ? 6 : 1,
            .window_rope_base = 10000};
  }
};

class ToyReference {
 public:
  explicit ToyReference(const ToyModel& toy) : ToyReference(toy, ToyMath::Of(toy.shape)) {}
  ToyReference(const ToyModel& toy, const ToyMath& math) : toy_(toy), s_(toy.shape), math_(math) {}

  std::vector<std::vector<double>> Logits(std::span<const int32_t> tokens) const {
    std::vector<std::vector<Row>> mass;
    return Forward(tokens, mass);
  }
  // What the attention of all queries gives each token, summed: [layers][q_heads][tokens].
  std::vector<std::vector<std::vector<double>>> AttentionSums(
      std::span<const int32_t> tokens) const {
    std::vector<std::vector<Row>> mass;
    Forward(tokens, mass);
    return mass;
  }

 private:
  using Row = std::vector<double>;

  std::vector<Row> Forward(std::span<const int32_t> tokens,
                           std::vector<std::vector<Row>>& mass) const {
    mass.assign(static_cast<size_t>(s_.layers),
                std::vector<Row>(static_cast<size_t>(s_.q_heads), Row(tokens.size())));
    std::vector<Row> x;
    for (const int32_t token : tokens) {
      x.push_back(Column("token_embd.weight", token));
      if (!math_.scaled_embedding) continue;
      for (double& value : x.back()) value *= std::sqrt(static_cast<double>(s_.embedding));
    }
    for (int layer = 0; layer < s_.layers; ++layer)
      Layer(layer, x, mass[static_cast<size_t>(layer)]);
    for (Row& row : x) {
      row = Multiply(s_.tied ? "token_embd.weight" : "output.weight",
                     Norm("output_norm.weight", row));
    }
    return x;
  }

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
    const double epsilon = toy_.floats.at(toy_.Key("attention.layer_norm_rms_epsilon"));
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      out[i] =
          x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * Values(name)[i];
    }
    return out;
  }
  bool HasWindow(int layer) const {
    return math_.window_tokens != 0 && (layer + 1) % math_.full_every != 0;
  }
  // Radians that pair i turns by at a position.
  double Angle(int i, int64_t position, bool window) const {
    const double base = window ? math_.window_rope_base
                               : static_cast<double>(toy_.floats.at(toy_.Key("rope.freq_base")));
    double angle = static_cast<double>(position) * std::pow(base, -2.0 * i / s_.rope_dims);
    const auto scale = toy_.floats.find(toy_.Key("rope.scaling.factor"));
    if (scale != toy_.floats.end() && !window) angle /= scale->second;
    if (toy_.tensors.contains("rope_freqs.weight")) {
      angle /= Values("rope_freqs.weight")[static_cast<size_t>(i)];
    }
    return angle;
  }
  // Turns the channels from `first` on in each vector of `length` channels.
  void Rope(Row& vectors, size_t length, size_t first, int64_t position, bool window) const {
    const size_t pairs = static_cast<size_t>(s_.rope_dims) / 2;
    for (size_t h = first; h < vectors.size(); h += length) {
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = Angle(static_cast<int>(i), position, window);
        double& a = vectors[h + (math_.half_pairs ? i : 2 * i)];
        double& b = vectors[h + (math_.half_pairs ? i + pairs : 2 * i + 1)];
        const double c = std::cos(angle), s = std::sin(angle), even = a, odd = b;
        a = even * c - odd * s;
        b = even * s + odd * c;
      }
    }
  }
  // Keys or queries of one position, or its values, which are neither normed nor rotated.
  Row Project(const std::string& tensor, const Row& normed) const {
    Row heads = Multiply(tensor + ".weight", normed);
    if (math_.qkv_biases) {
      for (size_t i = 0; i < heads.size(); ++i) heads[i] += Values(tensor + ".bias")[i];
    }
    return heads;
  }
  Row ProjectRotated(const std::string& tensor, const Row& normed, int64_t position,
                     bool window) const {
    Row heads = Project(tensor, normed);
    const auto d = s_.head_dim;
    for (auto head = heads.begin(); math_.qk_norms && head != heads.end(); head += d) {
      const Row out = Norm(tensor + "_norm.weight", Row(head, head + d));
      std::copy(out.begin(), out.end(), head);
    }
    Rope(heads, static_cast<size_t>(d), 0, position, window);
    return heads;
  }
  Row LatentNorm(const std::string& name, const Row& x) const {
    return math_.latent_norms ? Norm(name, x) : x;
  }
  // Multi-head latent attention as its paper defines it: every head makes its own keys and values
  // of the latent.
  Row LatentQueries(const std::string& block, const Row& normed, int64_t position) const {
    Row q = s_.latent_q_dim == 0
                ? Multiply(block + "attn_q.weight", normed)
                : Multiply(block + "attn_q_b.weight",
                           LatentNorm(block + "attn_q_a_norm.weight",
                                      Multiply(block + "attn_q_a.weight", normed)));
    const size_t plain = static_cast<size_t>(s_.plain_dim);
    Rope(q, plain + static_cast<size_t>(s_.rope_dims), plain, position, false);
    return q;
  }
  // What head h makes of channel c of the latent for channel i of its keys or values.
  double LatentWeight(const std::string& block, bool is_key, size_t h, size_t i, size_t c) const {
    const size_t latent = static_cast<size_t>(s_.latent_dim);
    const size_t plain = static_cast<size_t>(s_.plain_dim);
    const size_t value = static_cast<size_t>(s_.value_dim);
    if (s_.joint_heads) {
      const size_t row = h * (plain + value) + (is_key ? i : plain + i);
      return Values(block + "attn_kv_b.weight")[row * latent + c];
    }
    return is_key ? Values(block + "attn_k_b.weight")[(h * latent + c) * plain + i]
                  : Values(block + "attn_v_b.weight")[(h * value + i) * latent + c];
  }
  void ExpandLatent(const std::string& block, const Row& normed, int64_t position, Row& k,
                    Row& v) const {
    const Row joint = Multiply(block + "attn_kv_a_mqa.weight", normed);
    const Row latent = LatentNorm(block + "attn_kv_a_norm.weight",
                                  Row(joint.begin(), joint.begin() + s_.latent_dim));
    Row turned(joint.begin() + s_.latent_dim, joint.end());
    if (math_.rope_keys) Rope(turned, turned.size(), 0, position, false);
    const auto make = [&](bool is_key, size_t h, int channels, Row& to) {
      for (size_t i = 0; i < static_cast<size_t>(channels); ++i) {
        double sum = 0;
        for (size_t c = 0; c < latent.size(); ++c) {
          sum += LatentWeight(block, is_key, h, i, c) * latent[c];
        }
        to.push_back(sum);
      }
    };
    for (size_t h = 0; h < static_cast<size_t>(s_.q_heads); ++h) {
      make(true, h, s_.plain_dim, k);
      k.insert(k.end(), turned.begin(), turned.end());
      make(false, h, s_.value_dim, v);
    }
  }
  // Causal attention of all heads of one position to the keys from `first` on.
  Row Attend(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v, size_t first,
             size_t position, std::vector<Row>& mass) const {
    const size_t q_heads = static_cast<size_t>(s_.q_heads), d = q.size() / q_heads;
    const size_t kv_heads = k[0].size() / d, v_dim = v[0].size() / kv_heads;
    Row out(q_heads * v_dim);
    for (size_t h = 0; h < q_heads; ++h) {
      const size_t kv = h / (q_heads / kv_heads);
      Row weights(position + 1 - first);
      for (size_t t = first; t <= position; ++t) {
        double& weight = weights[t - first];
        for (size_t c = 0; c < d; ++c) weight += q[h * d + c] * k[t][kv * d + c];
        weight /= std::sqrt(static_cast<double>(d));
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - top);
      for (size_t t = first; t <= position; ++t) {
        mass[h][t] += weights[t - first] / sum;
        for (size_t c = 0; c < v_dim; ++c) {
          out[h * v_dim + c] += weights[t - first] / sum * v[t][kv * v_dim + c];
        }
      }
    }
    return out;
  }
  double Activate(double x) const {
    if (!math_.gelu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  Row FeedForward(const std::string& block, const Row& normed) const {
    Row gate = Multiply(block + "ffn_gate.weight", normed);
    const Row up = Multiply(block + "ffn_up.weight", normed);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = Activate(gate[i]) * up[i];
    return Multiply(block + "ffn_down.weight", gate);
  }
  void Layer(int layer, std::vector<Row>& x, std::vector<Row>& mass) const {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const bool window = HasWindow(layer);
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row normed = Norm(block + "attn_norm.weight", x[t]);
      if (s_.latent_dim != 0) {
        q.push_back(LatentQueries(block, normed, static_cast<int64_t>(t)));
        ExpandLatent(block, normed, static_cast<int64_t>(t), k.emplace_back(), v.emplace_back());
        continue;
      }
      q.push_back(ProjectRotated(block + "attn_q", normed, static_cast<int64_t>(t), window));
      k.push_back(ProjectRotated(block + "attn_k", normed, static_cast<int64_t>(t), window));
      v.push_back(Project(block + "attn_v", normed));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      const auto seen = static_cast<size_t>(math_.window_tokens);
      const size_t first = window && t >= seen ? t + 1 - seen : 0;
      Add(x[t], Multiply(block + "attn_output.weight", Attend(q[t], k, v, first, t, mass)),
          block + "post_attention_norm.weight");
      Add(x[t], FeedForward(block, Norm(block + "ffn_norm.weight", x[t])),
          block + "post_ffw_norm.weight");
    }
  }
  void Add(Row& x, const Row& delta, const std::string& post_norm) const {
    const Row added = math_.post_norms ? Norm(post_norm, delta) : delta;
    for (size_t i = 0; i < x.size(); ++i) x[i] += added[i];
  }

  const ToyModel& toy_;
  const ToyShape s_;
  const ToyMath math_;
};

// The largest difference over all positions, as a share of the logits' spread. [positions][vocab]
inline double LargestError(const std::vector<std::vector<float>>& logits,
                           const std::vector<std::vector<double>>& expected) {
  double error = 0, squares = 0;
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t i = 0; i < expected[t].size(); ++i) {
      error = std::max(error, std::abs(logits[t][i] - expected[t][i]));
      squares += expected[t][i] * expected[t][i];
    }
  }
  return error / std::sqrt(squares / static_cast<double>(expected.size() * expected[0].size()));
}

}  // namespace kvant
