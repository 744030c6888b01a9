#include "model/llama.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kvant/isa.h"
#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/session_impl.h"
#include "model/toy_model_for_test.h"
#include "model/toy_reference_for_test.h"

namespace kvant {
namespace {

Session MakeSession(const Model& model, const std::string& kv, int threads = 1,
                    int chunk_tokens = 512) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  options.threads = threads;
  options.chunk_tokens = chunk_tokens;
  return MakeSession(model, options);
}

// Of a session that reads the tokens one by one.
double ErrorTokenByToken(const ToyModel& toy, const Model& model, const std::string& kv,
                         std::span<const int32_t> tokens) {
  Session session = MakeSession(model, kv);
  std::vector<std::vector<float>> logits;
  for (const int32_t token : tokens) {
    EXPECT_TRUE(session.Decode(token).ok());
    logits.push_back(LogitsOf(session));
  }
  return LargestError(logits, ToyReference(toy).Logits(tokens));
}

struct ToyCase {
  const char* name;
  ToyShape shape;
};
class ToyShapes : public testing::TestWithParam<ToyCase> {};

TEST_P(ToyShapes, AgreeWithAForwardPassInDouble) {
  const ToyModel toy(GetParam().shape);
  const Result<Model> model = toy.Load(GetParam().name);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(140, toy.shape.vocab);  // three pages
  EXPECT_LT(ErrorTokenByToken(toy, *model, "f32", tokens), 5e-5);
  EXPECT_LT(ErrorTokenByToken(toy, *model, "f16", tokens), 3e-2);
}

INSTANTIATE_TEST_SUITE_P(
    Llama, ToyShapes,
    testing::Values(ToyCase{"OneHeadPerKvHead", {.q_heads = 3, .kv_heads = 3, .head_dim = 16}},
                    ToyCase{"TwoHeadsPerKvHead",
                            {.q_heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32}},
                    ToyCase{"ThreeHeadsPerKvHead",
                            {.q_heads = 9, .kv_heads = 3, .head_dim = 64, .rope_dims = 64}},
                    ToyCase{"OneKvHead",
                            {.q_heads = 5, .kv_heads = 1, .head_dim = 20, .rope_dims = 20}},
                    ToyCase{"PartlyRotatedHeads", {.head_dim = 24, .rope_dims = 10}},
                    ToyCase{"TiedEmbedding", {.tied = true}},
                    ToyCase{"OddWidths", {.embedding = 36, .feed_forward = 50, .vocab = 41}},
                    ToyCase{"OneLayer", {.layers = 1}}),
    [](const auto& param) { return param.param.name; });

TEST(Llama, LinearRopeScalingAgreesWithDouble) {
  ToyModel toy;
  toy.strings["llama.rope.scaling.type"] = "linear";
  toy.floats["llama.rope.scaling.factor"] = 3.0f;
  const Result<Model> model = toy.Load("linear");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_LT(ErrorTokenByToken(toy, *model, "f32", ToyTokens(100, toy.shape.vocab)), 5e-5);
}

TEST(Llama, RopeFactorsOfTheFileAgreeWithDouble) {
  ToyModel toy;
  toy.tensors["rope_freqs.weight"] = {{8}, {1, 1, 1.5f, 2, 3, 5, 8, 8}};
  const Result<Model> model = toy.Load("factors");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_LT(ErrorTokenByToken(toy, *model, "f32", ToyTokens(100, toy.shape.vocab)), 5e-5);
}

// 300 tokens: the last ones read stored pages, window and sinks.
void ExpectTheSameBits(const std::string& kv, std::span<const int> chunks,
                       std::span<const int> threads) {
  const ToyModel toy({.q_heads = 6, .kv_heads = 2, .head_dim = 32, .rope_dims = 32});
  const Result<Model> model = toy.Load("chunkings");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(300, toy.shape.vocab);
  Session whole = MakeSession(*model, kv);
  ASSERT_TRUE(whole.Prefill(tokens).ok());
  const std::vector<float> expected = LogitsOf(whole);
  for (const int chunk : chunks) {
    for (const int count : threads) {
      Session session = MakeSession(*model, kv, count, chunk);
      ASSERT_TRUE(session.Prefill(tokens).ok());
      EXPECT_EQ(LogitsOf(session), expected)
          << kv << ", chunks of " << chunk << ", threads " << count;
    }
  }
}

TEST(Llama, ChunksAndThreadsDoNotChangeABit) {
  for (const char* kv : {"f16", "int4"}) {
    ExpectTheSameBits(kv, std::array{1, 5, 32, 64, 100}, std::array{1, 2, 3});
  }
}

TEST(Llama, ChunksAndThreadsDoNotChangeABitInAnyFormat) {
  // int4:g128 has pages of 128 tokens.
  for (const char* kv : {"f32", "bf16", "int8", "int3", "int2", "plain4", "trellis2", "trellis4",
                         "int4:g128", "q8_0", "q4_0", "q5_1", "iq4_nl"}) {
    ExpectTheSameBits(kv, std::array{1, 100}, std::array{2});
  }
}

// Every pair of formats that a spec can name, on every level that the machine has. The last tokens
// read stored pages; one token at a time they must get what they get as part of a prompt.
class Pairs : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { ASSERT_TRUE(SetActiveIsa(AvailableIsas().back()).ok()); }
};

TEST_P(Pairs, OneTokenAtATimeGivesThePromptsBitsOnEveryIsa) {
  const ToyModel toy({.layers = 1, .q_heads = 6, .kv_heads = 2});
  const Result<Model> model = toy.Load(std::string("pairs_") + GetParam());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(200, toy.shape.vocab);
  for (const char* v : {"f32", "f16", "bf16", "int8", "int6", "int5", "int4", "int3", "int2",
                        "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "tq2:n8", "tc3"}) {
    std::vector<float> expected;
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      SessionOptions options;
      options.kv.k = *ParseFormat(GetParam(), Side::kK);
      options.kv.v = *ParseFormat(v, Side::kV);
      options.threads = 1;
      Result<Session> single = Session::Create(*model, options);
      ASSERT_TRUE(single.ok()) << single.status().message();
      ASSERT_TRUE(single->Prefill(std::span(tokens).first(196)).ok());
      Session prompt = single->Fork().value();
      ASSERT_TRUE(prompt.Prefill(std::span(tokens).last(4)).ok());
      if (expected.empty()) expected = LogitsOf(prompt);
      EXPECT_EQ(LogitsOf(prompt), expected) << "values " << v << " on " << IsaName(isa);
      for (size_t i = 196; i < 200; ++i) ASSERT_TRUE(single->Decode(tokens[i]).ok());
      EXPECT_EQ(LogitsOf(*single), expected) << "values " << v << " on " << IsaName(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Pairs,
                         testing::Values("f32", "f16", "bf16", "int8", "int6", "int5", "int4",
                                         "int3", "int2", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1",
                                         "iq4_nl", "tq4:mean:bal:n8", "tcx2"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST(Llama, ABatchGivesEachSequenceWhatItGetsAlone) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("batch");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t lengths[] = {1, 7, 64, 500};
  std::vector<Session> sessions, alone;
  Session first = MakeSession(*model, "int4", 2);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> tokens = ToyTokens(lengths[i], toy.shape.vocab, 20 + i);
    Result<Session> fork = first.Fork();
    ASSERT_TRUE(fork.ok()) << fork.status().message();
    sessions.push_back(std::move(fork).value());
    ASSERT_TRUE(sessions.back().Prefill(tokens).ok());
    alone.push_back(MakeSession(*model, "int4"));
    ASSERT_TRUE(alone.back().Prefill(tokens).ok());
  }
  for (int32_t step = 0; step < 10; ++step) {
    std::vector<Session*> batch;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < 4; ++i) {
      if (i == 3 && step >= 4) continue;  // the longest leaves first
      batch.push_back(&sessions[i]);
      tokens.push_back(step + static_cast<int32_t>(i));
      ASSERT_TRUE(alone[i].Decode(tokens.back()).ok());
    }
    const Status status = Session::DecodeBatch(batch, tokens);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(LogitsOf(*batch[i]), LogitsOf(alone[i])) << "sequence " << i << " step " << step;
    }
  }
}

// Parts whose older rows are dropped close up; what is cached of them must not.
TEST(Llama, AStepForTheNewestTokensAloneGivesTheirBitsAndCachesAll) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("newest");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> a = ToyTokens(130, toy.shape.vocab, 1), b = {3, 4, 5}, next = {7};
  const int64_t embedding = toy.shape.embedding;
  std::vector<std::vector<float>> hidden;
  for (const bool newest_only : {false, true}) {
    Session first = MakeSession(*model, "int4", 2);
    Result<Session> second = first.Fork();
    ASSERT_TRUE(second.ok());
    Llama& llama = *first.impl().engine->llama;
    const SequenceId ids[] = {first.impl().sequence, second->impl().sequence};
    const StepPart step[] = {{ids[0], a, newest_only}, {ids[1], b}};
    ASSERT_TRUE(llama.Step(step, nullptr).ok());
    const int64_t rows = newest_only ? 4 : 133;
    hidden.emplace_back(llama.hidden(rows - 4), llama.hidden(rows));
    const StepPart then[] = {{ids[0], next}};
    ASSERT_TRUE(llama.Step(then, nullptr).ok());
    hidden.back().insert(hidden.back().end(), llama.hidden(0), llama.hidden(1));
    EXPECT_EQ(hidden.back().size(), static_cast<size_t>(5 * embedding));
  }
  EXPECT_EQ(hidden[0], hidden[1]);
}

TEST(Llama, ABatchThatCannotBeIsRefused) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("bad_batch");
  ASSERT_TRUE(model.ok());
  Session a = MakeSession(*model, "f16"), stranger = MakeSession(*model, "f16");
  const std::vector<int32_t> tokens = {1, 2};
  Session* twice[] = {&a, &a};
  Session* apart[] = {&a, &stranger};
  EXPECT_NE(Session::DecodeBatch(twice, tokens).message().find("twice"), std::string::npos);
  EXPECT_NE(Session::DecodeBatch(apart, tokens).message().find("another cache"), std::string::npos);
  EXPECT_NE(Session::DecodeBatch(std::span(apart).first(1), tokens).message().find("2 tokens"),
            std::string::npos);
  EXPECT_EQ(a.length(), 0);
}

}  // namespace
}  // namespace kvant
