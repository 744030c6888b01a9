#include "kvant/attention_mass.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/toy_model_for_test.h"
#include "model/toy_reference_for_test.h"

namespace kvant {
namespace {

constexpr int64_t kContext = 512;

Session MakeSession(const Model& model, const std::string& kv, int threads = 1,
                    int chunk_tokens = 512) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  options.context_tokens = kContext;
  options.threads = threads;
  options.chunk_tokens = chunk_tokens;
  return MakeSession(model, options);
}

AttentionMass MakeMass(const Model& model) {
  return std::move(AttentionMass::Create(model.geometry(), kContext)).value();
}

void Watch(Session& session, AttentionMass& mass) {
  session.ObserveAttention([&mass](const LayerAttention& attention) { mass.Add(attention); });
}

// [layers][q_heads] rows, one behind the other.
std::vector<float> All(const AttentionMass& mass, const KvGeometry& g) {
  std::vector<float> all;
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.q_heads; ++head) {
      const auto row = mass.OfQueryHead(layer, head);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return all;
}

class AttentionMassOf : public testing::TestWithParam<ToyShape> {};

// An f32 cache leaves f32 roundings of the whole forward pass: logits agree to 5e-5 of their spread
// (llama_test.cc), scores have about that spread, and a token's sum is off by at most that share.
TEST_P(AttentionMassOf, AgreesWithAForwardPassInDouble) {
  const ToyModel toy(GetParam());
  const Result<Model> model = toy.Load("mass_" + toy.shape.architecture);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(200, toy.shape.vocab);
  Session session = MakeSession(*model, "f32", 2, 70);
  AttentionMass mass = MakeMass(*model);
  Watch(session, mass);
  ASSERT_TRUE(session.Prefill(tokens).ok());
  ASSERT_EQ(mass.length(), 200);
  const auto want = ToyReference(toy).AttentionSums(tokens);
  for (int layer = 0; layer < toy.shape.layers; ++layer) {
    for (int head = 0; head < toy.shape.q_heads; ++head) {
      double total = 0;
      for (size_t t = 0; t < 200; ++t) {
        const float got = mass.OfQueryHead(layer, head)[t];
        const double expected = want[static_cast<size_t>(layer)][static_cast<size_t>(head)][t];
        EXPECT_NEAR(got, expected, 2e-4 * expected + 1e-6)
            << "layer " << layer << " head " << head << " token " << t;
        total += static_cast<double>(got);
      }
      EXPECT_NEAR(total, 200, 1e-3);  // every query gives 1
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Model, AttentionMassOf,
    testing::Values(ToyShape{.q_heads = 6, .kv_heads = 2},
                    ToyShape{
                        .architecture = "gemma3", .layers = 7, .kv_heads = 1, .window_tokens = 90}),
    [](const auto& each) { return each.param.architecture; });

// A prompt in one piece, or token by token, or on other threads; of a coded cache, with outputs
// that nobody watched.
TEST(AttentionMass, IsTheSameBitsHoweverTheTokensCome) {
  const ToyModel toy({.q_heads = 6, .kv_heads = 2, .head_dim = 32, .rope_dims = 32});
  const Result<Model> model = toy.Load("mass_chunks");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> tokens = ToyTokens(300, toy.shape.vocab);
  for (const char* kv : {"f16", "int4"}) {
    Session plain = MakeSession(*model, kv);
    ASSERT_TRUE(plain.Prefill(tokens).ok());
    std::vector<float> expected;
    for (const int chunk : {512, 1, 5, 64, 100}) {
      for (const int threads : {1, 2}) {
        Session session = MakeSession(*model, kv, threads, chunk);
        AttentionMass mass = MakeMass(*model);
        Watch(session, mass);
        ASSERT_TRUE(session.Prefill(tokens).ok());
        const std::vector<float> got = All(mass, model->geometry());
        if (expected.empty()) expected = got;
        EXPECT_EQ(got, expected) << kv << " chunk " << chunk << " threads " << threads;
        const auto logits = session.Logits().value(), unwatched = plain.Logits().value();
        EXPECT_TRUE(std::equal(logits.begin(), logits.end(), unwatched.begin())) << kv;
      }
    }
  }
}

TEST(AttentionMass, OfABatchIsThatOfEachAlone) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("mass_batch");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<int32_t> prefix = ToyTokens(200, toy.shape.vocab), next = {3, 9};
  Session first = MakeSession(*model, "int4", 2);
  ASSERT_TRUE(first.Prefill(prefix).ok());
  Session second = first.Fork().value();
  std::vector<AttentionMass> together, alone;
  for (int i = 0; i < 2; ++i) {
    together.push_back(MakeMass(*model));
    alone.push_back(MakeMass(*model));
  }
  first.ObserveAttention([&](const LayerAttention& attention) {
    together[static_cast<size_t>(attention.part)].Add(attention);
  });
  Session* const batch[] = {&first, &second};
  ASSERT_TRUE(Session::DecodeBatch(batch, next).ok());
  for (size_t i = 0; i < 2; ++i) {
    Session session = MakeSession(*model, "int4");
    ASSERT_TRUE(session.Prefill(prefix).ok());
    Watch(session, alone[i]);
    ASSERT_TRUE(session.Decode(next[i]).ok());
    EXPECT_EQ(All(together[i], model->geometry()), All(alone[i], model->geometry())) << i;
  }
  EXPECT_NE(All(together[0], model->geometry()), All(together[1], model->geometry()));
  first.ObserveAttention({});
  ASSERT_TRUE(first.Decode(1).ok());
  EXPECT_EQ(together[0].length(), 201) << "nobody is told any more";
}

// The worked example of H2O: one head, six queries, the sums of their columns.
TEST(AttentionMass, SumsColumnsAndGroupsHeads) {
  constexpr int kTokens = 6;
  const float rows[kTokens][kTokens] = {{1},
                                        {.6f, .4f},
                                        {.5f, .1f, .4f},
                                        {.5f, .05f, .25f, .2f},
                                        {.4f, .05f, .3f, .05f, .2f},
                                        {.35f, .05f, .25f, .05f, .1f, .2f}};
  const KvGeometry geometry{.layers = 1, .kv_heads = 1, .head_dim = 4, .q_heads = 2};
  AttentionMass mass = std::move(AttentionMass::Create(geometry, 8)).value();
  for (int query = 0; query < kTokens; ++query) {
    float both[2][kTokens] = {};  // the second head looks at its own token alone
    std::copy(rows[query], rows[query] + kTokens, both[0]);
    both[1][query] = 1;
    mass.Add({.first_position = query,
              .queries = 1,
              .q_heads = 2,
              .kv_heads = 1,
              .tokens = query + 1,
              .probabilities = both[0],
              .stride = kTokens});
  }
  const float sums[kTokens] = {3.35f, .65f, 1.2f, .3f, .3f, .2f};
  const auto sum = mass.OfKvHead(0, 0, GroupMass::kSum), max = mass.OfKvHead(0, 0, GroupMass::kMax);
  ASSERT_EQ(mass.length(), kTokens);
  for (size_t t = 0; t < kTokens; ++t) {
    EXPECT_NEAR(mass.OfQueryHead(0, 0)[t], sums[t], 1e-6);
    EXPECT_NEAR(sum[t], sums[t] + 1, 1e-6);
    EXPECT_NEAR(max[t], std::max(sums[t], 1.0f), 1e-6);
  }
  mass.Clear();
  EXPECT_EQ(mass.length(), 0);
}

}  // namespace
}  // namespace kvant
