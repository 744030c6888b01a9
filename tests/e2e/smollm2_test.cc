// The whole way on a real model: SmolLM2-135M-Instruct, Q4_1, which scripts/models fetches.
//
// tests/golden/smollm2_logprobs.txt and smollm2_greedy.txt hold what llama.cpp (8-bit activations,
// f16 cache) and transformers (f32 throughout) say of the same file; scripts/oracles makes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "kvant/kvant.h"
#include "model/session_impl.h"
#include "model_of_file.h"
#include "predictions.h"

namespace kvant {
namespace {

constexpr char kModelPath[] = KVANT_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf";
constexpr char kLogProbs[] = KVANT_SOURCE_DIR "/tests/golden/smollm2_logprobs.txt";
constexpr char kGreedy[] = KVANT_SOURCE_DIR "/tests/golden/smollm2_greedy.txt";

const Model& LoadSmolLm2(bool float_activations) { return LoadOnce<kModelPath>(float_activations); }

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModelPath)) GTEST_SKIP() << kModelPath << " is not there";
  }
};

// The scalar reference needs a fifth of a second a token: enough for a few, not for all tests.
bool OnlyScalar() { return AvailableIsas().back() == Isa::kScalar; }

class FastSmolLm2 : public SmolLm2 {
 protected:
  void SetUp() override {
    SmolLm2::SetUp();
    if (OnlyScalar()) GTEST_SKIP() << "this build has scalar kernels only";
  }
};

Session MakeSession(const Model& model, const KvSpec& kv, int chunk_tokens = 512) {
  SessionOptions options;
  options.kv = kv;
  options.context_tokens = 1024;
  options.threads = 2;
  options.chunk_tokens = chunk_tokens;
  return Session::Create(model, options).value();
}

struct GoldenRow {
  int32_t token, next;
  double llama_cpp, transformers;
  int32_t top1;   // of transformers
  double margin;  // of its log-probability over the second's
};

const std::vector<GoldenRow>& GoldenRows() {
  static const std::vector<GoldenRow> rows = [] {
    std::vector<GoldenRow> read;
    std::ifstream file(kLogProbs);
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream in(line);
      GoldenRow row;
      int64_t position;
      in >> position >> row.token >> row.next >> row.llama_cpp >> row.transformers >> row.top1 >>
          row.margin;
      EXPECT_TRUE(in) << line;
      read.push_back(row);
    }
    return read;
  }();
  return rows;
}

std::vector<int32_t> GoldenTokens(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(GoldenRows().at(i).token);
  return tokens;
}

struct Agreement {
  Distance transformers, llama_cpp;
  int top1_missed = 0;  // of those positions where transformers is sure
};

// A log-probability for every position of the passage, read in one chunk.
Agreement CompareWithGolden(const Model& model, const KvSpec& kv, double sure_margin) {
  const std::span<const GoldenRow> rows =
      std::span(GoldenRows()).first(OnlyScalar() ? 24 : GoldenRows().size());
  std::vector<int32_t> next;
  for (const GoldenRow& row : rows) next.push_back(row.next);
  Session session = MakeSession(model, kv);
  Agreement result;
  VisitPredictions(session, GoldenTokens(rows.size()), next,
                   [&](size_t i, double log_probability, std::span<const float> logits) {
                     result.transformers.Add(log_probability, rows[i].transformers, rows.size());
                     result.llama_cpp.Add(log_probability, rows[i].llama_cpp, rows.size());
                     if (rows[i].margin > sure_margin && Argmax(logits) != rows[i].top1) {
                       ++result.top1_missed;
                     }
                   });
  return result;
}

TEST_F(SmolLm2, TellsItsShape) {
  const Model& model = LoadSmolLm2(false);
  EXPECT_EQ(model.geometry(), (KvGeometry{30, 3, 64, 9}));
  EXPECT_EQ(model.context_tokens(), 8192);
  EXPECT_EQ(model.vocab_size(), 49152);
  EXPECT_EQ(model.parameters(), 134'515'008);
  EXPECT_EQ(model.weight_bytes(), model.weight_bytes_read_per_token()) << "tied embedding";
  EXPECT_LT(model.weight_bytes(), model.file_bytes()) << "no copy wider than the file";
}

// f32 activations and an f32 cache leave only the order of additions: measured 4e-6 in the mean
// (the oracle keeps six digits), 5e-5 at worst.
TEST_F(SmolLm2, InF32LogProbabilitiesAreThoseOfTransformers) {
  const Agreement a = CompareWithGolden(LoadSmolLm2(true), *ParseKvPreset("f32"), 0.001);
  EXPECT_LT(a.transformers.mean, 1e-5);
  EXPECT_LT(a.transformers.largest, 2e-4);
  EXPECT_EQ(a.top1_missed, 0);
}

// Measured: 8e-4 in the mean, 0.015 at worst.
TEST_F(SmolLm2, AnF16CacheMovesThemByAThousandthInTheMean) {
  const Agreement a = CompareWithGolden(LoadSmolLm2(true), *ParseKvPreset("f16"), 0.05);
  EXPECT_LT(a.transformers.mean, 1.5e-3);
  EXPECT_LT(a.transformers.largest, 0.03);
  EXPECT_EQ(a.top1_missed, 0);
}

// With 8-bit activations kvant is as far from transformers as llama.cpp is (mean 0.055, largest
// 0.40), for the same reason: every matmul rounds its inputs to 8 bits. Measured: 0.058, 0.64.
TEST_F(SmolLm2, EightBitActivationsAreAsNearAsLlamaCppIs) {
  const Agreement a = CompareWithGolden(LoadSmolLm2(false), *ParseKvPreset("f16"), 1.0);
  EXPECT_LT(a.transformers.mean, 0.07);
  EXPECT_LT(a.transformers.largest, 0.8);
  EXPECT_LT(a.llama_cpp.mean, 0.07);
  EXPECT_LT(a.llama_cpp.largest, 0.8);
  EXPECT_EQ(a.top1_missed, 0);
}

struct GoldenPrompt {
  std::vector<int32_t> ids, transformers;
  std::vector<double> margin;
};

std::vector<GoldenPrompt> GoldenPrompts() {
  std::vector<GoldenPrompt> prompts;
  std::ifstream file(kGreedy);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "prompt") prompts.emplace_back();
    if (kind == "ids")
      for (int32_t id; in >> id;) prompts.back().ids.push_back(id);
    if (kind == "transformers") {
      for (int32_t id; in >> id;) prompts.back().transformers.push_back(id);
    }
    if (kind == "margin")
      for (double m; in >> m;) prompts.back().margin.push_back(m);
  }
  return prompts;
}

// Follows transformers' greedy text until kvant would go another way; that may happen only where
// transformers itself was almost undecided. Returns the tokens that agreed.
size_t FollowGreedy(const Model& model, const KvSpec& kv, double undecided) {
  size_t agreed = 0;
  for (const GoldenPrompt& prompt : GoldenPrompts()) {
    Session session = MakeSession(model, kv);
    const GenerateResult result =
        Generate(session, prompt.ids,
                 {.max_tokens = 32, .sampler = {.temperature = 0}, .stop = {}, .ignore_end = true})
            .value();
    size_t i = 0;
    while (i < 32 && result.tokens.at(i) == prompt.transformers.at(i)) ++i;
    if (i < 32) {
      EXPECT_LT(prompt.margin.at(i), undecided) << "token " << i;
    }
    agreed += i;
  }
  return agreed;
}

TEST_F(FastSmolLm2, InF32GreedyTextIsThatOfTransformers) {
  EXPECT_GE(FollowGreedy(LoadSmolLm2(true), *ParseKvPreset("f32"), 0.001), 5 * 32 - 20);
}

TEST_F(FastSmolLm2, GreedyTextLeavesTransformersOnlyWhereItIsAlmostUndecided) {
  EXPECT_GT(FollowGreedy(LoadSmolLm2(false), *ParseKvPreset("f16"), 0.5), 60);
}

KvSpec Pair(const std::string& k, const std::string& v) {
  KvSpec spec;
  spec.k = *ParseFormat(k, Side::kK);
  spec.v = *ParseFormat(v, Side::kV);
  return spec;
}

// 192 tokens: from position 128 on, the first page is read as stored. All pairs on all levels, the
// scalar one included, run on a small model in llama_test.cc.
class SmolLm2Pairs : public FastSmolLm2, public testing::WithParamInterface<std::string> {
 protected:
  void TearDown() override { ASSERT_TRUE(SetActiveIsa(AvailableIsas().back()).ok()); }
};

TEST_P(SmolLm2Pairs, OneTokenAtATimeGivesThePromptsBitsOnEveryIsa) {
  constexpr size_t kTokens = 192, kSingle = 10, kEmbedding = 576;
  const std::vector<int32_t> tokens = GoldenTokens(kTokens);
  const std::span<const int32_t> last = std::span(tokens).last(kSingle);
  for (const char* v : {"f16", "int8", "int4", "int2"}) {
    std::vector<float> expected;
    for (const Isa isa : AvailableIsas()) {
      if (isa == Isa::kScalar) continue;
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      Session single = MakeSession(LoadSmolLm2(false), Pair(GetParam(), v));
      ASSERT_TRUE(single.Prefill(std::span(tokens).first(kTokens - kSingle)).ok());
      Session prompt = single.Fork().value();
      const Llama& llama = *single.impl().engine->llama;
      ASSERT_TRUE(prompt.impl().Step(last, nullptr).ok());
      if (expected.empty()) expected.assign(llama.hidden(0), llama.hidden(kSingle));
      ASSERT_EQ(std::memcmp(llama.hidden(0), expected.data(), expected.size() * sizeof(float)), 0)
          << "values " << v << " on " << IsaName(isa);
      for (size_t i = 0; i < kSingle; ++i) {
        ASSERT_TRUE(single.Decode(last[i]).ok());
        ASSERT_EQ(std::memcmp(llama.hidden(0), expected.data() + i * kEmbedding,
                              kEmbedding * sizeof(float)),
                  0)
            << "values " << v << " on " << IsaName(isa) << ", token " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, SmolLm2Pairs, testing::Values("f16", "int8", "int4", "int2"),
                         [](const auto& param) { return param.param; });

TEST_F(FastSmolLm2, PrefillAndDecodeLossesAgree) {
  EvalOptions options;
  options.contexts_tokens = {192};
  options.modes = {EvalMode::kPrefill, EvalMode::kDecode};
  options.tests = {*ParseKvPreset("int4")};
  options.threads = 2;
  const auto results = Evaluate(LoadSmolLm2(false), GoldenTokens(192), options).value();
  EXPECT_GT(results[0].mean_kl, 0);
  EXPECT_EQ(results[0].mean_nll, results[1].mean_nll);
  EXPECT_EQ(results[0].mean_nll_base, results[1].mean_nll_base);
  EXPECT_EQ(results[0].max_kl, results[1].max_kl);
}

TEST_F(FastSmolLm2, StoredBytesDoNotDependOnTheChunks) {
  const std::vector<int32_t> tokens = GoldenTokens(200);
  const KvSpec kv = *ParseKvPreset("int4");
  Session whole = MakeSession(LoadSmolLm2(false), kv, 512);
  ASSERT_TRUE(whole.Prefill(tokens).ok());
  for (const int chunk : {1, 32}) {
    Session session = MakeSession(LoadSmolLm2(false), kv, chunk);
    ASSERT_TRUE(session.Prefill(tokens).ok());
    for (int layer = 0; layer < 30; ++layer) {
      for (int head = 0; head < 3; ++head) {
        for (const int64_t page : {0, 1}) {
          const auto page_of = [&](Session& s) {
            return s.impl().engine->cache->StoredPage(s.impl().sequence, layer, head, page);
          };
          ASSERT_NE(page_of(whole), nullptr);
          ASSERT_NE(page_of(session), nullptr);
          const int bytes = whole.impl().engine->cache->stored_layout(layer).page_bytes;
          ASSERT_EQ(std::memcmp(page_of(whole), page_of(session), static_cast<size_t>(bytes)), 0)
              << "chunks of " << chunk << ", layer " << layer << ", head " << head;
        }
      }
    }
  }
}

// The orders of magnitude that a simulation in f32 gives for these formats at 2,048 tokens; shorter
// texts have more of their tokens in the window. Bounded from both sides: a cache that measures too
// good was not quantised.
TEST_F(FastSmolLm2, FewerBitsCostWhatTheyShould) {
  struct Bound {
    const char* kv;
    double low, high;
  };
  for (const Bound& bound :
       {Bound{"int8", 1e-6, 2e-4}, Bound{"int4", 3e-4, 4e-3}, Bound{"int3", 2e-3, 3e-2},
        Bound{"int2", 5e-3, 4e-2}, Bound{"trellis2", 3e-3, 3e-2}, Bound{"plain2", 2e-2, 0.2}}) {
    EvalOptions options;
    options.contexts_tokens = {512};
    options.tests = {*ParseKvPreset(bound.kv)};
    options.threads = 2;
    const EvalContext result = Evaluate(LoadSmolLm2(true), GoldenTokens(512), options)->at(0);
    RecordProperty(std::string(bound.kv) + "_mean_kl", std::to_string(result.mean_kl));
    EXPECT_GT(result.mean_kl, bound.low) << bound.kv;
    EXPECT_LT(result.mean_kl, bound.high) << bound.kv;
  }
}

TEST_F(FastSmolLm2, TheLedgerIsTheFormula) {
  Session half = MakeSession(LoadSmolLm2(false), *ParseKvPreset("f16"));
  ASSERT_TRUE(half.Prefill(GoldenTokens(512)).ok());
  EXPECT_EQ(half.ledger().kv_bytes, 512 * 23'040);
  EXPECT_EQ(half.kv_bytes_read_per_token(), 512 * 23'040);
  EXPECT_EQ(half.ledger().effective_bits, 16);

  Session four = MakeSession(LoadSmolLm2(false), *ParseKvPreset("int4"));
  ASSERT_TRUE(four.Prefill(GoldenTokens(512)).ok());
  const CacheLedger ledger = four.ledger();
  const int64_t pages = ledger.code_bytes / (90 * 2 * 64 * 64 / 2);  // of 90 heads, both sides
  EXPECT_EQ(ledger.code_bytes, pages * 90 * 2 * 64 * 64 / 2);
  // Norms and 4 bytes on both sides, for K the mean of 64 channels and its step.
  EXPECT_EQ(ledger.metadata_bytes, pages * 90 * (2 * (64 + 4) + 64 + 2));
  EXPECT_GE(pages, 6);
  EXPECT_LE(pages, 7);
}

// Column sums of softmax(q k^T / 8) in f64, from the queries and keys of the step itself. An f32
// cache leaves f32 roundings of dots of 64: scores of the first token reach 60, and 60 * 2^-24 *
// sqrt(64) is 3e-5 of a probability.
TEST_F(SmolLm2, AttentionMassIsTheColumnSumsOfTheQueriesAndKeys) {
  constexpr size_t kTokens = 90;  // two pages, three chunks
  constexpr int kChunk = 40, kQueryHeads = 9;
  const Model& model = LoadSmolLm2(true);
  Session session = MakeSession(model, *ParseKvPreset("f32"), kChunk);
  AttentionMass mass = AttentionMass::Create(model.geometry(), kTokens).value();
  session.ObserveAttention([&](const LayerAttention& attention) { mass.Add(attention); });
  std::vector<std::vector<float>> keys(30);  // [layers][tokens][kv_heads][head_dim]
  std::vector<std::vector<double>> want(30 * kQueryHeads, std::vector<double>(kTokens));
  session.impl().engine->llama->Observe([&](const LayerVectors& vectors) {
    std::vector<float>& k = keys[static_cast<size_t>(vectors.layer)];
    const size_t stride = static_cast<size_t>(vectors.kv_heads * vectors.head_dim);
    const size_t before = k.size() / stride;
    k.insert(k.end(), vectors.k, vectors.k + static_cast<size_t>(vectors.rows) * stride);
    for (int64_t row = 0; row < vectors.rows; ++row) {
      for (int head = 0; head < kQueryHeads; ++head) {
        std::vector<double> p(before + static_cast<size_t>(row) + 1);
        for (size_t t = 0; t < p.size(); ++t) {
          const float* const key = &k[t * stride + static_cast<size_t>(head / 3 * 64)];
          for (int c = 0; c < 64; ++c) p[t] += double{vectors.Query(row, head)[c]} * key[c];
        }
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp((x - top) / 8);
        auto& column = want[static_cast<size_t>(vectors.layer * kQueryHeads + head)];
        for (size_t t = 0; t < p.size(); ++t) column[t] += p[t] / sum;
      }
    }
  });
  ASSERT_TRUE(session.Prefill(GoldenTokens(kTokens)).ok());
  for (int head = 0; head < 30 * kQueryHeads; ++head) {
    const auto got = mass.OfQueryHead(head / kQueryHeads, head % kQueryHeads);
    ASSERT_EQ(got.size(), kTokens);
    for (size_t t = 0; t < kTokens; ++t) {
      const double expected = want[static_cast<size_t>(head)][t];
      ASSERT_NEAR(got[t], expected, 2e-4 * expected + 1e-6) << "head " << head << " token " << t;
    }
  }
}

// In f32: of so small a model, 8-bit activations already turn some answers round.
TEST_F(FastSmolLm2, AConversationIsAnsweredFromAFourBitCache) {
  Session session = MakeSession(LoadSmolLm2(true), *ParseKvPreset("int4"));
  const std::vector<ChatTurn> turns = {{"user", "What is the capital of France?"}};
  const std::vector<int32_t> prompt = LoadSmolLm2(true).EncodeChat(turns).value();
  const GenerateResult result =
      Generate(session, prompt, {.max_tokens = 40, .sampler = {.temperature = 0}, .stop = {}})
          .value();
  EXPECT_EQ(result.text, "The capital of France is Paris.");
  EXPECT_EQ(result.stop_reason, StopReason::kEndToken);
}

}  // namespace
}  // namespace kvant
