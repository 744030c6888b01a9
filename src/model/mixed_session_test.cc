// Sessions whose cache keeps tokens at several widths.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cache/width_policy_for_test.h"
#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

const Model& Toy() {
  static const Model model = ToyModel().Load("mixed_session").value();
  return model;
}

Session MakeSession(const KvSpec& kv, int chunk_tokens = 512, int threads = 2) {
  SessionOptions options;
  options.kv = kv;
  options.threads = threads;
  options.chunk_tokens = chunk_tokens;
  return MakeSession(Toy(), options);
}

std::vector<float> LogitsAfter(const KvSpec& kv, const std::vector<int32_t>& tokens,
                               int chunk_tokens = 512, int threads = 2) {
  Session session = MakeSession(kv, chunk_tokens, threads);
  const Status status = session.Prefill(tokens);
  EXPECT_TRUE(status.ok()) << status.message();
  return LogitsOf(session);
}

TEST(MixedSession, ChunksThreadsForksAndCutsDoNotChangeABit) {
  const std::vector<int32_t> tokens = ToyTokens(400, 40);
  const KvSpec kv = MakeMixedSpec(kTokenPools, AgeingWidth);
  const std::vector<float> whole = LogitsAfter(kv, tokens);
  EXPECT_EQ(LogitsAfter(kv, tokens, 17, 1), whole);
  Session session = MakeSession(kv, 100);
  const std::span<const int32_t> all(tokens);
  ASSERT_TRUE(session.Prefill(all.first(390)).ok());
  Session fork = std::move(session.Fork()).value();
  ASSERT_TRUE(session.Prefill(ToyTokens(30, 40, 8)).ok());
  for (const int32_t token : all.subspan(390)) ASSERT_TRUE(fork.Decode(token).ok());
  EXPECT_EQ(LogitsOf(fork), whole);
  ASSERT_TRUE(fork.Prefill(ToyTokens(20, 40, 9)).ok());
  ASSERT_TRUE(fork.Truncate(399).ok());
  ASSERT_TRUE(fork.Decode(tokens.back()).ok());
  EXPECT_EQ(LogitsOf(fork), whole);
}

// All tokens in one pool, no sinks: its pages are those of a cache with one width, in their order.
TEST(MixedSession, OnePoolAnswersAsACacheOfThatWidth) {
  const std::vector<int32_t> tokens = ToyTokens(400, 40);
  KvSpec uniform = *ParseKvPreset("int4:channel:g64:min/int4:token:min");
  uniform.sinks_tokens = 0;
  const KvSpec mixed = MakeMixedSpec(
      "4=int4:channel:g64:min/int4:token:min", [](int64_t, int64_t) { return 4; }, true, 0);
  EXPECT_EQ(LogitsAfter(mixed, tokens), LogitsAfter(uniform, tokens));
}

TEST(MixedSession, TheLedgerCountsWidthsAndWhatWasDropped) {
  Session session = MakeSession(MakeMixedSpec(kTokenPools, AgeingWidth));
  ASSERT_TRUE(session.Prefill(ToyTokens(450, 40)).ok());
  const CacheLedger l = session.ledger();
  int64_t head_tokens = l.dropped_head_tokens;
  ASSERT_EQ(l.widths.size(), 4u);
  for (const WidthLedger& width : l.widths) head_tokens += width.head_tokens;
  EXPECT_EQ(head_tokens, 4 * l.stored_tokens);  // two layers of two KV heads
  EXPECT_EQ(l.stored_tokens, 6 * 64 - 4);
  EXPECT_GT(l.dropped_head_tokens, 0);
  EXPECT_GT(l.requantised_head_tokens, 0);
  EXPECT_EQ(l.widths[0].head_tokens, 0);  // nobody asks for 16 bits
  EXPECT_GT(l.widths[3].page_bytes, 0);
}

// Heads hold what their own keys ask for, so none stands for the others.
TEST(MixedSession, BytesReadAreThoseOfEveryHead) {
  KvSpec kv;
  SetMixed({.pools = *ParseMixedPools(kTokenPools),
            .policy = std::move(ParsePolicy("keydiff:0.5")).value(),
            .once = false,
            .budget_bytes = 20000},
           &kv);
  Session session = MakeSession(kv);
  ASSERT_TRUE(session.Prefill(ToyTokens(450, 40)).ok());
  const int64_t before = session.kv_bytes_read();
  ASSERT_TRUE(session.Decode(1).ok());
  EXPECT_EQ(session.kv_bytes_read() - before, session.kv_bytes_read_per_token());
}

TEST(MixedSession, AttentionIsNotToldOf) {
  Session session = MakeSession(MakeMixedSpec(kTokenPools, HashedWidth));
  session.ObserveAttention([](const LayerAttention&) { FAIL(); });
  EXPECT_EQ(session.Prefill(ToyTokens(10, 40)).code(), StatusCode::kUnsupported);
  EXPECT_EQ(session.length(), 0);
  session.ObserveAttention({});
  EXPECT_TRUE(session.Prefill(ToyTokens(10, 40)).ok());
}

TEST(MixedSession, LayersThatSeeAWindowAreRefusedUnlessSkipped) {
  ToyShape shape;
  shape.architecture = "gemma3";
  shape.layers = 7;
  shape.window_tokens = 100;
  const Model model = ToyModel(shape).Load("mixed_windows").value();
  SessionOptions options;
  options.kv = MakeMixedSpec(kTokenPools, HashedWidth);
  const Status status = Session::Create(model, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("layer 0 sees only the newest 100"), std::string::npos)
      << status.message();
  options.kv.skip_layers = {0, 1, 2, 3, 4, 6};
  Result<Session> session = Session::Create(model, options);
  ASSERT_TRUE(session.ok()) << session.status().message();
  EXPECT_TRUE(session->Prefill(ToyTokens(300, 40)).ok());
}

}  // namespace
}  // namespace kvant
