#include "kvant/generate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

const Model& Toy() {
  static const Model model = ToyModel().Load("generate").value();
  return model;
}

Session MakeSession(int64_t context_tokens = 0) {
  SessionOptions options;
  options.context_tokens = context_tokens;
  options.threads = 1;
  return Session::Create(Toy(), options).value();
}

GenerateOptions Greedy(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampler.temperature = 0;
  return options;
}

TEST(Generate, GivesTheLikeliestTokensAndTheirTextPieceByPiece) {
  const std::vector<int32_t> prompt = ToyTokens(20, 40);
  Session session = MakeSession(), by_hand = MakeSession();
  std::string streamed;
  const Result<GenerateResult> result =
      Generate(session, prompt, Greedy(12), [&](std::string_view piece) { streamed += piece; });
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_TRUE(by_hand.Prefill(prompt).ok());
  std::vector<int32_t> expected;
  std::string text;
  for (int i = 0; i < 12; ++i) {
    const std::span<const float> logits = *by_hand.Logits();
    expected.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    text += "t" + std::to_string(expected.back());
    ASSERT_TRUE(by_hand.Decode(expected.back()).ok());
  }
  EXPECT_EQ(result->tokens, expected);
  EXPECT_EQ(result->text, text);
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(result->stop_reason, StopReason::kLength);
  EXPECT_EQ(result->prompt_tokens, 20);
  EXPECT_EQ(result->decoded_tokens, 11);
  EXPECT_EQ(session.length(), 31) << "the last token is not appended";
}

TEST(Generate, TheLedgerCountsWhatTheStepsRead) {
  Session session = MakeSession();
  const Result<GenerateResult> result = Generate(session, ToyTokens(20, 40), Greedy(4));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ledger.tokens, 23);
  EXPECT_EQ(result->kv_bytes_read_per_token, 23 * 256);  // 2 sides, layers, heads; 16 f16
  EXPECT_EQ(result->weight_bytes_read_per_token, Toy().weight_bytes_read_per_token());
  EXPECT_EQ(result->decode_bytes_read,
            3 * Toy().weight_bytes_read_per_token() + (21 + 22 + 23) * 256);
  EXPECT_GT(result->decode_tokens_per_s(), 0);
  EXPECT_GT(result->prefill_tokens_per_s(), 0);
  EXPECT_GT(result->decode_gb_per_s(), 0);
  EXPECT_EQ(GenerateResult().decode_tokens_per_s(), 0);
}

TEST(Generate, AStopTextEndsTheAnswerAndIsNotPartOfIt) {
  Session plain = MakeSession(), stopped = MakeSession();
  const std::vector<int32_t> prompt = ToyTokens(20, 40);
  const std::string text = Generate(plain, prompt, Greedy(20))->text;
  GenerateOptions options = Greedy(20);
  options.stop = {text.substr(9, 4)};
  const Result<GenerateResult> result = Generate(stopped, prompt, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->stop_reason, StopReason::kStopText);
  EXPECT_EQ(result->text, text.substr(0, text.find(options.stop[0])));
  EXPECT_LT(result->tokens.size(), 20u);
}

TEST(Generate, TheContextsEndIsAReasonToStop) {
  Session session = MakeSession(24);
  const Result<GenerateResult> result = Generate(session, ToyTokens(20, 40), Greedy(100));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->stop_reason, StopReason::kContext);
  EXPECT_EQ(result->tokens.size(), 5u);
  EXPECT_EQ(session.length(), 24);
}

TEST(Generate, ACancelStopsWithWhatThereIs) {
  Session session = MakeSession();
  std::atomic<bool> cancel = false;
  int pieces = 0;
  const Result<GenerateResult> result = Generate(session, ToyTokens(20, 40), Greedy(100),
                                                 [&](std::string_view) { cancel = ++pieces == 3; },
                                                 {.progress = {}, .cancel = &cancel});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->stop_reason, StopReason::kCancelled);
  EXPECT_EQ(result->tokens.size(), 3u);
  Session early = MakeSession();
  EXPECT_EQ(Generate(early, ToyTokens(20, 40), Greedy(3), {}, {.progress = {}, .cancel = &cancel})
                .status()
                .code(),
            StatusCode::kCancelled);
}

TEST(Generate, TheEndTokenEndsTheAnswerUnlessItIsIgnored) {
  Session first = MakeSession();
  const std::vector<int32_t> prompt = ToyTokens(20, 40);
  const std::vector<int32_t> tokens = Generate(first, prompt, Greedy(6))->tokens;
  ToyModel toy;
  toy.numbers["tokenizer.ggml.eos_token_id"] = tokens[4];
  const size_t length =
      static_cast<size_t>(std::find(tokens.begin(), tokens.end(), tokens[4]) - tokens.begin());
  const Model model = toy.Load("generate_eos").value();
  Session session = Session::Create(model, {}).value();
  const GenerateResult result = Generate(session, prompt, Greedy(6)).value();
  EXPECT_EQ(result.stop_reason, StopReason::kEndToken);
  EXPECT_EQ(result.tokens.size(), length);
  GenerateOptions options = Greedy(6);
  options.ignore_end = true;
  ASSERT_TRUE(session.Reset().ok());
  EXPECT_EQ(Generate(session, prompt, options)->tokens, tokens);
}

TEST(Generate, ImpossibleOptionsAreRefusedBeforeThePromptIsRead) {
  Session session = MakeSession();
  GenerateOptions options = Greedy(-1);
  EXPECT_EQ(Generate(session, ToyTokens(5, 40), options).status().code(),
            StatusCode::kInvalidArgument);
  options = Greedy(5);
  options.sampler.top_p = 2;
  EXPECT_EQ(Generate(session, ToyTokens(5, 40), options).status().code(),
            StatusCode::kInvalidArgument);
  options = Greedy(5);
  options.stop = {""};
  EXPECT_EQ(Generate(session, ToyTokens(5, 40), options).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(session, {}, Greedy(5)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.length(), 0);
}

TEST(Generate, EveryReasonHasAName) {
  for (const StopReason reason : {StopReason::kLength, StopReason::kEndToken, StopReason::kStopText,
                                  StopReason::kContext, StopReason::kCancelled}) {
    EXPECT_NE(StopReasonName(reason), "unknown");
  }
}

}  // namespace
}  // namespace kvant
