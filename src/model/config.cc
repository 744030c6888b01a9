#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace kvant {
namespace {

// Bounds of what a key may say: far above any real model, low enough that no product overflows.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxContextTokens = 1u << 24;
constexpr size_t kMaxVocab = 1u << 22;

// What an architecture's name alone says.
struct Architecture {
  std::string_view name;
  RopePairs rope_pairs = RopePairs::kHalves;
  Activation activation = Activation::kSilu;
  bool qkv_biases = false, qk_norms = false, post_norms = false;
  bool scales_embedding = false;  // by the root of its width
  // Layers attend within a window, but for every n-th; those with one have a rope of their own.
  int64_t full_attention_every = 0;
  float window_rope_base = 0;
  bool latent_attention = false;
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .rope_pairs = RopePairs::kNeighbours},
    {.name = "qwen2", .qkv_biases = true},
    {.name = "qwen3", .qk_norms = true},
    {.name = "gemma3",
     .activation = Activation::kGelu,
     .qk_norms = true,
     .post_norms = true,
     .scales_embedding = true,
     .full_attention_every = 6,
     .window_rope_base = 10000},
    {.name = "deepseek2", .rope_pairs = RopePairs::kNeighbours, .latent_attention = true},
};

// Gemma 3 27B divides its queries by the root of embedding / heads where all others, its smaller
// siblings included, take the head's own size. Only its depth tells it apart in a file.
constexpr int kGemma27bLayers = 62;

// Keys that change the arithmetic in ways that this forward pass does not follow, with the value
// that means "not so".
struct Feature {
  std::string_view key;  // after "llama."
  double neutral;
  bool windows = false;  // known all the same where layers attend within windows
};
constexpr Feature kFeatures[] = {
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"attention.sliding_window", 0, true},
    {"attention.sliding_window_pattern", 0, true},
    {"rope.freq_base_swa", 0, true},
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"embedding_scale", 0},
    {"use_parallel_residual", 0},
};

Result<double> ReadNumber(const GgufEntry& entry) {
  switch (entry.value.type) {
    case GgufValueType::kBool: {
      KVANT_ASSIGN_OR_RETURN(const bool value, ReadBool(entry));
      return value ? 1.0 : 0.0;
    }
    case GgufValueType::kF32:
    case GgufValueType::kF64: {
      KVANT_ASSIGN_OR_RETURN(const float value, ReadFloat(entry));
      return static_cast<double>(value);
    }
    default: {
      KVANT_ASSIGN_OR_RETURN(const int64_t value, ReadInteger<int64_t>(entry));
      return static_cast<double>(value);
    }
  }
}

// Reads the keys of one architecture.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }

  // A count that may stand as one number or as one number a layer, if those are all equal.
  Status Read(std::string_view name, uint32_t high, int* out) const {
    KVANT_ASSIGN_OR_RETURN(const uint32_t value, ReadCount(name, high));
    *out = static_cast<int>(value);
    return Status::Ok();
  }

  bool Has(std::string_view name) const { return file_.FindEntry(Key(name)) != nullptr; }

  // The same, for a key that may be missing: *out then stays as it is.
  Status ReadOptional(std::string_view name, uint32_t high, int* out) const {
    return Has(name) ? Read(name, high, out) : Status::Ok();
  }

  Status ReadFloatInRange(std::string_view name, float low, float high, float* out) const {
    KVANT_ASSIGN_OR_RETURN(*out, file_.GetF32(Key(name)));
    if (*out >= low && *out <= high) return Status::Ok();  // false for NaN
    return Status::Corrupt("key '" + Key(name) + "' is " + std::to_string(*out) + ", outside " +
                           std::to_string(low) + " to " + std::to_string(high));
  }

  Status ReadOptionalFloat(std::string_view name, float low, float high, float* out) const {
    if (!Has(name)) return Status::Ok();
    return ReadFloatInRange(name, low, high, out);
  }

  Status RefuseFeatures(bool windows) const {
    for (const Feature& feature : kFeatures) {
      if (windows && feature.windows) continue;
      const GgufEntry* entry = file_.FindEntry(Key(feature.key));
      if (entry == nullptr) continue;
      KVANT_ASSIGN_OR_RETURN(const double value, ReadNumber(*entry));
      if (value == feature.neutral) continue;
      return Status::Unsupported("key '" + Key(feature.key) + "' is " +
                                 ToText(entry->value, 4, 40) +
                                 ", a feature that this forward pass does not compute");
    }
    return Status::Ok();
  }

 private:
  Result<uint32_t> ReadCount(std::string_view name, uint32_t high) const {
    const std::string key = Key(name);
    const GgufEntry* entry = file_.FindEntry(key);
    if (entry == nullptr || entry->value.type != GgufValueType::kArray) {
      return file_.GetU32InRange(key, 1, high);
    }
    KVANT_ASSIGN_OR_RETURN(const std::vector<uint32_t> values, file_.GetU32Array(key));
    if (values.empty()) return Status::Corrupt("key '" + key + "' is an empty array");
    if (std::any_of(values.begin(), values.end(), [&](uint32_t v) { return v != values[0]; })) {
      return Status::Unsupported("key '" + key + "' differs from layer to layer, " +
                                 ToText(entry->value, 8, 40) + ", which kvant does not compute");
    }
    if (values[0] < 1 || values[0] > high) {
      return Status::Corrupt("key '" + key + "' is " + std::to_string(values[0]) +
                             ", outside 1 to " + std::to_string(high));
    }
    return values[0];
  }

  const GgufFile& file_;
  std::string prefix_;
};

Result<const Architecture*> FindArchitecture(const GgufFile& file) {
  KVANT_ASSIGN_OR_RETURN(const std::string_view architecture,
                         file.GetString("general.architecture"));
  std::string known;
  for (const Architecture& candidate : kArchitectures) {
    if (architecture == candidate.name) return &candidate;
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  return Status::Unsupported("unknown architecture " + QuoteUntrusted(architecture) +
                             "; known: " + known);
}

Status ReadHeads(const ConfigReader& reader, ModelConfig& config) {
  KVANT_RETURN_IF_ERROR(reader.Read("attention.head_count", kMaxHeads, &config.q_heads));
  config.kv_heads = config.q_heads;
  KVANT_RETURN_IF_ERROR(
      reader.ReadOptional("attention.head_count_kv", kMaxHeads, &config.kv_heads));
  if (config.q_heads % config.kv_heads != 0) {
    return Status::Corrupt("key '" + reader.Key("attention.head_count") + "' is " +
                           std::to_string(config.q_heads) + ", not a multiple of '" +
                           reader.Key("attention.head_count_kv") + "', " +
                           std::to_string(config.kv_heads));
  }
  // The metadata wins over the quotient, which is another number in some models.
  int key_length = 0, value_length = 0;
  KVANT_RETURN_IF_ERROR(reader.ReadOptional("attention.key_length", kMaxHeadDim, &key_length));
  KVANT_RETURN_IF_ERROR(reader.ReadOptional("attention.value_length", kMaxHeadDim, &value_length));
  if (key_length == 0 || value_length == 0) {
    const int quotient = config.embedding / config.q_heads;
    if (quotient * config.q_heads != config.embedding) {
      return Status::Corrupt("key '" + reader.Key("embedding_length") + "' is " +
                             std::to_string(config.embedding) + ", not a multiple of '" +
                             reader.Key("attention.head_count") + "', " +
                             std::to_string(config.q_heads) + ", and '" +
                             reader.Key("attention.key_length") + "' is missing");
    }
    if (key_length == 0) key_length = quotient;
    if (value_length == 0) value_length = quotient;
  }
  if (key_length != value_length) {
    return Status::Unsupported(
        "keys of " + std::to_string(key_length) + " channels and values of " +
        std::to_string(value_length) + " ('" + reader.Key("attention.key_length") + "', '" +
        reader.Key("attention.value_length") + "'): kvant computes heads of one size");
  }
  config.head_dim = key_length;
  return Status::Ok();
}

Status CheckRopeDims(const ConfigReader& reader, int rope_dims, int most) {
  if (rope_dims <= most && rope_dims % 2 == 0) return Status::Ok();
  return Status::Corrupt("key '" + reader.Key("rope.dimension_count") + "' is " +
                         std::to_string(rope_dims) + ", not an even number up to the head size " +
                         std::to_string(most));
}

// Heads that share a latent. Files say what a head multiplies as key_length and value_length, or,
// where those are the sizes of what is cached, under names of their own.
Status ReadLatentHeads(const ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = 1;
  int key_length = 0;
  KVANT_RETURN_IF_ERROR(reader.Read("attention.head_count", kMaxHeads, &config.q_heads));
  KVANT_RETURN_IF_ERROR(reader.Read("attention.kv_lora_rank", kMaxHeadDim, &config.latent_dim));
  KVANT_RETURN_IF_ERROR(
      reader.ReadOptional("attention.q_lora_rank", kMaxWidth, &config.latent_q_dim));
  KVANT_RETURN_IF_ERROR(reader.Read("rope.dimension_count", kMaxHeadDim, &config.rope_dims));
  const bool has_own = reader.Has("attention.key_length_mla");
  const std::string suffix = has_own ? "_mla" : "";
  KVANT_RETURN_IF_ERROR(reader.Read("attention.key_length" + suffix, kMaxHeadDim, &key_length));
  KVANT_RETURN_IF_ERROR(
      reader.Read("attention.value_length" + suffix, kMaxHeadDim, &config.value_dim));
  KVANT_RETURN_IF_ERROR(CheckRopeDims(reader, config.rope_dims, key_length - 1));
  config.plain_dim = key_length - config.rope_dims;
  config.head_dim = config.latent_dim + config.rope_dims;
  int cached = config.head_dim;
  if (has_own) {
    KVANT_RETURN_IF_ERROR(reader.ReadOptional("attention.key_length", kMaxHeadDim, &cached));
  }
  if (cached == config.head_dim) return Status::Ok();
  return Status::Corrupt(
      "key '" + reader.Key("attention.key_length") + "' is " + std::to_string(cached) +
      ", not the sum of '" + reader.Key("attention.kv_lora_rank") + "' and '" +
      reader.Key("rope.dimension_count") + "', " + std::to_string(config.head_dim));
}

Status ReadRope(const GgufFile& file, const ConfigReader& reader, ModelConfig& config) {
  if (config.latent_dim == 0) {
    config.rope_dims = config.head_dim;
    KVANT_RETURN_IF_ERROR(
        reader.ReadOptional("rope.dimension_count", kMaxHeadDim, &config.rope_dims));
    KVANT_RETURN_IF_ERROR(CheckRopeDims(reader, config.rope_dims, config.head_dim));
  }
  RopeSpec& rope = config.ropes.emplace_back();
  KVANT_RETURN_IF_ERROR(reader.ReadOptionalFloat("rope.freq_base", 1.0f, 1e12f, &rope.base));

  std::string_view scaling = "none";
  const std::string type_key = reader.Key("rope.scaling.type");
  if (file.FindEntry(type_key) != nullptr) {
    KVANT_ASSIGN_OR_RETURN(scaling, file.GetString(type_key));
  } else if (file.FindEntry(reader.Key("rope.scale_linear")) != nullptr) {
    // How files named it before there were types.
    return reader.ReadFloatInRange("rope.scale_linear", 1e-3f, 1e6f, &rope.position_scale);
  }
  if (scaling == "none") return Status::Ok();
  if (scaling == "linear") {
    return reader.ReadFloatInRange("rope.scaling.factor", 1e-3f, 1e6f, &rope.position_scale);
  }
  return Status::Unsupported("rope scaling " + QuoteUntrusted(scaling) + " ('" + type_key +
                             "') is unknown; known: none, linear");
}

Result<std::vector<int64_t>> ReadWindows(const ConfigReader& reader,
                                         const Architecture& architecture, int layers) {
  std::vector<int64_t> windows(static_cast<size_t>(layers));
  if (architecture.full_attention_every == 0) return windows;
  int window_tokens = 0, every = static_cast<int>(architecture.full_attention_every);
  KVANT_RETURN_IF_ERROR(reader.Read("attention.sliding_window", kMaxContextTokens, &window_tokens));
  KVANT_RETURN_IF_ERROR(
      reader.ReadOptional("attention.sliding_window_pattern", kMaxLayers, &every));
  for (int layer = 0; layer < layers; ++layer) {
    if ((layer + 1) % every != 0) windows[static_cast<size_t>(layer)] = window_tokens;
  }
  return windows;
}

// What every layer sees, and by which rope.
Status ReadAttention(const ConfigReader& reader, const Architecture& architecture,
                     ModelConfig& config) {
  const bool is_27b = architecture.scales_embedding && config.layers == kGemma27bLayers;
  const int divisor = is_27b                   ? config.embedding / config.q_heads
                      : config.latent_dim != 0 ? config.plain_dim + config.rope_dims
                                               : config.head_dim;
  config.softmax_scale = 1.0f / std::sqrt(static_cast<float>(divisor));
  KVANT_RETURN_IF_ERROR(
      reader.ReadOptionalFloat("attention.scale", 1e-4f, 1e2f, &config.softmax_scale));
  KVANT_ASSIGN_OR_RETURN(config.layer_windows, ReadWindows(reader, architecture, config.layers));
  if (architecture.full_attention_every == 0) return Status::Ok();
  // A scaling of positions is that of the other layers: inside a window they stay small.
  RopeSpec rope = {.base = architecture.window_rope_base};
  KVANT_RETURN_IF_ERROR(reader.ReadOptionalFloat("rope.freq_base_swa", 1.0f, 1e12f, &rope.base));
  config.ropes.push_back(rope);
  return Status::Ok();
}

Status ReadVocab(const GgufFile& file, ModelConfig& config) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  const GgufEntry* tokens = file.FindEntry(kKey);
  if (tokens == nullptr || tokens->value.type != GgufValueType::kArray) {
    return Status::NotFound("key '" + std::string(kKey) + "' is missing or not an array");
  }
  if (tokens->value.count < 1 || tokens->value.count > kMaxVocab) {
    return Status::Corrupt("key '" + std::string(kKey) + "' has " +
                           std::to_string(tokens->value.count) + " tokens, outside 1 to " +
                           std::to_string(kMaxVocab));
  }
  config.vocab = static_cast<int>(tokens->value.count);
  return Status::Ok();
}

}  // namespace

Result<std::vector<int64_t>> ReadLayerWindows(const GgufFile& file, int layers) {
  KVANT_ASSIGN_OR_RETURN(const Architecture* const architecture, FindArchitecture(file));
  return ReadWindows(ConfigReader(file, architecture->name), *architecture, layers);
}

Result<ModelConfig> ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  KVANT_ASSIGN_OR_RETURN(const Architecture* const architecture, FindArchitecture(file));
  config.architecture = std::string(architecture->name);
  config.activation = architecture->activation;
  config.qkv_biases = architecture->qkv_biases;
  config.qk_norms = architecture->qk_norms;
  config.post_norms = architecture->post_norms;
  config.rope_pairs = architecture->rope_pairs;
  if (file.FindEntry("general.name") != nullptr) {
    KVANT_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.name"));
    config.name = std::string(name);
  }
  const ConfigReader reader(file, config.architecture);
  int context_tokens = 0;
  KVANT_RETURN_IF_ERROR(reader.Read("block_count", kMaxLayers, &config.layers));
  KVANT_RETURN_IF_ERROR(reader.Read("context_length", kMaxContextTokens, &context_tokens));
  KVANT_RETURN_IF_ERROR(reader.Read("embedding_length", kMaxWidth, &config.embedding));
  KVANT_RETURN_IF_ERROR(reader.Read("feed_forward_length", kMaxWidth, &config.feed_forward));
  KVANT_RETURN_IF_ERROR(reader.ReadFloatInRange("attention.layer_norm_rms_epsilon", 1e-12f, 0.1f,
                                                &config.rms_epsilon));
  config.context_tokens = context_tokens;
  KVANT_RETURN_IF_ERROR(architecture->latent_attention ? ReadLatentHeads(reader, config)
                                                       : ReadHeads(reader, config));
  KVANT_RETURN_IF_ERROR(ReadRope(file, reader, config));
  KVANT_RETURN_IF_ERROR(ReadAttention(reader, *architecture, config));
  if (architecture->scales_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.embedding));
  }
  KVANT_RETURN_IF_ERROR(reader.RefuseFeatures(architecture->full_attention_every != 0));
  KVANT_RETURN_IF_ERROR(ReadVocab(file, config));
  if (const Status shape = CheckGeometry(config.geometry()); !shape.ok()) {
    return Status::Unsupported("the model's cache cannot be held: " + shape.message());
  }
  return config;
}

}  // namespace kvant
