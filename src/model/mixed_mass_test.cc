// Sessions whose cache judges its tokens by the attention they got.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cache/width_policy_for_test.h"
#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

constexpr const char* kPolicies[] = {"h2o:0.3,0.2",  "snapkv:0.5", "diffkv:0.5,1,8,4",
                                     "mikv:0.3,8,2", "qaq:0.02",   "variance"};

KvSpec SpecOf(std::shared_ptr<const Policy> policy, int64_t budget_bytes = 0) {
  KvSpec kv;
  SetMixed({.pools = *ParseMixedPools(kTokenPools),
            .policy = std::move(policy),
            .once = false,
            .budget_bytes = budget_bytes},
           &kv);
  return kv;
}
KvSpec SpecOf(const std::string& policy) {
  return SpecOf(ParsePolicy(policy).value(), policy == "variance" ? 60000 : 0);
}

Session SessionOf(const Model& model, const KvSpec& kv, int chunk_tokens = 512, int threads = 2) {
  SessionOptions options;
  options.kv = kv;
  options.threads = threads;
  options.chunk_tokens = chunk_tokens;
  return MakeSession(model, options);
}

const Model& Toy() {
  static const Model model = ToyModel().Load("mixed_mass").value();
  return model;
}

// Widths by hash, and what the policy was told, by the length at which it was asked.
class Listener : public WidthPolicy {
 public:
  using Scores = std::map<int32_t, float>;  // by position
  explicit Listener(ScoreKind kind) : WidthPolicy(HashedWidth), kind_(kind) {}
  ScoreKind score_kind() const override { return kind_; }
  void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
              std::span<uint8_t> width) const override {
    WidthPolicy::Choose(tokens, limits, width);
    Scores& scores = heard_[limits.length];
    for (size_t i = 0; i < width.size(); ++i) scores[tokens.position[i]] = tokens.score[i];
  }
  const std::map<int64_t, Scores>& heard() const { return heard_; }

 private:
  const ScoreKind kind_;
  mutable std::map<int64_t, Scores> heard_;
};

// Rows of probabilities that an observer was told, [query][q head].
using Rows = std::vector<std::vector<std::vector<float>>>;

double ExpectedScore(ScoreKind kind, const Rows& rows, int64_t position, int64_t length) {
  const int64_t first = kind == ScoreKind::kTotal ? 0 : length - 64;
  const size_t heads = rows[0].size(), at = static_cast<size_t>(position);
  double total = 0, top = 0, most = 0;
  for (size_t h = 0; h < heads; ++h) {
    double of_head = 0;
    for (int64_t q = std::max(first, position); q < length; ++q) {
      const double p = static_cast<double>(rows[static_cast<size_t>(q)][h][at]);
      of_head += p;
      most = std::max(most, p);
    }
    total += of_head;
    top = std::max(top, of_head);
  }
  const auto seen_by = static_cast<double>(length - std::max(first, position));
  switch (kind) {
    case ScoreKind::kTotal:
      return total;
    case ScoreKind::kRecentMean:
      return total / seen_by / static_cast<double>(heads);
    case ScoreKind::kRecentTop:
      return top / seen_by;
    default:
      return most;
  }
}

// One layer with one KV head, so that the policy's calls are told apart by length alone; the layer
// is the last one, of which a prompt otherwise computes one query only.
TEST(MixedMass, ScoresAreThoseOfTheProbabilitiesThatTheObserverIsTold) {
  ToyShape shape;
  shape.layers = 1;
  shape.q_heads = 3;
  shape.kv_heads = 1;
  const Model model = ToyModel(shape).Load("mixed_mass_one").value();
  for (const ScoreKind kind :
       {ScoreKind::kTotal, ScoreKind::kRecentMean, ScoreKind::kRecentTop, ScoreKind::kRecentMax}) {
    const auto listener = std::make_shared<Listener>(kind);
    Session session = SessionOf(model, SpecOf(listener), 50);
    Rows rows;
    session.ObserveAttention([&](const LayerAttention& a) {
      for (int q = 0; q < a.queries; ++q) {
        rows.emplace_back();
        double sum = 0;
        for (int h = 0; h < 3; ++h) {
          const auto row = a.Row(q, h);
          rows.back().emplace_back(row.begin(), row.end());
          for (const float p : row) sum += static_cast<double>(p);
        }
        EXPECT_NEAR(sum, 3, 1e-5);  // as probabilities_test.cc has it
      }
    });
    ASSERT_TRUE(session.Prefill(ToyTokens(450, 40)).ok());
    ASSERT_EQ(rows.size(), 450u);
    ASSERT_EQ(listener->heard().size(), 6u);  // at 128, 192 and so on to 448
    for (const auto& [length, scores] : listener->heard()) {
      for (const auto& [position, score] : scores) {
        const double want = ExpectedScore(kind, rows, position, length);
        // f32 sums of up to 3 * 448 terms above 0, each rounding at most 2^-24 of them.
        ASSERT_NEAR(score, want, 8.1e-5 * want) << "position " << position << " of " << length;
      }
    }
  }
}

TEST(MixedMass, ChunksThreadsAndForksDoNotChangeABit) {
  const std::vector<int32_t> tokens = ToyTokens(400, 40);
  for (const char* policy : kPolicies) {
    const KvSpec kv = SpecOf(policy);
    Session whole = SessionOf(Toy(), kv);
    ASSERT_TRUE(whole.Prefill(tokens).ok());
    const CacheLedger ledger = whole.ledger();
    EXPECT_GT(ledger.dropped_head_tokens + ledger.widths.back().head_tokens, 0) << policy;
    const std::vector<float> want = LogitsOf(whole);
    Session small = SessionOf(Toy(), kv, 17, 1);
    ASSERT_TRUE(small.Prefill(tokens).ok());
    EXPECT_EQ(LogitsOf(small), want) << policy;
    Session session = SessionOf(Toy(), kv, 100);
    const std::span<const int32_t> all(tokens);
    ASSERT_TRUE(session.Prefill(all.first(290)).ok());
    Session fork = std::move(session.Fork()).value();
    ASSERT_TRUE(session.Prefill(ToyTokens(130, 40, 8)).ok());
    for (const int32_t token : all.subspan(290)) ASSERT_TRUE(fork.Decode(token).ok());
    EXPECT_EQ(LogitsOf(fork), want) << policy;
  }
}

// A step that closes a page and is stopped behind its first layer leaves nothing of what its
// queries gave.
TEST(MixedMass, AbandonedStepsAreNotCounted) {
  const std::vector<int32_t> tokens = ToyTokens(450, 40);
  const std::span<const int32_t> all(tokens);
  for (const char* policy : kPolicies) {
    const KvSpec kv = SpecOf(policy);
    Session whole = SessionOf(Toy(), kv);
    ASSERT_TRUE(whole.Prefill(tokens).ok());
    Session session = SessionOf(Toy(), kv);
    std::atomic<bool> cancel{false};
    for (const size_t stop : {128, 150, 320, 384}) {
      ASSERT_TRUE(
          session.Prefill(all.subspan(session.tokens().size(), stop - session.tokens().size()))
              .ok());
      session.ObserveAttention([&](const LayerAttention&) { cancel = true; });
      EXPECT_EQ(session.Prefill(ToyTokens(20, 40, 3), {.progress = {}, .cancel = &cancel}).code(),
                StatusCode::kCancelled);
      session.ObserveAttention({});
      cancel = false;
      ASSERT_EQ(session.tokens().size(), stop);
    }
    ASSERT_TRUE(session.Prefill(all.subspan(session.tokens().size())).ok());
    EXPECT_EQ(LogitsOf(session), LogitsOf(whole)) << policy;
  }
}

TEST(MixedMass, WhatQueriesGaveCannotBeCutBack) {
  Session session = SessionOf(Toy(), SpecOf("h2o"));
  ASSERT_TRUE(session.Prefill(ToyTokens(200, 40)).ok());
  const Status status = session.Truncate(199);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("judges by attention"), std::string::npos) << status.message();
  EXPECT_TRUE(session.Reset().ok());
  EXPECT_TRUE(session.Prefill(ToyTokens(200, 40)).ok());
}

}  // namespace
}  // namespace kvant
