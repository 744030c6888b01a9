#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace kvant {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kOutput = "output.weight";
constexpr std::string_view kOutputNorm = "output_norm.weight";
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

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
  const int64_t q = config.q_values(), kv = config.kv_values();
  constexpr std::string_view kWeight = ".weight", kBias = ".bias";
  std::vector<LayerVector> vectors = {
      {"attn_norm", kWeight, &LayerWeights::attention_norm, config.embedding},
      {"ffn_norm", kWeight, &LayerWeights::feed_forward_norm, config.embedding}};
  if (config.qkv_biases) {
    vectors.insert(vectors.end(), {{"attn_q", kBias, &LayerWeights::q_bias, q},
                                   {"attn_k", kBias, &LayerWeights::k_bias, kv},
                                   {"attn_v", kBias, &LayerWeights::v_bias, kv}});
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
  return vectors;
}

std::string ShapeText(int64_t columns, int64_t rows) {
  return rows == 0 ? "[" + std::to_string(columns) + "]"
                   : "[" + std::to_string(columns) + ", " + std::to_string(rows) + "]";
}

std::string ShapeText(const GgufTensor& tensor) {
  std::string text;
  for (int i = 0; i < tensor.n_dims; ++i) {
    text += (i == 0 ? "[" : ", ") + std::to_string(tensor.dims[static_cast<size_t>(i)]);
  }
  return text + "]";
}

// Checks the tensors that a forward pass needs, remembering which they were.
class TensorChecker {
 public:
  explicit TensorChecker(const GgufFile& file) : file_(file) {}

  // rows == 0: a vector of `columns` values.
  Status Check(std::string_view name, int64_t columns, int64_t rows) {
    KVANT_ASSIGN_OR_RETURN(const GgufTensor* tensor, file_.GetTensor(name));
    known_.insert(tensor->name);
    const bool shape = tensor->dims[0] == columns &&
                       tensor->dims[1] == std::max<int64_t>(rows, 1) && tensor->dims[2] == 1 &&
                       tensor->dims[3] == 1;
    if (!shape) {
      return Status::Corrupt("tensor '" + std::string(name) + "' has shape " + ShapeText(*tensor) +
                             " where the metadata ask for " + ShapeText(columns, rows));
    }
    const WeightTypeInfo& info = InfoOf(tensor->type);
    if (!info.decodable) {
      return Status::Unsupported("tensor '" + std::string(name) + "' has type " +
                                 std::string(info.name) +
                                 ", which kvant does not compute with; possible: F32 F16 BF16 Q4_0 "
                                 "Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
    }
    return Status::Ok();
  }

  // A tensor that nobody asked for is a part of the model that would be left out in silence.
  Status RefuseOthers() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (known_.contains(tensor.name)) continue;
      return Status::Unsupported("tensor " + QuoteUntrusted(tensor.name) +
                                 " has no place in this forward pass");
    }
    return Status::Ok();
  }

 private:
  const GgufFile& file_;
  std::set<std::string_view> known_;
};

Status CheckTensors(const GgufFile& file, const ModelConfig& config) {
  TensorChecker checker(file);
  const int64_t embedding = config.embedding, feed_forward = config.feed_forward;
  KVANT_RETURN_IF_ERROR(checker.Check(kEmbedding, embedding, config.vocab));
  KVANT_RETURN_IF_ERROR(checker.Check(kOutputNorm, embedding, 0));
  if (file.FindTensor(kOutput) != nullptr) {
    KVANT_RETURN_IF_ERROR(checker.Check(kOutput, embedding, config.vocab));
  }
  if (file.FindTensor(kRopeFactors) != nullptr) {
    KVANT_RETURN_IF_ERROR(checker.Check(kRopeFactors, config.rope_dims / 2, 0));
  }
  struct Expected {
    std::string_view name;
    int64_t columns, rows;
  };
  const Expected expected[] = {
      {"attn_q", embedding, config.q_values()},  {"attn_k", embedding, config.kv_values()},
      {"attn_v", embedding, config.kv_values()}, {"attn_output", config.q_values(), embedding},
      {"ffn_gate", embedding, feed_forward},     {"ffn_up", embedding, feed_forward},
      {"ffn_down", feed_forward, embedding}};
  for (int layer = 0; layer < config.layers; ++layer) {
    for (const Expected& tensor : expected) {
      KVANT_RETURN_IF_ERROR(
          checker.Check(LayerTensor(layer, tensor.name), tensor.columns, tensor.rows));
    }
    for (const LayerVector& vector : LayerVectors(config)) {
      KVANT_RETURN_IF_ERROR(
          checker.Check(LayerTensor(layer, vector.name, vector.kind), vector.size, 0));
    }
  }
  return checker.RefuseOthers();
}

Status NameTensor(const GgufTensor& tensor, const Status& status) {
  return {status.code(), "tensor '" + std::string(tensor.name) + "': " + status.message()};
}

// Packs tensors whose presence and shape were checked.
class Packer {
 public:
  Packer(const GgufFile& file, ThreadPool& pool) : file_(file), pool_(pool) {}

  Status Pack(std::string_view name, PackedMatrix* out) const {
    const GgufTensor& tensor = *file_.FindTensor(name);
    const GroupTraits traits = GroupTraitsOf(tensor.type);
    Result<PackedMatrix> matrix = traits.group == 0 ? PackFloat(tensor) : PackGrouped(tensor);
    if (!matrix.ok()) return NameTensor(tensor, matrix.status());
    *out = std::move(matrix).value();
    return Status::Ok();
  }

  Status ReadVector(std::string_view name, std::vector<float>* out) const {
    const GgufTensor& tensor = *file_.FindTensor(name);
    out->resize(static_cast<size_t>(tensor.values()));
    KVANT_RETURN_IF_ERROR(
        Dequantize(tensor.type, tensor.data.data(), tensor.values(), out->data()));
    for (size_t i = 0; i < out->size(); ++i) {
      if (std::isfinite((*out)[i])) continue;
      return NameTensor(tensor, Status::Corrupt("value " + std::to_string(i) + " is not finite"));
    }
    return Status::Ok();
  }

 private:
  static const std::byte* Row(const GgufTensor& tensor, int64_t row) {
    return tensor.data.data() + static_cast<int64_t>(tensor.data.size()) / tensor.rows() * row;
  }

  Result<PackedMatrix> PackFloat(const GgufTensor& tensor) const {
    const FloatRowSource source = [&tensor](int64_t row, float* out) {
      return Dequantize(tensor.type, Row(tensor, row), tensor.row_values(), out);
    };
    return PackedMatrix::CreateFloat(tensor.rows(), tensor.row_values(), source, &pool_);
  }

  Result<PackedMatrix> PackGrouped(const GgufTensor& tensor) const {
    const GroupTraits traits = GroupTraitsOf(tensor.type);
    const GroupedSpec spec = {traits.bits, traits.group, traits.zero, traits.has_offset};
    const GroupedRowSource source = [&tensor](int64_t row, const GroupedRow& out) {
      return UnpackGroups(tensor.type, Row(tensor, row), tensor.row_values(), out.codes, out.scales,
                          out.offsets);
    };
    return PackedMatrix::CreateGrouped(tensor.rows(), tensor.row_values(), spec, source, &pool_);
  }

  const GgufFile& file_;
  ThreadPool& pool_;
};

Status PackLayer(const Packer& packer, const ModelConfig& config, int layer,
                 LayerWeights& weights) {
  const auto name = [layer](std::string_view part) { return LayerTensor(layer, part); };
  for (const LayerVector& vector : LayerVectors(config)) {
    KVANT_RETURN_IF_ERROR(
        packer.ReadVector(LayerTensor(layer, vector.name, vector.kind), &(weights.*vector.values)));
  }
  KVANT_RETURN_IF_ERROR(packer.Pack(name("attn_q"), &weights.q));
  KVANT_RETURN_IF_ERROR(packer.Pack(name("attn_k"), &weights.k));
  KVANT_RETURN_IF_ERROR(packer.Pack(name("attn_v"), &weights.v));
  KVANT_RETURN_IF_ERROR(packer.Pack(name("attn_output"), &weights.attention_output));
  KVANT_RETURN_IF_ERROR(packer.Pack(name("ffn_gate"), &weights.gate));
  KVANT_RETURN_IF_ERROR(packer.Pack(name("ffn_up"), &weights.up));
  return packer.Pack(name("ffn_down"), &weights.down);
}

Status ReadRopeFactors(const GgufFile& file, const Packer& packer, std::vector<float>* factors) {
  if (file.FindTensor(kRopeFactors) == nullptr) return Status::Ok();
  KVANT_RETURN_IF_ERROR(packer.ReadVector(kRopeFactors, factors));
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

int64_t LayerBytes(const LayerWeights& layer) {
  int64_t bytes = 0;
  for (const std::vector<float>* v :
       {&layer.attention_norm, &layer.feed_forward_norm, &layer.q_bias, &layer.k_bias,
        &layer.v_bias, &layer.q_norm, &layer.k_norm, &layer.attention_post_norm,
        &layer.feed_forward_post_norm}) {
    bytes += static_cast<int64_t>(sizeof(float) * v->size());
  }
  for (const PackedMatrix* m : {&layer.q, &layer.k, &layer.v, &layer.attention_output, &layer.gate,
                                &layer.up, &layer.down}) {
    bytes += m->packed_bytes();
  }
  return bytes;
}

}  // namespace

int64_t ModelWeights::bytes_read_per_token() const {
  int64_t bytes =
      logits().packed_bytes() + static_cast<int64_t>(sizeof(float) * output_norm.size());
  for (const LayerWeights& layer : layers) bytes += LayerBytes(layer);
  return bytes;
}

int64_t ModelWeights::packed_bytes() const {
  return bytes_read_per_token() + (tied ? 0 : embedding.packed_bytes());
}

Result<ModelWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                 ThreadPool& pool) {
  KVANT_RETURN_IF_ERROR(CheckTensors(file, config));
  const Packer packer(file, pool);
  ModelWeights weights;
  CountTensors(file, weights);
  KVANT_RETURN_IF_ERROR(ReadRopeFactors(file, packer, &weights.rope_factors));
  KVANT_RETURN_IF_ERROR(packer.ReadVector(kOutputNorm, &weights.output_norm));
  KVANT_RETURN_IF_ERROR(packer.Pack(kEmbedding, &weights.embedding));
  weights.tied = file.FindTensor(kOutput) == nullptr;
  if (!weights.tied) KVANT_RETURN_IF_ERROR(packer.Pack(kOutput, &weights.output));
  weights.layers.resize(static_cast<size_t>(config.layers));
  for (int layer = 0; layer < config.layers; ++layer) {
    KVANT_RETURN_IF_ERROR(
        PackLayer(packer, config, layer, weights.layers[static_cast<size_t>(layer)]));
  }
  return weights;
}

}  // namespace kvant
