// Sessions whose cache keeps tokens at several widths.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "cache/width_policy_for_test.h"
#include "kvant/head_classes.h"
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

TEST(MixedSession, LayersThatSeeAWindowKeepOneWidth) {
  ToyShape shape;
  shape.architecture = "gemma3";
  shape.layers = 7;
  shape.window_tokens = 100;
  const Model model = ToyModel(shape).Load("mixed_windows").value();
  SessionOptions options;
  options.kv = MakeMixedSpec("8=int8:token+2=tq2", [](int64_t position, int64_t) {
    return std::array{8, 2, 0}[HashOf(position) % 3];
  });
  options.kv.skip_layers = {6};
  const std::vector<int32_t> tokens = ToyTokens(300, 40);
  Session session = MakeSession(model, options);
  EXPECT_EQ(session.kv().mixed->one_width_layers, (std::vector<int>{0, 1, 2, 3, 4, 6}));
  EXPECT_TRUE(IsMixedLayer(session.kv(), 5));
  ASSERT_TRUE(session.Prefill(tokens).ok());
  const CacheLedger ledger = session.ledger();
  int64_t head_tokens = ledger.dropped_head_tokens;
  for (const WidthLedger& width : ledger.widths) head_tokens += width.head_tokens;
  EXPECT_EQ(head_tokens, shape.kv_heads * (3 * 64 - 4));  // of layer 5
  // One pool that takes all tokens of the layer that sees them is a cache of one width.
  options.kv = MakeMixedSpec(
      "4=int4:token/int4:token", [](int64_t, int64_t) { return 4; }, true, 0);
  Session pooled = MakeSession(model, options);
  ASSERT_TRUE(pooled.Prefill(tokens).ok());
  options.kv = *ParseKvPreset("int4:token/int4:token");
  options.kv.sinks_tokens = 0;
  Session uniform = MakeSession(model, options);
  ASSERT_TRUE(uniform.Prefill(tokens).ok());
  EXPECT_EQ(LogitsOf(pooled), LogitsOf(uniform));
}

TEST(MixedSession, HeadsThatStreamKeepTheirFirstAndNewestTokens) {
  HeadClasses classes{.model_hash = Toy().file_hash(),
                      .layers = 2,
                      .kv_heads = 2,
                      .first_tokens = 10,
                      .recent_tokens = 100,
                      .sparsity = 0.5,
                      .gates = {.9f, .1f, .2f, .8f}};
  KvSpec kv = MakeMixedSpec(kTokenPools, [](int64_t, int64_t) { return 8; });
  MixedSpec mixed = *kv.mixed;
  mixed.heads = std::make_shared<const HeadClasses>(classes);
  SetMixed(mixed, &kv);
  Session session = MakeSession(kv);
  ASSERT_TRUE(session.Prefill(ToyTokens(450, 40)).ok());
  // Six pages have left the window, the last of them at 448 tokens, of which the newest 100 begin
  // at 348. The widest pool holds 16 bits, which streaming leaves alone.
  const CacheLedger ledger = session.ledger();
  EXPECT_EQ(ledger.widths[0].head_tokens, 2 * (6 + (384 - 348)));
  EXPECT_EQ(ledger.widths[1].head_tokens, 2 * (384 - 4));
  EXPECT_EQ(ledger.dropped_head_tokens, 2 * (348 - 10));
  classes.model_hash ^= 1;
  mixed.heads = std::make_shared<const HeadClasses>(classes);
  SetMixed(mixed, &kv);
  SessionOptions options;
  options.kv = kv;
  EXPECT_NE(Session::Create(Toy(), options).status().message().find("another model"),
            std::string::npos);
}

}  // namespace
}  // namespace kvant
