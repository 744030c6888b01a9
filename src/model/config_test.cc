#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

Result<ModelConfig> Read(const ToyModel& toy) {
  const std::vector<std::byte> bytes = toy.ToBytes();
  KVANT_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(bytes));
  return ReadModelConfig(file);
}

TEST(Config, EveryValueComesFromItsKey) {
  ToyModel toy({.embedding = 64, .q_heads = 6, .kv_heads = 2, .head_dim = 32, .rope_dims = 24});
  toy.strings["general.name"] = "toy";
  toy.strings["llama.rope.scaling.type"] = "linear";
  toy.floats["llama.rope.scaling.factor"] = 4.0f;
  const Result<ModelConfig> config = Read(toy);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "toy");
  EXPECT_EQ(config->layers, 2);
  EXPECT_EQ(config->embedding, 64);
  EXPECT_EQ(config->feed_forward, 48);
  EXPECT_EQ(config->context_tokens, 512);
  EXPECT_EQ(config->vocab, 40);
  EXPECT_EQ(config->geometry(), (KvGeometry{2, 2, 32, 6}));  // not 64 / 6
  EXPECT_EQ(config->rope_dims, 24);
  EXPECT_EQ(config->ropes, (std::vector<RopeSpec>{{1000.0f, 4.0f}}));
  EXPECT_EQ(config->rms_epsilon, 1e-5f);
}

TEST(Config, WithoutAKeyLengthTheHeadIsTheQuotient) {
  ToyModel toy({.embedding = 64, .q_heads = 4, .head_dim = 16});
  toy.numbers.erase("llama.attention.key_length");
  toy.numbers.erase("llama.attention.value_length");
  toy.numbers.erase("llama.rope.dimension_count");
  const Result<ModelConfig> config = Read(toy);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_dims, 16);
}

ToyModel Gemma(int layers) {
  ToyShape shape;
  shape.architecture = "gemma3";
  shape.layers = layers;
  shape.window_tokens = 24;
  return ToyModel(shape);
}

TEST(Config, GemmasSixthLayersSeeAllAndTurnByAnotherBase) {
  const Result<ModelConfig> config = Read(Gemma(13));
  ASSERT_TRUE(config.ok()) << config.status().message();
  std::vector<int64_t> windows(13, 24);
  windows[5] = windows[11] = 0;
  EXPECT_EQ(config->layer_windows, windows);
  EXPECT_EQ(config->ropes, (std::vector<RopeSpec>{{1000.0f, 1.0f}, {10000.0f, 1.0f}}));
  EXPECT_EQ(config->rope_of(5), 0u);
  EXPECT_EQ(config->rope_of(6), 1u);
  EXPECT_EQ(config->softmax_scale, 0.25f);  // of heads of 16 channels
  EXPECT_EQ(config->embedding_scale, std::sqrt(32.0f));
}

// 4 heads of 16 channels and an embedding of 32: the 27B divides by the root of 32 / 4.
TEST(Config, GemmasSizeOf62LayersScalesItsScoresByAnotherRule) {
  EXPECT_EQ(Read(Gemma(62))->softmax_scale, 1.0f / std::sqrt(8.0f));
}

TEST(Config, AGemmaWithoutItsWindowIsRefused) {
  ToyModel toy = Gemma(6);
  toy.numbers.erase("gemma3.attention.sliding_window");
  const Status status = Read(toy).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("gemma3.attention.sliding_window"), std::string::npos);
}

TEST(Config, WithoutAKvHeadCountEveryHeadHasItsOwn) {
  ToyModel toy;
  toy.numbers.erase("llama.attention.head_count_kv");
  EXPECT_EQ(Read(toy)->kv_heads, 4);
}

TEST(Config, ArraysOfEqualValuesCountAsOneNumber) {
  ToyModel toy;
  toy.numbers.erase("llama.attention.head_count_kv");
  toy.arrays["llama.attention.head_count_kv"] = {2, 2};
  EXPECT_EQ(Read(toy)->kv_heads, 2);
}

TEST(Config, TheOldNameOfLinearScalingIsKnown) {
  ToyModel toy;
  toy.floats["llama.rope.scale_linear"] = 2.0f;
  EXPECT_EQ(Read(toy)->ropes[0].position_scale, 2.0f);
}

ToyModel DeepSeek() {
  return ToyModel(LatentShape({.rope = 8, .latent = 32, .latent_q = 20, .plain = 12, .value = 10}));
}

TEST(Config, HeadsOfALatentHaveSizesOfTheirOwn) {
  ToyModel toy = DeepSeek();
  const Result<ModelConfig> config = Read(toy);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->geometry(), (KvGeometry{2, 1, 40, 4, 32}));
  EXPECT_EQ(config->latent_q_dim, 20);
  EXPECT_EQ(config->plain_dim, 12);
  EXPECT_EQ(config->value_dim, 10);
  EXPECT_EQ(config->rope_dims, 8);
  EXPECT_EQ(config->output_values(), 40);
  EXPECT_EQ(config->softmax_scale, 1.0f / std::sqrt(20.0f));  // of a head's key, not the latent
  // Older files have those sizes under the usual names, and as many KV heads as heads.
  toy.numbers.erase("deepseek2.attention.key_length_mla");
  toy.numbers.erase("deepseek2.attention.value_length_mla");
  toy.numbers["deepseek2.attention.key_length"] = 20;
  toy.numbers["deepseek2.attention.value_length"] = 10;
  toy.numbers["deepseek2.attention.head_count_kv"] = 4;
  toy.numbers.erase("deepseek2.attention.q_lora_rank");
  const Result<ModelConfig> older = Read(toy);
  ASSERT_TRUE(older.ok()) << older.status().message();
  EXPECT_EQ(older->geometry(), config->geometry());
  EXPECT_EQ(older->plain_dim, 12);
  EXPECT_EQ(older->value_dim, 10);
  EXPECT_EQ(older->latent_q_dim, 0);
}

// A file that says something impossible, or something that kvant does not compute.
struct BadConfig {
  const char* name;
  std::function<void(ToyModel&)> change;
  StatusCode code;
  const char* key;  // both in the message
  const char* what;
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedByName) {
  ToyModel toy =
      std::string_view(GetParam().key).starts_with("deepseek2") ? DeepSeek() : ToyModel();
  GetParam().change(toy);
  const Result<ModelConfig> config = Read(toy);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), GetParam().code) << config.status().message();
  EXPECT_NE(config.status().message().find(GetParam().key), std::string::npos)
      << config.status().message();
  EXPECT_NE(config.status().message().find(GetParam().what), std::string::npos)
      << config.status().message();
}

auto Number(const char* key, int64_t value) {
  return [=](ToyModel& toy) { toy.numbers[key] = value; };
}
auto Without(const char* key) {
  return [=](ToyModel& toy) { toy.numbers.erase(key), toy.floats.erase(key); };
}
auto Float(const char* key, float value) {
  return [=](ToyModel& toy) { toy.floats[key] = value; };
}
auto PerLayer(const char* key, std::vector<uint32_t> values) {
  return [=](ToyModel& toy) { toy.numbers.erase(key), toy.arrays[key] = values; };
}

constexpr auto kCorrupt = StatusCode::kCorrupt;
constexpr auto kUnsupported = StatusCode::kUnsupported;
const BadConfig kBadConfigs[] = {
    {"UnknownArchitecture", [](ToyModel& t) { t.strings["general.architecture"] = "mamba"; },
     kUnsupported, "'mamba'", "known: llama"},
    {"NoArchitecture", [](ToyModel& t) { t.strings.erase("general.architecture"); },
     StatusCode::kNotFound, "general.architecture", "missing"},
    {"HundredThousandLayers", Number("llama.block_count", 100000), kCorrupt, "llama.block_count",
     "100000"},
    {"NoLayers", Number("llama.block_count", 0), kCorrupt, "llama.block_count", "0"},
    {"NoLayerCount", Without("llama.block_count"), StatusCode::kNotFound, "llama.block_count",
     "missing"},
    {"NoContext", Number("llama.context_length", 0), kCorrupt, "llama.context_length", "0"},
    {"HugeEmbedding", Number("llama.embedding_length", 1 << 30), kCorrupt, "llama.embedding_length",
     "1073741824"},
    {"NoFeedForward", Number("llama.feed_forward_length", 0), kCorrupt, "llama.feed_forward_length",
     "0"},
    {"NoHeads", Number("llama.attention.head_count", 0), kCorrupt, "llama.attention.head_count",
     "0"},
    {"NoKvHeads", Number("llama.attention.head_count_kv", 0), kCorrupt,
     "llama.attention.head_count_kv", "0"},
    {"HeadsNotAMultiple", Number("llama.attention.head_count_kv", 3), kCorrupt,
     "llama.attention.head_count_kv", "not a multiple"},
    {"KvHeadsDifferByLayer", PerLayer("llama.attention.head_count_kv", {2, 4}), kUnsupported,
     "llama.attention.head_count_kv", "layer to layer"},
    {"HeadSizesDifferByLayer", PerLayer("llama.attention.key_length", {64, 128}), kUnsupported,
     "llama.attention.key_length", "layer to layer"},
    {"EmptyArray", PerLayer("llama.attention.head_count_kv", {}), kCorrupt,
     "llama.attention.head_count_kv", "empty"},
    {"ArrayOutOfRange", PerLayer("llama.attention.head_count_kv", {0, 0}), kCorrupt,
     "llama.attention.head_count_kv", "outside 1"},
    {"KeysWiderThanValues", Number("llama.attention.value_length", 32), kUnsupported,
     "llama.attention.value_length", "16 channels"},
    {"HeadSizeThatNoCacheHolds", Number("llama.attention.key_length", 1025), kCorrupt,
     "llama.attention.key_length", "1025"},
    {"OddHeadSize",
     [](ToyModel& t) {
       t.numbers["llama.attention.key_length"] = t.numbers["llama.attention.value_length"] = 6;
       t.numbers["llama.rope.dimension_count"] = 6;
     },
     kUnsupported, "cache", "6"},
    {"NoQuotient",
     [](ToyModel& t) {
       t.numbers.erase("llama.attention.key_length");
       t.numbers["llama.attention.head_count"] = 5;
       t.numbers["llama.attention.head_count_kv"] = 5;
     },
     kCorrupt, "llama.embedding_length", "not a multiple"},
    {"RopeWiderThanTheHead", Number("llama.rope.dimension_count", 18), kCorrupt,
     "llama.rope.dimension_count", "18"},
    {"RopeOfOddWidth", Number("llama.rope.dimension_count", 7), kCorrupt,
     "llama.rope.dimension_count", "7"},
    {"NegativeRopeBase", Float("llama.rope.freq_base", -1.0f), kCorrupt, "llama.rope.freq_base",
     "outside"},
    {"RopeBaseNotANumber", Float("llama.rope.freq_base", std::nanf("")), kCorrupt,
     "llama.rope.freq_base", "nan"},
    {"UnknownRopeScaling", [](ToyModel& t) { t.strings["llama.rope.scaling.type"] = "yarn"; },
     kUnsupported, "'yarn'", "known: none, linear"},
    {"LinearScalingWithoutFactor",
     [](ToyModel& t) { t.strings["llama.rope.scaling.type"] = "linear"; }, StatusCode::kNotFound,
     "llama.rope.scaling.factor", "missing"},
    {"NoEpsilon", Without("llama.attention.layer_norm_rms_epsilon"), StatusCode::kNotFound,
     "llama.attention.layer_norm_rms_epsilon", "missing"},
    {"ZeroEpsilon", Float("llama.attention.layer_norm_rms_epsilon", 0.0f), kCorrupt,
     "llama.attention.layer_norm_rms_epsilon", "outside"},
    {"Experts", Number("llama.expert_count", 8), kUnsupported, "llama.expert_count", "8"},
    {"SlidingWindow", Number("llama.attention.sliding_window", 4096), kUnsupported,
     "llama.attention.sliding_window", "4096"},
    {"NotCausal", [](ToyModel& t) { t.bools["llama.attention.causal"] = false; }, kUnsupported,
     "llama.attention.causal", "feature"},
    {"SoftCap", Float("llama.attn_logit_softcapping", 50.0f), kUnsupported,
     "llama.attn_logit_softcapping", "50"},
    {"NoLatent", Without("deepseek2.attention.kv_lora_rank"), StatusCode::kNotFound,
     "deepseek2.attention.kv_lora_rank", "missing"},
    {"NoRopeOfALatent", Without("deepseek2.rope.dimension_count"), StatusCode::kNotFound,
     "deepseek2.rope.dimension_count", "missing"},
    {"NothingButRope", Number("deepseek2.attention.key_length_mla", 8), kCorrupt,
     "deepseek2.rope.dimension_count", "up to the head size 7"},
    {"CachedSizeOfAnotherLatent", Number("deepseek2.attention.key_length", 48), kCorrupt,
     "deepseek2.attention.key_length", "48, not the sum"},
    {"ExpertsOfALatent", Number("deepseek2.expert_count", 64), kUnsupported,
     "deepseek2.expert_count", "64"},
    {"Yarn", [](ToyModel& t) { t.strings["deepseek2.rope.scaling.type"] = "yarn"; }, kUnsupported,
     "deepseek2.rope.scaling.type", "'yarn'"},
};
INSTANTIATE_TEST_SUITE_P(Config, BadConfigs, testing::ValuesIn(kBadConfigs),
                         [](const auto& param) { return param.param.name; });

TEST(Config, FeaturesThatAreOffDoNotMatter) {
  ToyModel toy;
  toy.numbers["llama.expert_count"] = 0;
  toy.bools["llama.attention.causal"] = true;
  EXPECT_TRUE(Read(toy).ok());
}

// What Model::Load refuses beyond the metadata.
struct BadTensors {
  const char* name;
  std::function<void(ToyModel&)> change;
  StatusCode code;
  const char* tensor;
  const char* what;
};

class BadTensorFiles : public testing::TestWithParam<BadTensors> {};

TEST_P(BadTensorFiles, AreRefusedByName) {
  ToyModel toy;
  GetParam().change(toy);
  const Result<Model> model = toy.Load(std::string("bad_") + GetParam().name);
  ASSERT_FALSE(model.ok());
  const std::string& message = model.status().message();
  EXPECT_EQ(model.status().code(), GetParam().code) << message;
  EXPECT_NE(message.find(GetParam().tensor), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().what), std::string::npos) << message;
  EXPECT_NE(message.find(".gguf: "), std::string::npos) << message;
}

auto Vector(const char* name, int64_t values) {
  return [=](ToyModel& toy) {
    toy.tensors[name] = {{values}, std::vector<float>(static_cast<size_t>(values), 1.0f)};
  };
}

const BadTensors kBadTensors[] = {
    {"MissingInTheLastLayer", [](ToyModel& t) { t.tensors.erase("blk.1.ffn_down.weight"); },
     StatusCode::kNotFound, "'blk.1.ffn_down.weight'", "missing"},
    {"WrongShape",
     [](ToyModel& t) {
       t.tensors["blk.1.attn_k.weight"] = {{32, 64}, std::vector<float>(32 * 64)};
     },
     kCorrupt, "'blk.1.attn_k.weight'", "[32, 64] where the metadata ask for [32, 32]"},
    {"NormOfTwoDimensions",
     [](ToyModel& t) {
       t.tensors["output_norm.weight"].dims = {16, 2};
     },
     kCorrupt, "'output_norm.weight'", "[16, 2] where the metadata ask for [32]"},
    {"BiasWouldBeLeftOut", Vector("blk.0.attn_q.bias", 64), kUnsupported, "'blk.0.attn_q.bias'",
     "no place"},
    {"QueryNormWouldBeLeftOut", Vector("blk.0.attn_q_norm.weight", 16), kUnsupported,
     "'blk.0.attn_q_norm.weight'", "no place"},
    {"LayerBeyondTheLast", Vector("blk.2.attn_norm.weight", 32), kUnsupported,
     "'blk.2.attn_norm.weight'", "no place"},
    {"WeightNotANumber",
     [](ToyModel& t) { t.tensors["blk.0.ffn_up.weight"].values[100] = std::nanf(""); }, kCorrupt,
     "'blk.0.ffn_up.weight'", "finite"},
    {"NormNotFinite", [](ToyModel& t) { t.tensors["blk.0.ffn_norm.weight"].values[3] = INFINITY; },
     kCorrupt, "'blk.0.ffn_norm.weight'", "value 3 is not finite"},
    {"RopeFactorsOfWrongLength", Vector("rope_freqs.weight", 5), kCorrupt, "'rope_freqs.weight'",
     "[5] where the metadata ask for [8]"},
    {"RopeFactorZero",
     [](ToyModel& t) {
       t.tensors["rope_freqs.weight"] = {{8}, std::vector<float>(8, 0.0f)};
     },
     kCorrupt, "'rope_freqs.weight'", "not positive"},
    {"UnknownPreTokenizer", [](ToyModel& t) { t.strings["tokenizer.ggml.pre"] = "klingon"; },
     kUnsupported, "klingon", "known"},
};
INSTANTIATE_TEST_SUITE_P(Weights, BadTensorFiles, testing::ValuesIn(kBadTensors),
                         [](const auto& param) { return param.param.name; });

TEST(Weights, ATypeThatIsNotComputedIsRefusedByNameBeforeAnythingIsPacked) {
  ToyModel toy({.embedding = 256, .head_dim = 16});
  GgufWriter writer;
  const std::vector<std::byte> bytes = toy.ToBytes();
  const Result<GgufFile> file = GgufFile::Parse(bytes);
  ASSERT_TRUE(file.ok());
  for (const GgufEntry& entry : file->metadata()) ASSERT_TRUE(writer.AddEntry(entry).ok());
  const std::vector<std::byte> row(84 * 32);  // Q2_K: 84 bytes for 256 values
  for (const GgufTensor& t : file->tensors()) {
    const bool changed = t.name == "blk.1.attn_v.weight";
    ASSERT_TRUE(writer
                    .AddTensor(t.name, changed ? WeightType::kQ2_K : t.type,
                               std::span(t.dims).first(static_cast<size_t>(t.n_dims)),
                               changed ? std::span<const std::byte>(row) : t.data)
                    .ok());
  }
  const std::string path = testing::TempDir() + "kvant_toy_q2k.gguf";
  ASSERT_TRUE(writer.WriteFile(path).ok());
  const Status status = Model::Load(path).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("'blk.1.attn_v.weight' has type Q2_K"), std::string::npos)
      << status.message();
}

TEST(Model, AMissingFileIsNamed) {
  const Status status = Model::Load("/nowhere/model.gguf").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/model.gguf"), std::string::npos);
}

TEST(Model, TellsWhatItHolds) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("holds");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->architecture(), "llama");
  EXPECT_EQ(model->geometry(), (KvGeometry{2, 2, 16, 4}));
  EXPECT_EQ(model->context_tokens(), 512);
  EXPECT_EQ(model->vocab_size(), 40);
  int64_t parameters = 0;
  for (const auto& [name, tensor] : toy.tensors) {
    parameters += static_cast<int64_t>(tensor.values.size());
  }
  EXPECT_EQ(model->parameters(), parameters);
  ASSERT_EQ(model->weight_types().size(), 1u);
  EXPECT_EQ(model->weight_types()[0].type, "F32");
  EXPECT_EQ(model->weight_types()[0].tensors, 21);
  EXPECT_EQ(model->weight_types()[0].file_bytes, 4 * parameters);
  EXPECT_EQ(model->weight_bytes() - model->weight_bytes_read_per_token(), 4 * 32 * 48)
      << "an untied embedding of 40 rows, padded to 48, is held but not read as a whole";
  EXPECT_EQ(model->file_bytes(), static_cast<int64_t>(toy.ToBytes().size()));
  EXPECT_EQ(model->EncodeChat({}).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace kvant
