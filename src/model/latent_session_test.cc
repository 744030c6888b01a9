// Sessions on a model whose heads share a latent (deepseek2).
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kvant/inspect.h"
#include "kvant/mixed_spec.h"
#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

ToyModel Toy() {
  return ToyModel(
      LatentShape({.rope = 16, .latent = 48, .latent_q = 24, .plain = 16, .value = 24}));
}
constexpr int kTokenValues = 2 * (48 + 16);  // in two layers

const char* const kCaches[] = {"f16", "f16/int8:token:g32:none", "int8",
                               "int8:token:g32:none/int4:token:g16:min"};

SessionOptions Options(const std::string& kv, int threads = 1, int chunk_tokens = 512) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  options.threads = threads;
  options.chunk_tokens = chunk_tokens;
  return options;
}

class LatentSession : public testing::Test {
 protected:
  void SetUp() override {
    Result<Model> model = toy_.Load("latent_session");
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::make_unique<Model>(std::move(model).value());
    tokens_ = ToyTokens(300, toy_.shape.vocab);
  }
  // Of a new session that reads all tokens.
  std::vector<float> Logits(const SessionOptions& options) {
    Session session = MakeSession(*model_, options);
    EXPECT_TRUE(session.Prefill(tokens_).ok());
    return LogitsOf(session);
  }

  const ToyModel toy_ = Toy();
  std::unique_ptr<Model> model_;
  std::vector<int32_t> tokens_;
};

TEST_F(LatentSession, ChunksAndThreadsDoNotChangeABit) {
  for (const char* kv : kCaches) {
    const std::vector<float> whole = Logits(Options(kv));
    for (const int chunk : {1, 7, 64}) {
      const int threads = chunk == 1 ? 1 : chunk == 7 ? 3 : 2;
      EXPECT_EQ(Logits(Options(kv, threads, chunk)), whole) << kv << " chunk " << chunk;
    }
  }
}

// A prompt's rows and a batch's go through the same matrices.
TEST_F(LatentSession, ABatchOfForksGivesWhatEachWouldGetAlone) {
  Session first = MakeSession(*model_, Options("f16/int8:token:g32:none", 2));
  ASSERT_TRUE(first.Prefill(std::span(tokens_).first(150)).ok());
  Result<Session> second = first.Fork(), third = first.Fork(), alone = first.Fork();
  ASSERT_TRUE(second.ok() && third.ok() && alone.ok());
  Session* const sessions[] = {&first, &*second, &*third};
  ASSERT_TRUE(Session::DecodeBatch(sessions, std::array{1, 2, 3}).ok());
  ASSERT_TRUE(alone->Decode(2).ok());
  EXPECT_EQ(LogitsOf(*second), LogitsOf(*alone));
}

TEST_F(LatentSession, WhatAStepIsSaidToReadIsWhatItReads) {
  for (const char* kv : kCaches) {
    for (const int64_t length : {2, 65, 140, 300}) {
      Session session = MakeSession(*model_, Options(kv));
      ASSERT_TRUE(session.Prefill(ToyTokens(length - 1, toy_.shape.vocab)).ok());
      const int64_t before = session.kv_bytes_read();
      ASSERT_TRUE(session.Decode(1).ok());
      EXPECT_EQ(session.kv_bytes_read() - before, session.kv_bytes_read_per_token())
          << kv << " length " << length;
      if (std::string(kv) == "f16") {
        EXPECT_EQ(session.kv_bytes_read_per_token(), length * kTokenValues * 2);
        EXPECT_EQ(session.ledger().code_bytes, length * kTokenValues * 2);
      }
    }
  }
}

TEST_F(LatentSession, ASavedSessionGoesOnAsIfNothingHadHappened) {
  const std::string path = testing::TempDir() + "kvant_latent.session";
  for (const char* kv : kCaches) {
    Session session = MakeSession(*model_, Options(kv));
    ASSERT_TRUE(session.Prefill(std::span(tokens_).first(200)).ok());
    ASSERT_TRUE(session.Save(path).ok());
    Session other = MakeSession(*model_, Options(kv));
    const Status status = other.Load(path);
    ASSERT_TRUE(status.ok()) << status.message();
    for (Session* each : {&session, &other}) {
      ASSERT_TRUE(each->Prefill(std::span(tokens_).subspan(200)).ok());
    }
    EXPECT_EQ(LogitsOf(other), LogitsOf(session)) << kv;
    const Result<SnapshotSummary> summary = InspectSnapshot(path);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(summary->geometry, model_->geometry());
  }
}

TEST_F(LatentSession, AShiftKeepsWhatItHolds) {
  SessionOptions options = Options("f16/int8:token:g32:none");
  options.context_tokens = 320;
  Session session = MakeSession(*model_, options);
  ASSERT_TRUE(session.Prefill(tokens_).ok());
  const Result<ContextShift> plan = session.PlanShift(0);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Status status = session.Shift(*plan);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(session.length(), 300 - plan->drop_tokens);
  EXPECT_TRUE(session.Decode(3).ok());
}

TEST_F(LatentSession, WhatTreatsKeysAndValuesApartIsRefused) {
  for (const char* kv : {"int4", "turbo4", "trellis3", "kvquant4"}) {
    const Status status = Session::Create(*model_, Options(kv)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << kv;
    EXPECT_NE(status.message().find("the latent is K and V in one"), std::string::npos)
        << status.message();
  }
  SessionOptions mixed;
  SetMixed(*ParseMixedSpec("mixed:8=int8:token+4=int4:token"), &mixed.kv);
  EXPECT_NE(Session::Create(*model_, mixed).status().message().find("policies and mixed widths"),
            std::string::npos);
}

TEST_F(LatentSession, TheFileTellsWhatItCachesWithoutBeingRun) {
  const Result<GgufSummary> summary = InspectGguf(model_->path());
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ASSERT_TRUE(summary->geometry) << summary->geometry_problem;
  EXPECT_EQ(*summary->geometry, model_->geometry());
  EXPECT_EQ(*summary->geometry, (KvGeometry{2, 1, 64, 4, 48}));
}

TEST_F(LatentSession, HeadsThatNeitherTensorMakesAreNamed) {
  ToyModel toy = Toy();
  toy.tensors.erase("blk.1.attn_v_b.weight");
  const Status missing = toy.Load("no_values").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("blk.1.attn_v_b.weight"), std::string::npos);
  toy = Toy();
  toy.tensors["blk.0.attn_k_b.weight"].dims = {48, 16, 4};  // not turned round
  const Status turned = toy.Load("turned_keys").status();
  EXPECT_EQ(turned.code(), StatusCode::kCorrupt);
  EXPECT_NE(turned.message().find("[48, 16, 4] where the metadata ask for [16, 48, 4]"),
            std::string::npos)
      << turned.message();
}

}  // namespace
}  // namespace kvant
