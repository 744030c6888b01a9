#include "kvant/session.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/session_for_test.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

const Model& ToyModelOfAllTests() {
  static const Model model = ToyModel().Load("session").value();
  return model;
}

Session MakeSession(SessionOptions options = {}) {
  options.threads = 2;
  return MakeSession(ToyModelOfAllTests(), options);
}

SessionOptions WithKv(const std::string& kv) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  return options;
}

void ExpectRefused(const Status& status, StatusCode code, const std::string& what) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
}

TEST(Session, ImpossibleOptionsAreRefusedByName) {
  const auto create = [](auto change) {
    SessionOptions options;
    change(options);
    return Session::Create(ToyModelOfAllTests(), options).status();
  };
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  ExpectRefused(create([](auto& o) { o.chunk_tokens = 0; }), kInvalid, "chunks of 0");
  ExpectRefused(create([](auto& o) { o.chunk_tokens = 5000; }), kInvalid, "chunks of 5000");
  ExpectRefused(create([](auto& o) { o.context_tokens = -1; }), kInvalid, "context of -1");
  ExpectRefused(create([](auto& o) { o.kv_budget_bytes = -5; }), kInvalid, "budget of -5");
  ExpectRefused(create([](auto& o) { o.threads = -1; }), kInvalid, "-1");
  ExpectRefused(create([](auto& o) { o.kv.window_tokens = 65; }), kInvalid, "65");
  ExpectRefused(create([](auto& o) { o.kv.skip_layers = {2}; }), kInvalid, "2");
}

TEST(Session, APromptLongerThanTheContextIsRefusedWithBothNumbers) {
  SessionOptions options;
  options.context_tokens = 100;
  Session session = MakeSession(options);
  ASSERT_TRUE(session.Prefill(ToyTokens(90, 40)).ok());
  const std::vector<float> before = LogitsOf(session);
  const Status status = session.Prefill(ToyTokens(11, 40));
  ExpectRefused(status, StatusCode::kOutOfRange, "101");
  ExpectRefused(status, StatusCode::kOutOfRange, "100");
  EXPECT_EQ(session.length(), 90);
  EXPECT_EQ(LogitsOf(session), before);
  ASSERT_TRUE(session.Prefill(ToyTokens(10, 40)).ok());
  ExpectRefused(session.Decode(1), StatusCode::kOutOfRange, "101");
}

TEST(Session, TokensOutsideTheVocabularyAreNamedAndNothingIsAppended) {
  Session session = MakeSession();
  ExpectRefused(session.Prefill(std::vector<int32_t>{1, 2, 40}), StatusCode::kInvalidArgument,
                "token 40 at place 2");
  ExpectRefused(session.Decode(-1), StatusCode::kInvalidArgument, "token -1");
  EXPECT_EQ(session.length(), 0);
}

TEST(Session, LogitsNeedATokenFirst) {
  Session session = MakeSession();
  EXPECT_EQ(session.Logits().status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session.Prefill({}).ok());
  EXPECT_EQ(session.Logits().status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session.Decode(3).ok());
  EXPECT_EQ(LogitsOf(session).size(), 40u);
}

TEST(Session, ACancelBetweenChunksLeavesTheChunksDoneAndCanGoOn) {
  SessionOptions options = WithKv("int4");
  options.chunk_tokens = 32;
  const std::vector<int32_t> tokens = ToyTokens(300, 40);
  std::atomic<bool> cancel = false;
  std::vector<int64_t> seen;
  Session session = MakeSession(options);
  const Status status = session.Prefill(tokens, {.progress =
                                                     [&](int64_t done, int64_t total) {
                                                       EXPECT_EQ(total, 300);
                                                       seen.push_back(done);
                                                       cancel = done >= 160;
                                                     },
                                                 .cancel = &cancel});
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(seen, (std::vector<int64_t>{32, 64, 96, 128, 160}));
  EXPECT_EQ(session.length(), 160);
  ASSERT_TRUE(session.Prefill(std::span(tokens).subspan(160)).ok());
  Session straight = MakeSession(options);
  ASSERT_TRUE(straight.Prefill(tokens).ok());
  EXPECT_EQ(LogitsOf(session), LogitsOf(straight));
  EXPECT_EQ(session.ledger().kv_bytes, straight.ledger().kv_bytes);
}

TEST(Session, AForkGoesItsOwnWayAndLeavesItsParentAlone) {
  const std::vector<int32_t> tokens = ToyTokens(200, 40), other = ToyTokens(90, 40, 5);
  Session parent = MakeSession(WithKv("int4"));
  ASSERT_TRUE(parent.Prefill(tokens).ok());
  Result<Session> fork = parent.Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_EQ(LogitsOf(*fork), LogitsOf(parent));
  ASSERT_TRUE(fork->Prefill(other).ok());
  ASSERT_TRUE(parent.Decode(9).ok());

  Session straight = MakeSession(WithKv("int4"));
  ASSERT_TRUE(straight.Prefill(tokens).ok());
  Session straight_fork = MakeSession(WithKv("int4"));
  ASSERT_TRUE(straight_fork.Prefill(tokens).ok());
  ASSERT_TRUE(straight.Decode(9).ok());
  ASSERT_TRUE(straight_fork.Prefill(other).ok());
  EXPECT_EQ(LogitsOf(parent), LogitsOf(straight));
  EXPECT_EQ(LogitsOf(*fork), LogitsOf(straight_fork));
}

TEST(Session, AForkOutlivesItsParent) {
  Result<Session> fork = Status::NotFound("not yet");
  {
    Session parent = MakeSession();
    ASSERT_TRUE(parent.Prefill(ToyTokens(70, 40)).ok());
    fork = parent.Fork();
  }
  ASSERT_TRUE(fork.ok());
  EXPECT_TRUE(fork->Decode(1).ok());
  EXPECT_EQ(fork->length(), 71);
  EXPECT_EQ(fork->ledger().tokens, 71);
}

// Sessions that decode together share weights, pages and memory for logits, but no result.
TEST(Session, ForksThatDecodeTogetherGetWhatTheyGetAlone) {
  for (const char* kv : {"f16", "int4"}) {
    constexpr int kForks = 3, kSteps = 40;  // past the end of a page
    const std::vector<int32_t> tokens = ToyTokens(630, 40);
    SessionOptions options = WithKv(kv);
    options.context_tokens = 700;
    Session parent = MakeSession(options), alone = MakeSession(options);
    ASSERT_TRUE(parent.Prefill(tokens).ok());
    ASSERT_TRUE(alone.Prefill(tokens).ok());
    std::vector<Session> forks;
    std::vector<Session*> together;
    for (int i = 0; i < kForks; ++i) forks.push_back(std::move(parent.Fork()).value());
    for (Session& fork : forks) together.push_back(&fork);
    const std::vector<int32_t> next = ToyTokens(kForks * kSteps, 40, 9);
    for (int step = 0; step < kSteps; ++step) {
      const std::span<const int32_t> now = std::span(next).subspan(step * kForks, kForks);
      ASSERT_TRUE(Session::DecodeBatch(together, now).ok());
    }
    for (int i = 0; i < kForks; ++i) {
      Session fork = std::move(alone.Fork()).value();
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_TRUE(fork.Decode(next[static_cast<size_t>(step * kForks + i)]).ok());
      }
      EXPECT_EQ(LogitsOf(fork), LogitsOf(forks[static_cast<size_t>(i)])) << kv << " fork " << i;
    }
  }
}

TEST(Session, ABatchReadsSharedPagesOnce) {
  Session parent = MakeSession(WithKv("int4"));
  ASSERT_TRUE(parent.Prefill(ToyTokens(500, 40)).ok());
  std::vector<Session> forks;
  std::vector<Session*> together;
  for (int i = 0; i < 4; ++i) forks.push_back(std::move(parent.Fork()).value());
  for (Session& fork : forks) together.push_back(&fork);

  int64_t before = parent.kv_bytes_read();
  ASSERT_TRUE(parent.Decode(1).ok());
  const int64_t alone_bytes = parent.kv_bytes_read() - before;
  EXPECT_EQ(alone_bytes, parent.kv_bytes_read_per_token());

  before = parent.kv_bytes_read();
  ASSERT_TRUE(Session::DecodeBatch(together, std::vector<int32_t>{1, 2, 3, 4}).ok());
  const int64_t batch_bytes = parent.kv_bytes_read() - before;
  // Beyond the first sequence, each adds its own copy of the page that it writes to: tokens 448 to
  // 500, 2 sides in f16 of 2 heads of 16 channels in 2 layers.
  EXPECT_EQ(batch_bytes, alone_bytes + 3 * 53 * (2 * 2 * 16 * 2 * 2));
}

TEST(Session, LogitsStayAsTheyAreWhileOtherForksDecode) {
  Session parent = MakeSession();
  ASSERT_TRUE(parent.Prefill(ToyTokens(50, 40)).ok());
  Session a = std::move(parent.Fork()).value(), b = std::move(parent.Fork()).value();
  Session* const both[] = {&a, &b};
  ASSERT_TRUE(Session::DecodeBatch(both, std::vector<int32_t>{1, 2}).ok());
  const std::span<const float> held = *a.Logits();  // valid until `a` changes
  const std::vector<float> copy(held.begin(), held.end());
  Session fork = std::move(a.Fork()).value();
  Session* const one[] = {&b};
  ASSERT_TRUE(Session::DecodeBatch(one, std::vector<int32_t>{3}).ok());
  ASSERT_TRUE(b.Decode(4).ok());
  EXPECT_NE(LogitsOf(b), copy);
  EXPECT_EQ(std::vector<float>(held.begin(), held.end()), copy);
  ASSERT_TRUE(a.Decode(5).ok());
  EXPECT_EQ(LogitsOf(fork), copy);
}

TEST(Session, TruncateForgetsExactly) {
  const std::vector<int32_t> tokens = ToyTokens(200, 40);
  Session session = MakeSession(WithKv("int4"));
  ASSERT_TRUE(session.Prefill(tokens).ok());
  ASSERT_TRUE(session.Truncate(195).ok());
  EXPECT_EQ(session.Logits().status().code(), StatusCode::kInvalidArgument);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session.Decode(7).ok());
  Session straight = MakeSession(WithKv("int4"));
  ASSERT_TRUE(straight.Prefill(std::span(tokens).first(195)).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(straight.Decode(7).ok());
  EXPECT_EQ(LogitsOf(session), LogitsOf(straight));
  EXPECT_EQ(session.Truncate(10).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(session.length(), 198);
}

TEST(Session, ResetStartsAfresh) {
  const std::vector<int32_t> tokens = ToyTokens(150, 40);
  Session session = MakeSession(WithKv("int2"));
  ASSERT_TRUE(session.Prefill(ToyTokens(400, 40, 3)).ok());
  ASSERT_TRUE(session.Reset().ok());
  EXPECT_EQ(session.length(), 0);
  EXPECT_FALSE(session.Logits().ok());
  ASSERT_TRUE(session.Prefill(tokens).ok());
  Session fresh = MakeSession(WithKv("int2"));
  ASSERT_TRUE(fresh.Prefill(tokens).ok());
  EXPECT_EQ(LogitsOf(session), LogitsOf(fresh));
  EXPECT_EQ(session.ledger().kv_bytes, fresh.ledger().kv_bytes);
}

TEST(Session, ABudgetThatIsTooSmallStopsThePromptAndKeepsTheSession) {
  SessionOptions options = WithKv("f16");
  options.chunk_tokens = 64;
  options.kv_budget_bytes = 64 * 1024;
  Session session = MakeSession(options);
  const Status status = session.Prefill(ToyTokens(500, 40));
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.message();
  const int64_t kept = session.length();
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 500);
  EXPECT_LE(session.ledger().allocated_bytes, 64 * 1024);
  Session straight = MakeSession(WithKv("f16"));
  ASSERT_TRUE(straight.Prefill(ToyTokens(kept, 40)).ok());
  EXPECT_EQ(LogitsOf(session), LogitsOf(straight));
}

TEST(Session, FormatsAndBytesAreThoseOfTheCache) {
  SessionOptions options = WithKv("int4");
  options.kv.skip_layers = {1};
  Session session = MakeSession(options);
  const std::vector<FormatPair> formats = session.layer_formats();
  ASSERT_EQ(formats.size(), 2u);
  EXPECT_EQ(formats[0], (FormatPair{options.kv.k, options.kv.v}));
  EXPECT_EQ(formats[1], (FormatPair{kFormatF16, kFormatF16}));
  ASSERT_TRUE(session.Prefill(ToyTokens(256, 40)).ok());
  // f16: 2 sides, 2 layers, 2 heads of 16 channels, 2 bytes.
  Session half = MakeSession(WithKv("f16"));
  ASSERT_TRUE(half.Prefill(ToyTokens(256, 40)).ok());
  EXPECT_EQ(half.ledger().kv_bytes, 256 * 2 * 2 * 2 * 16 * 2);
  EXPECT_EQ(half.kv_bytes_read_per_token(), 256 * 2 * 2 * 2 * 16 * 2);
  EXPECT_LT(session.ledger().kv_bytes, half.ledger().kv_bytes);
  EXPECT_EQ(session.ledger().tokens, 256);
}

TEST(Session, AContextBeyondTheTrainedOneIsTheCallersChoice) {
  SessionOptions options;
  options.context_tokens = 600;
  Session session = MakeSession(options);
  EXPECT_EQ(session.context_tokens(), 600);
  EXPECT_TRUE(session.Prefill(ToyTokens(600, 40)).ok());
  EXPECT_EQ(MakeSession().context_tokens(), 512);
}

}  // namespace
}  // namespace kvant
