#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kvant/eval.h"
#include "model/toy_model_for_test.h"
#include "model/toy_reference_for_test.h"

namespace kvant {
namespace {

const ToyModel& Toy() {
  static const ToyModel toy;
  return toy;
}
const Model& LoadedToy() {
  static const Model model = Toy().Load("eval").value();
  return model;
}

EvalOptions Options(const std::string& test, std::vector<int64_t> contexts) {
  EvalOptions options;
  options.contexts_tokens = std::move(contexts);
  options.tests = {*ParseKvPreset(test)};
  options.threads = 2;
  return options;
}

// Of a cache that holds nothing as written but the open page.
KvSpec WithoutWindow(const std::string& preset) {
  KvSpec spec = *ParseKvPreset(preset);
  spec.sinks_tokens = 0;
  spec.window_tokens = 0;
  return spec;
}

std::vector<EvalContext> Scores(std::span<const int32_t> text, const EvalOptions& options) {
  Result<std::vector<EvalContext>> result = Evaluate(LoadedToy(), text, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

TEST(Evaluate, NoMoreOfATextIsReadThanIsSaid) {
  const std::vector<int32_t> text = ToyTokens(400, 40);
  EvalOptions options = Options("int8", {60, 100});
  EXPECT_EQ(TokensToEvaluate(options), std::nullopt);
  options.max_scored_tokens = 50;  // 29 of a chunk of 60, 49 of one of 100
  EXPECT_EQ(TokensToEvaluate(options), 200);
  const std::vector<EvalContext> whole = Scores(text, options);
  const std::vector<EvalContext> part = Scores(std::span(text).first(200), options);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(part[i].tokens, whole[i].tokens);
    EXPECT_EQ(part[i].mean_kl, whole[i].mean_kl);
  }
  EXPECT_NE(Scores(std::span(text).first(199), options)[1].tokens, whole[1].tokens);
}

TEST(Evaluate, TheSecondHalfOfEveryChunkIsScoredAsAForwardPassInDoubleScoresIt) {
  const std::vector<int32_t> text = ToyTokens(130, 40);
  EvalOptions options = Options("f32", {60});
  options.base = *ParseKvPreset("f32");
  const EvalContext result = Scores(text, options).at(0);
  double nll = 0;
  for (const size_t offset : {0u, 60u}) {
    const auto chunk = std::span(text).subspan(offset, 60);
    const auto logits = ToyReference(Toy()).Logits(chunk);
    for (size_t t = 30; t < 59; ++t) {
      double sum = 0;
      for (const double v : logits[t]) sum += std::exp(v);
      nll += std::log(sum) - logits[t][static_cast<size_t>(chunk[t + 1])];
    }
  }
  EXPECT_EQ(result.ctx_tokens, 60);
  EXPECT_EQ(result.tokens, 58);
  EXPECT_NEAR(result.mean_nll, nll / 58, 1e-5);
  EXPECT_NEAR(result.ppl_base, std::exp(nll / 58), 1e-3);
  EXPECT_EQ(result.mean_kl, 0);
  EXPECT_EQ(result.max_kl, 0);
  EXPECT_EQ(result.same_top1, 1);
  EXPECT_EQ(result.ppl_ratio, 1);
}

TEST(Evaluate, PrefillAndDecodeAgreeToTheLastBit) {
  EvalOptions options = Options("int4", {300});
  options.modes = {EvalMode::kPrefill, EvalMode::kDecode};
  options.chunk_tokens = 77;
  const std::vector<EvalContext> results = Scores(ToyTokens(300, 40), options);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(EvalModeName(results[0].mode), "prefill");
  EXPECT_EQ(EvalModeName(results[1].mode), "decode");
  EXPECT_GT(results[0].mean_kl, 0);
  EXPECT_EQ(results[0].mean_kl, results[1].mean_kl);
  EXPECT_EQ(results[0].max_kl, results[1].max_kl);
  EXPECT_EQ(results[0].max_kl_token, results[1].max_kl_token);
  EXPECT_EQ(results[0].mean_nll, results[1].mean_nll);
  EXPECT_EQ(results[0].tokens, 149);
}

TEST(Evaluate, FewerBitsAreFurtherFromTheBase) {
  const std::vector<int32_t> text = ToyTokens(512, 40);
  double last = 0;
  for (const char* kv : {"int8", "int4", "int3", "int2"}) {
    const EvalContext result = Scores(text, Options(kv, {512})).at(0);
    EXPECT_GT(result.mean_kl, last) << kv;
    EXPECT_LE(result.median_kl, result.p99_kl);
    EXPECT_LE(result.p99_kl, result.max_kl);
    EXPECT_LT(result.effective_bits, result.effective_bits_base);
    EXPECT_EQ(result.effective_bits_base, 16);
    last = result.mean_kl;
  }
}

TEST(Evaluate, NoMoreThanTheWantedTokensAreScoredAndNoMoreChunksRun) {
  EvalOptions options = Options("int4", {40, 100});
  options.max_scored_tokens = 30;  // 19 a chunk of 40, 49 a chunk of 100
  int64_t last_done = 0, last_total = 0;
  const Result<std::vector<EvalContext>> results = Evaluate(
      LoadedToy(), ToyTokens(400, 40), options,
      {.progress = [&](int64_t done, int64_t total) { last_done = done, last_total = total; },
       .cancel = nullptr});
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->at(0).tokens, 30);
  EXPECT_EQ(results->at(1).tokens, 30);
  EXPECT_EQ(last_total, 180);
  EXPECT_LE(last_done, 180);
  int64_t in_buckets = 0;
  for (const EvalBucket& bucket : results->at(1).by_position) in_buckets += bucket.tokens;
  EXPECT_EQ(in_buckets, 30);
}

TEST(Evaluate, WhatCannotBeEvaluatedIsRefusedByName) {
  const std::vector<int32_t> text = ToyTokens(100, 40);
  const auto status = [&](const EvalOptions& options, std::span<const int32_t> tokens) {
    return Evaluate(LoadedToy(), tokens, options).status();
  };
  const Status longer = status(Options("int4", {101}), text);
  EXPECT_EQ(longer.code(), StatusCode::kOutOfRange);
  EXPECT_NE(longer.message().find("101"), std::string::npos);
  EXPECT_EQ(status(Options("int4", {3}), text).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Options("int4", {}), text).code(), StatusCode::kInvalidArgument);
  EvalOptions negative = Options("int4", {50});
  negative.max_scored_tokens = -1;
  EXPECT_EQ(status(negative, text).code(), StatusCode::kInvalidArgument);
  std::vector<int32_t> bad = text;
  bad[30] = 40;
  EXPECT_EQ(status(Options("int4", {50}), bad).code(), StatusCode::kInvalidArgument);
}

void ExpectEqualFigures(const EvalContext& a, const EvalContext& b) {
  EXPECT_EQ(a.mean_kl, b.mean_kl);
  EXPECT_EQ(a.p99_kl, b.p99_kl);
  EXPECT_EQ(a.max_kl_token, b.max_kl_token);
  EXPECT_EQ(a.mean_nll, b.mean_nll);
  EXPECT_EQ(a.effective_bits, b.effective_bits);
  EXPECT_EQ(a.tokens, b.tokens);
}

TEST(Evaluate, CachesSideBySideMeasureWhatEachMeasuresAlone) {
  const std::vector<int32_t> text = ToyTokens(300, 40);
  EvalOptions options = Options("q8_0", {100, 150});
  options.tests.push_back(*ParseKvPreset("q4_0"));
  const std::vector<EvalContext> together = Scores(text, options);
  ASSERT_EQ(together.size(), 4u);
  for (const int test : {0, 1}) {
    EvalOptions alone = options;
    alone.tests = {options.tests[static_cast<size_t>(test)]};
    const std::vector<EvalContext> single = Scores(text, alone);
    for (const size_t context : {0u, 1u}) {
      const EvalContext& both = together[context * 2 + static_cast<size_t>(test)];
      EXPECT_EQ(both.test, test);
      EXPECT_EQ(both.ctx_tokens, options.contexts_tokens[context]);
      ExpectEqualFigures(both, single[context]);
    }
  }
}

TEST(Evaluate, TheNoiseFloorIsWhatAnF32CacheMeasures) {
  const std::vector<int32_t> text = ToyTokens(300, 40);
  const EvalContext f32 = Scores(text, Options("f32", {150})).at(0);
  EXPECT_FALSE(f32.floor.has_value()) << "not asked for";
  EvalOptions options = Options("q4_0", {150});
  options.tests = {WithoutWindow("q4_0")};
  options.noise_floor = true;
  const EvalContext result = Scores(text, options).at(0);
  ASSERT_TRUE(result.floor.has_value());
  EXPECT_GT(result.floor->mean_kl, 0);
  EXPECT_LT(result.floor->mean_kl, result.mean_kl / 10);
  EXPECT_EQ(result.floor->mean_kl, f32.mean_kl);
  EXPECT_EQ(result.floor->p99_kl, f32.p99_kl);
  EXPECT_EQ(result.floor->ppl_ratio, f32.ppl_ratio);
  ASSERT_EQ(result.by_position.size(), f32.by_position.size());
  EXPECT_EQ(result.by_position[3].floor_kl, f32.by_position[3].mean_kl);
  options.tests.push_back(*ParseKvPreset("f32"));  // now the floor needs no session of its own
  const std::vector<EvalContext> both = Scores(text, options);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].floor->mean_kl, both[1].mean_kl);
}

TEST(Evaluate, AnF32BaseHasNoFloor) {
  EvalOptions options = Options("int4", {60});
  options.base = *ParseKvPreset("f32");
  options.noise_floor = true;
  EXPECT_FALSE(Scores(ToyTokens(60, 40), options).at(0).floor.has_value());
}

TEST(Evaluate, ABaseFromAFileMeasuresWhatTheSessionThatWroteItMeasures) {
  const std::vector<int32_t> text = ToyTokens(430, 40);
  const std::string path = testing::TempDir() + "kvant_eval_base";
  EvalOptions options = Options("q4_0", {200});
  options.tests = {WithoutWindow("q4_0")};
  options.write_base_path = path;
  options.modes = {EvalMode::kPrefill, EvalMode::kDecode};
  options.max_scored_tokens = 120;  // of 99 a chunk: rounded up to two whole ones
  const EvalContext session = Scores(text, options).at(0);
  EXPECT_EQ(session.tokens, 198);
  const Result<LogitBaseSummary> summary = ReadLogitBase(path);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->chunks, 2);
  EXPECT_EQ(summary->tokens, std::vector<int32_t>(text.begin(), text.begin() + 400));

  options.write_base_path.clear();
  options.read_base_path = path;
  options.modes = {EvalMode::kPrefill};
  options.noise_floor = true;
  const EvalContext file = Scores(summary->tokens, options).at(0);
  EXPECT_EQ(file.tokens, 198);
  EXPECT_NEAR(file.mean_kl, session.mean_kl, 1e-3 * session.mean_kl);
  EXPECT_NEAR(file.mean_nll_base, session.mean_nll_base, 1e-4);
  EXPECT_EQ(file.mean_nll, session.mean_nll);
  EXPECT_EQ(file.same_top1, session.same_top1);
  EXPECT_FALSE(file.effective_bits_base.has_value());
  ASSERT_TRUE(file.floor.has_value());
  EXPECT_LT(file.floor->mean_kl, 1e-7) << "the same engine and cache wrote it";
}

TEST(Evaluate, ABaseFileOfAnotherTextIsRefused) {
  const std::string path = testing::TempDir() + "kvant_eval_other";
  EvalOptions options = Options("int4", {60});
  options.write_base_path = path;
  std::vector<int32_t> text = ToyTokens(60, 40);
  Scores(text, options);
  options.write_base_path.clear();
  options.read_base_path = path;
  text[11] = (text[11] + 1) % 40;
  const Status other = Evaluate(LoadedToy(), text, options).status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("token 11"), std::string::npos) << other.message();
  options.contexts_tokens = {30, 60};
  EXPECT_EQ(Evaluate(LoadedToy(), text, options).status().code(), StatusCode::kInvalidArgument);
  options.contexts_tokens = {60};
  options.write_base_path = path;
  EXPECT_EQ(Evaluate(LoadedToy(), text, options).status().code(), StatusCode::kInvalidArgument);
}

// Twice the weights of one K head give twice its keys: exactly, and no others in that layer.
TEST(KeyRanges, TheChannelsOfAHeadAreWhereTheyBelong) {
  const std::vector<int32_t> text = ToyTokens(150, 40);
  ToyModel changed;
  ToyModel::Tensor& k = changed.tensors.at("blk.1.attn_k.weight");
  for (size_t i = k.values.size() / 2; i < k.values.size(); ++i) k.values[i] *= 2;
  const Model other = changed.Load("keys").value();
  const KeyRanges plain = MeasureKeyRanges(LoadedToy(), text, {.threads = 1}).value();
  const KeyRanges twice = MeasureKeyRanges(other, text, {.threads = 1}).value();
  EXPECT_EQ(plain.geometry, LoadedToy().geometry());
  EXPECT_EQ(plain.tokens, 146);
  ASSERT_EQ(plain.mean.size(), 2u * 2 * 16);
  for (size_t i = 0; i < plain.mean.size(); ++i) {
    const float factor = i / 16 == 3 ? 2.0f : 1.0f;
    EXPECT_EQ(twice.max_abs[i], factor * plain.max_abs[i]) << i;
    EXPECT_EQ(twice.mean[i], factor * plain.mean[i]) << i;
    EXPECT_LT(std::abs(plain.mean[i]), plain.max_abs[i]) << i;
  }
}

TEST(KeyRanges, OnlyTheWantedTokensCount) {
  const std::vector<int32_t> text = ToyTokens(150, 40);
  KeyRangeOptions options{.max_tokens = 100, .skip_tokens = 99, .threads = 1};
  const KeyRanges one = MeasureKeyRanges(LoadedToy(), text, options).value();
  EXPECT_EQ(one.tokens, 1);
  for (size_t i = 0; i < one.mean.size(); ++i) EXPECT_EQ(std::abs(one.mean[i]), one.max_abs[i]);
  options.skip_tokens = 100;
  EXPECT_EQ(MeasureKeyRanges(LoadedToy(), text, options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Evaluate, ACancelIsHeededInTheMiddleOfADecode) {
  EvalOptions options = Options("int4", {200});
  options.modes = {EvalMode::kDecode};
  std::atomic<bool> cancel = false;
  int64_t seen = 0;
  const Status status =
      Evaluate(LoadedToy(), ToyTokens(200, 40), options,
               {.progress = [&](int64_t done, int64_t) { cancel = (seen = done) == 50; },
                .cancel = &cancel})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(seen, 50);
}

TEST(CompareGreedy, EqualCachesNeverDiverge) {
  GreedyOptions options;
  options.tests = {options.base};
  options.tokens = 20;
  options.threads = 1;
  const std::vector<std::vector<int32_t>> prompts = {ToyTokens(10, 40, 1), ToyTokens(90, 40, 2)};
  const auto results = CompareGreedy(LoadedToy(), prompts, options);
  ASSERT_TRUE(results.ok()) << results.status().message();
  const GreedyAgreement* const result = &results->at(0);
  EXPECT_EQ(result->first_divergence, (std::vector<int64_t>{20, 20}));
  EXPECT_EQ(result->share_equal, 1);
  EXPECT_EQ(result->mean_equal_tokens, 20);
}

// Step by step, as an answer is written.
std::vector<int32_t> GreedyAnswer(const KvSpec& spec, const std::vector<int32_t>& prompt,
                                  int tokens) {
  std::vector<int32_t> answer;
  Session session = Session::Create(LoadedToy(), {.kv = spec, .threads = 1}).value();
  EXPECT_TRUE(session.Prefill(prompt).ok());
  for (int i = 0; i < tokens; ++i) {
    const std::span<const float> logits = *session.Logits();
    answer.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    EXPECT_TRUE(session.Decode(answer.back()).ok());
  }
  return answer;
}

TEST(CompareGreedy, TheFirstDivergenceIsWhereTheAnswersPart) {
  GreedyOptions options;
  options.tests = {*ParseKvPreset("int4"), *ParseKvPreset("int2")};
  options.tokens = 40;
  options.threads = 1;
  const std::vector<std::vector<int32_t>> prompts = {ToyTokens(300, 40, 1), ToyTokens(300, 40, 2),
                                                     ToyTokens(300, 40, 3), ToyTokens(300, 40, 4)};
  const auto results = CompareGreedy(LoadedToy(), prompts, options);
  ASSERT_TRUE(results.ok()) << results.status().message();
  ASSERT_EQ(results->size(), 2u);
  for (const size_t test : {0u, 1u}) {
    const GreedyAgreement& result = results->at(test);
    int64_t equal = 0, sum = 0;
    for (size_t p = 0; p < prompts.size(); ++p) {
      const std::vector<int32_t> base = GreedyAnswer(options.base, prompts[p], 40);
      const std::vector<int32_t> other = GreedyAnswer(options.tests[test], prompts[p], 40);
      const int64_t first =
          std::mismatch(base.begin(), base.end(), other.begin()).first - base.begin();
      EXPECT_EQ(result.first_divergence[p], first) << "prompt " << p;
      equal += first == 40;
      sum += first;
    }
    EXPECT_LT(equal, 4) << "the test must see a divergence";
    EXPECT_EQ(result.share_equal, static_cast<double>(equal) / 4);
    EXPECT_EQ(result.mean_equal_tokens, static_cast<double>(sum) / 4);
  }
}

TEST(CompareGreedy, NothingToCompareIsRefused) {
  const std::vector<std::vector<int32_t>> none, empty = {{}};
  const std::vector<std::vector<int32_t>> one = {{1}};
  const GreedyOptions some = {.base = {}, .tests = {KvSpec{}}};
  for (const auto& [prompts, options] :
       {std::pair{none, some}, std::pair{empty, some}, std::pair{one, GreedyOptions{}}}) {
    EXPECT_EQ(CompareGreedy(LoadedToy(), prompts, options).status().code(),
              StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvant
