// What qwen2, qwen3, gemma3 and deepseek2 do beyond llama, against their forward pass in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kvant/session.h"
#include "model/session_impl.h"
#include "model/toy_model_for_test.h"
#include "model/toy_reference_for_test.h"

namespace kvant {
namespace {

// As llama_test.cc has it for an f32 cache: f32 sums of some 50 products a row, through layers.
constexpr double kTolerance = 5e-5;

ToyShape Shape(const std::string& architecture, int window_tokens = 0) {
  ToyShape shape;
  shape.architecture = architecture;
  shape.window_tokens = window_tokens;
  if (architecture == "gemma3") shape.layers = 7;  // the sixth has no window
  return shape;
}

std::vector<std::vector<float>> LogitsOf(const Model& model, std::span<const int32_t> tokens,
                                         const std::string& kv, int chunk_tokens = 512) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  options.threads = 1;
  options.chunk_tokens = chunk_tokens;
  Result<Session> session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<std::vector<float>> rows;
  for (size_t done = 0; done < tokens.size();) {
    const size_t count = std::min(tokens.size() - done, static_cast<size_t>(chunk_tokens));
    EXPECT_TRUE(session->impl().Step(tokens.subspan(done, count), nullptr).ok());
    Llama& llama = *session->impl().engine->llama;
    for (size_t i = 0; i < count; ++i) {
      rows.emplace_back(static_cast<size_t>(model.vocab_size()));
      llama.Logits(llama.hidden(static_cast<int64_t>(i)), 1, rows.back().data());
    }
    done += count;
  }
  return rows;
}

// A latent of 32 channels, or of one that is no multiple of a vector's lanes.
ToyShape Latent(int latent_dim = 32, int latent_q_dim = 0, bool joint_heads = false) {
  ToyShape shape;
  shape.architecture = "deepseek2";
  shape.rope_dims = 8;
  shape.latent_dim = latent_dim;
  shape.latent_q_dim = latent_q_dim;
  shape.plain_dim = 12;
  shape.value_dim = 10;
  shape.joint_heads = joint_heads;
  return shape;
}

struct ArchitectureCase {
  const char* name;
  ToyShape shape;
};
class Architectures : public testing::TestWithParam<ArchitectureCase> {};

TEST_P(Architectures, AgreeWithAForwardPassInDouble) {
  const ToyModel toy(GetParam().shape);
  const Result<Model> model = toy.Load(GetParam().name);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(140, toy.shape.vocab);  // three pages
  const auto expected = ToyReference(toy).Logits(tokens);
  EXPECT_LT(LargestError(LogitsOf(*model, tokens, "f32"), expected), kTolerance);
  EXPECT_LT(LargestError(LogitsOf(*model, tokens, "f32", 1), expected), kTolerance);
}

ToyShape With(ToyShape shape, int q_heads, int kv_heads, int head_dim) {
  shape.q_heads = q_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = shape.rope_dims = head_dim;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(
    Llama, Architectures,
    testing::Values(ArchitectureCase{"Qwen2", Shape("qwen2")},
                    ArchitectureCase{"Qwen2OneKvHead", With(Shape("qwen2"), 6, 1, 20)},
                    ArchitectureCase{"Qwen3", Shape("qwen3")},
                    ArchitectureCase{"Qwen3WideHeads", With(Shape("qwen3"), 4, 2, 64)},
                    ArchitectureCase{"DeepSeek2", Latent()},
                    ArchitectureCase{"DeepSeek2QueryRank", Latent(32, 24)},
                    ArchitectureCase{"DeepSeek2JointHeads", Latent(36, 20, true)},
                    ArchitectureCase{"Gemma3", Shape("gemma3", 23)},
                    ArchitectureCase{"Gemma3WindowOfAPage", Shape("gemma3", 64)},
                    ArchitectureCase{"Gemma3WindowAcrossPages", Shape("gemma3", 100)},
                    ArchitectureCase{"Gemma3WindowOfOneToken", Shape("gemma3", 1)},
                    ArchitectureCase{"Gemma3WideHeads", With(Shape("gemma3", 50), 4, 1, 256)}),
    [](const auto& param) { return param.param.name; });

// Each part left out or changed in the reference moves the logits far beyond the tolerance: the
// tests above would see a forward pass that did so.
TEST(Architectures, EveryPartOfThemMatters) {
  const auto matters = [](const ToyShape& shape, const char* part, auto change) {
    const ToyModel toy(shape);
    const Result<Model> model = toy.Load(part);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<int32_t> tokens = ToyTokens(140, toy.shape.vocab);
    ToyMath math = ToyMath::Of(shape);
    change(math);
    EXPECT_GT(LargestError(LogitsOf(*model, tokens, "f32"), ToyReference(toy, math).Logits(tokens)),
              100 * kTolerance)
        << shape.architecture << " " << part;
  };
  const ToyShape gemma = Shape("gemma3", 23);
  matters(Shape("qwen2"), "biases", [](ToyMath& m) { m.qkv_biases = false; });
  matters(Shape("qwen2"), "pairs", [](ToyMath& m) { m.half_pairs = false; });
  matters(Shape("qwen3"), "norms", [](ToyMath& m) { m.qk_norms = false; });
  matters(Latent(32, 24), "latent_norms", [](ToyMath& m) { m.latent_norms = false; });
  matters(Latent(), "rope_keys", [](ToyMath& m) { m.rope_keys = false; });
  matters(Latent(), "latent_pairs", [](ToyMath& m) { m.half_pairs = true; });
  matters(gemma, "gelu", [](ToyMath& m) { m.gelu = false; });
  matters(gemma, "post_norms", [](ToyMath& m) { m.post_norms = false; });
  matters(gemma, "embedding", [](ToyMath& m) { m.scaled_embedding = false; });
  matters(gemma, "wider_window", [](ToyMath& m) { ++m.window_tokens; });
  matters(gemma, "narrower_window", [](ToyMath& m) { --m.window_tokens; });
  matters(gemma, "every", [](ToyMath& m) { m.full_every = 5; });
  matters(gemma, "window_rope", [](ToyMath& m) { m.window_rope_base = 1000; });
}

TEST(Architectures, KeysOfTheFileChangeWindowsAndRopes) {
  ToyModel toy(Shape("gemma3", 23));
  toy.numbers["gemma3.attention.sliding_window_pattern"] = 3;
  toy.floats["gemma3.rope.freq_base_swa"] = 77.0f;
  toy.strings["gemma3.rope.scaling.type"] = "linear";  // of the layers without windows alone
  toy.floats["gemma3.rope.scaling.factor"] = 4.0f;
  const Result<Model> model = toy.Load("keys");
  ASSERT_TRUE(model.ok()) << model.status().message();
  ToyMath math = ToyMath::Of(toy.shape);
  math.full_every = 3;
  math.window_rope_base = 77;
  const std::vector<int32_t> tokens = ToyTokens(100, toy.shape.vocab);
  EXPECT_LT(LargestError(LogitsOf(*model, tokens, "f32"), ToyReference(toy, math).Logits(tokens)),
            kTolerance);
}

// 300 tokens: windows end inside stored pages, in sinks, and in pages kept as written.
TEST(Architectures, WindowsDoNotChangeABitFromChunkToChunk) {
  for (const int window_tokens : {3, 70, 200}) {
    const ToyModel toy(Shape("gemma3", window_tokens));
    const Result<Model> model = toy.Load("chunks");
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<int32_t> tokens = ToyTokens(300, toy.shape.vocab);
    for (const char* kv : {"f16", "int4", "trellis3"}) {
      const auto whole = LogitsOf(*model, tokens, kv);
      for (const int chunk : {1, 7, 64}) {
        EXPECT_EQ(LogitsOf(*model, tokens, kv, chunk), whole) << kv << " window " << window_tokens;
      }
    }
  }
}

// At lengths where windows end inside sinks, stored pages, and pages kept as written.
TEST(Architectures, WhatAStepIsSaidToReadIsWhatItReads) {
  for (const int window_tokens : {3, 70, 200}) {
    const ToyModel toy(Shape("gemma3", window_tokens));
    const Result<Model> model = toy.Load("read");
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const char* kv : {"f16", "int4", "plain3"}) {
      for (const int64_t length : {2, 65, 71, 140, 200, 203, 300}) {
        SessionOptions options;
        options.kv = *ParseKvPreset(kv);
        options.threads = 1;
        Result<Session> session = Session::Create(*model, options);
        ASSERT_TRUE(session.ok());
        ASSERT_TRUE(session->Prefill(ToyTokens(length - 1, toy.shape.vocab)).ok());
        const int64_t before = session->kv_bytes_read();
        ASSERT_TRUE(session->Decode(1).ok());
        EXPECT_EQ(session->kv_bytes_read() - before, session->kv_bytes_read_per_token())
            << kv << " window " << window_tokens << " length " << length;
      }
    }
  }
}

}  // namespace
}  // namespace kvant
