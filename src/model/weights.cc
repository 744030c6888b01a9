#include "model/weights.h"

#include <algorithm>
#include <string_view>

#include "model/weight_tensors.h"

namespace kvant {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kOutput = "output.weight";
constexpr std::string_view kOutputNorm = "output_norm.weight";
constexpr std::string_view kRopeFactors = "rope_freqs.weight";
// What heads make of a latent: its keys and values in one tensor, or, ready to be used the other
// way round, apart.
constexpr std::string_view kLatentHeads = "attn_kv_b";
constexpr std::string_view kLatentKeys = "attn_k_b", kLatentValues = "attn_v_b";

std::string LayerTensor(int layer, std::string_view name, std::string_view kind = ".weight") {
  return "blk." + std::to_string(layer) + "." + std::string(name) + std::string(kind);
}

// A vector of every layer.
struct LayerVector {
  std::string_view name, kind;
  std::vector<float> LayerWeights::*values;
  int64_t size;
};

std::vector<LayerVector> LayerVectors(const ModelConfig& config) {
  const int64_t q = config.q_values(), k = config.k_values(), v = config.v_values();
  constexpr std::string_view kWeight = ".weight", kBias = ".bias";
  std::vector<LayerVector> vectors = {
      {"attn_norm", kWeight, &LayerWeights::attention_norm, config.embedding},
      {"ffn_norm", kWeight, &LayerWeights::feed_forward_norm, config.embedding}};
  if (config.qkv_biases) {
    vectors.insert(vectors.end(), {{"attn_q", kBias, &LayerWeights::q_bias, q},
                                   {"attn_k", kBias, &LayerWeights::k_bias, k},
                                   {"attn_v", kBias, &LayerWeights::v_bias, v}});
  }
  if (config.qk_norms) {
    vectors.insert(vectors.end(),
                   {{"attn_q_norm", kWeight, &LayerWeights::q_norm, config.head_dim},
                    {"attn_k_norm", kWeight, &LayerWeights::k_norm, config.head_dim}});
  }
  if (config.post_norms) {
    vectors.insert(
        vectors.end(),
        {{"post_attention_norm", kWeight, &LayerWeights::attention_post_norm, config.embedding},
         {"post_ffw_norm", kWeight, &LayerWeights::feed_forward_post_norm, config.embedding}});
  }
  if (config.latent_dim != 0) {
    vectors.push_back({"attn_kv_a_norm", kWeight, &LayerWeights::latent_norm, config.latent_dim});
  }
  if (config.latent_q_dim != 0) {
    vectors.push_back({"attn_q_a_norm", kWeight, &LayerWeights::q_a_norm, config.latent_q_dim});
  }
  return vectors;
}

// A matrix of every layer.
struct LayerMatrix {
  std::string_view name;
  PackedMatrix LayerWeights::*matrix;
  int64_t columns, rows;
};

std::vector<LayerMatrix> LayerMatrices(const ModelConfig& config) {
  const int64_t embedding = config.embedding, feed_forward = config.feed_forward;
  std::vector<LayerMatrix> matrices = {
      {"attn_output", &LayerWeights::attention_output, config.output_values(), embedding},
      {"ffn_gate", &LayerWeights::gate, embedding, feed_forward},
      {"ffn_up", &LayerWeights::up, embedding, feed_forward},
      {"ffn_down", &LayerWeights::down, feed_forward, embedding}};
  if (config.latent_dim == 0) {
    matrices.insert(matrices.end(), {{"attn_q", &LayerWeights::q, embedding, config.q_values()},
                                     {"attn_k", &LayerWeights::k, embedding, config.k_values()},
                                     {"attn_v", &LayerWeights::v, embedding, config.v_values()}});
    return matrices;
  }
  const int64_t q = int64_t{config.q_heads} * (config.plain_dim + config.rope_dims);
  matrices.push_back({"attn_kv_a_mqa", &LayerWeights::kv_a, embedding, config.head_dim});
  if (config.latent_q_dim == 0) {
    matrices.push_back({"attn_q", &LayerWeights::q, embedding, q});
  } else {
    matrices.push_back({"attn_q_a", &LayerWeights::q_a, embedding, config.latent_q_dim});
    matrices.push_back({"attn_q_b", &LayerWeights::q, config.latent_q_dim, q});
  }
  return matrices;
}

// What the heads of one layer make of its latent.
Status CheckLatentHeads(const GgufFile& file, const ModelConfig& config, int layer,
                        TensorChecker& checker) {
  const int64_t latent = config.latent_dim, plain = config.plain_dim, value = config.value_dim;
  const std::string together = LayerTensor(layer, kLatentHeads);
  if (file.FindTensor(together) != nullptr) {
    return checker.Check(together, {latent, config.q_heads * (plain + value)});
  }
  KVANT_RETURN_IF_ERROR(
      checker.Check(LayerTensor(layer, kLatentKeys), {plain, latent, config.q_heads}));
  return checker.Check(LayerTensor(layer, kLatentValues), {latent, value, config.q_heads});
}

Status CheckTensors(const GgufFile& file, const ModelConfig& config) {
  TensorChecker checker(file);
  KVANT_RETURN_IF_ERROR(checker.Check(kEmbedding, {config.embedding, config.vocab}));
  KVANT_RETURN_IF_ERROR(checker.Check(kOutputNorm, {config.embedding}));
  if (file.FindTensor(kOutput) != nullptr) {
    KVANT_RETURN_IF_ERROR(checker.Check(kOutput, {config.embedding, config.vocab}));
  }
  if (file.FindTensor(kRopeFactors) != nullptr) {
    KVANT_RETURN_IF_ERROR(checker.Check(kRopeFactors, {config.rope_dims / 2}));
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    for (const LayerMatrix& matrix : LayerMatrices(config)) {
      KVANT_RETURN_IF_ERROR(
          checker.Check(LayerTensor(layer, matrix.name), {matrix.columns, matrix.rows}));
    }
    for (const LayerVector& vector : LayerVectors(config)) {
      KVANT_RETURN_IF_ERROR(
          checker.Check(LayerTensor(layer, vector.name, vector.kind), {vector.size}));
    }
    if (config.latent_dim != 0) {
      KVANT_RETURN_IF_ERROR(CheckLatentHeads(file, config, layer, checker));
    }
  }
  return checker.RefuseOthers();
}

// From one tensor, rows [head][plain, value] of the latent's columns: keys are turned round.
Status SplitLatentHeads(const TensorPacker& packer, const ModelConfig& config,
                        std::string_view name, LayerWeights& weights) {
  const int64_t latent = config.latent_dim, plain = config.plain_dim, value = config.value_dim;
  std::vector<float> values;
  KVANT_RETURN_IF_ERROR(packer.ReadValues(name, &values));
  for (int64_t head = 0; head < config.q_heads; ++head) {
    const int64_t first_row = head * (plain + value);
    const auto turned = [&](int64_t row, float* out) {
      for (int64_t c = 0; c < plain; ++c) {
        out[c] = values[static_cast<size_t>((first_row + c) * latent + row)];
      }
      return Status::Ok();
    };
    KVANT_ASSIGN_OR_RETURN(weights.absorb.emplace_back(),
                           PackedMatrix::CreateFloat(latent, plain, turned));
    KVANT_RETURN_IF_ERROR(
        packer.PackRows(name, first_row + plain, value, &weights.expand.emplace_back()));
  }
  return Status::Ok();
}

Status PackLatentHeads(const TensorPacker& packer, const ModelConfig& config, int layer,
                       LayerWeights& weights) {
  const std::string together = LayerTensor(layer, kLatentHeads);
  if (packer.Has(together)) return SplitLatentHeads(packer, config, together, weights);
  for (int64_t head = 0; head < config.q_heads; ++head) {
    KVANT_RETURN_IF_ERROR(packer.PackRows(LayerTensor(layer, kLatentKeys), head * config.latent_dim,
                                          config.latent_dim, &weights.absorb.emplace_back()));
    KVANT_RETURN_IF_ERROR(packer.PackRows(LayerTensor(layer, kLatentValues),
                                          head * config.value_dim, config.value_dim,
                                          &weights.expand.emplace_back()));
  }
  return Status::Ok();
}

Status PackLayer(const TensorPacker& packer, const ModelConfig& config, int layer,
                 LayerWeights& weights) {
  for (const LayerVector& vector : LayerVectors(config)) {
    KVANT_RETURN_IF_ERROR(
        packer.ReadValues(LayerTensor(layer, vector.name, vector.kind), &(weights.*vector.values)));
  }
  for (const LayerMatrix& matrix : LayerMatrices(config)) {
    KVANT_RETURN_IF_ERROR(packer.Pack(LayerTensor(layer, matrix.name), &(weights.*matrix.matrix)));
  }
  return config.latent_dim == 0 ? Status::Ok() : PackLatentHeads(packer, config, layer, weights);
}

Status ReadRopeFactors(const TensorPacker& packer, std::vector<float>* factors) {
  if (!packer.Has(kRopeFactors)) return Status::Ok();
  KVANT_RETURN_IF_ERROR(packer.ReadValues(kRopeFactors, factors));
  for (size_t i = 0; i < factors->size(); ++i) {
    if ((*factors)[i] > 0) continue;
    return Status::Corrupt("tensor '" + std::string(kRopeFactors) + "': factor " +
                           std::to_string(i) + " is " + std::to_string((*factors)[i]) +
                           ", not positive");
  }
  return Status::Ok();
}

void CountTensors(const GgufFile& file, ModelWeights& weights) {
  std::vector<WeightTypeBytes>& types = weights.types;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = InfoOf(tensor.type).name;
    auto it = std::find_if(types.begin(), types.end(), [&](auto& t) { return t.type == name; });
    if (it == types.end()) it = types.insert(types.end(), {std::string(name), 0, 0});
    ++it->tensors;
    it->file_bytes += static_cast<int64_t>(tensor.data.size());
    weights.parameters += tensor.values();
  }
}

int64_t VectorBytes(const std::vector<float>& values) {
  return static_cast<int64_t>(sizeof(float) * values.size());
}

int64_t LayerBytes(const ModelConfig& config, const LayerWeights& layer) {
  int64_t bytes = 0;
  for (const LayerVector& vector : LayerVectors(config)) {
    bytes += VectorBytes(layer.*vector.values);
  }
  for (const LayerMatrix& matrix : LayerMatrices(config)) {
    bytes += (layer.*matrix.matrix).packed_bytes();
  }
  for (const auto* heads : {&layer.absorb, &layer.expand}) {
    for (const PackedMatrix& head : *heads) bytes += head.packed_bytes();
  }
  return bytes;
}

}  // namespace

int64_t ModelWeights::packed_bytes() const {
  return bytes_read_per_token + (tied ? 0 : embedding.packed_bytes());
}

Result<ModelWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                 ThreadPool& pool) {
  KVANT_RETURN_IF_ERROR(CheckTensors(file, config));
  const TensorPacker packer(file, pool);
  ModelWeights weights;
  CountTensors(file, weights);
  KVANT_RETURN_IF_ERROR(ReadRopeFactors(packer, &weights.rope_factors));
  KVANT_RETURN_IF_ERROR(packer.ReadValues(kOutputNorm, &weights.output_norm));
  KVANT_RETURN_IF_ERROR(packer.Pack(kEmbedding, &weights.embedding));
  weights.tied = !packer.Has(kOutput);
  if (!weights.tied) KVANT_RETURN_IF_ERROR(packer.Pack(kOutput, &weights.output));
  weights.layers.resize(static_cast<size_t>(config.layers));
  for (int layer = 0; layer < config.layers; ++layer) {
    KVANT_RETURN_IF_ERROR(
        PackLayer(packer, config, layer, weights.layers[static_cast<size_t>(layer)]));
  }
  weights.bytes_read_per_token = weights.logits().packed_bytes() + VectorBytes(weights.output_norm);
  for (const LayerWeights& layer : weights.layers) {
    weights.bytes_read_per_token += LayerBytes(config, layer);
  }
  return weights;
}

}  // namespace kvant
