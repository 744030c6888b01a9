#include "kvant/head_gates.h"

#include <gtest/gtest.h>

#include <string>

#include "eval/copying_model_for_test.h"

namespace kvant {
namespace {

const Model& Copying() {
  static const Model model =
      CopyingModel().Load("gates", {.threads = 1, .float_activations = true}).value();
  return model;
}

// Words without digits or colons, so that nothing but the number has any.
std::string Haystack() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The grass is green and the sky is blue. Here we go again. ";
  return text;
}

HeadGateOptions Options() {
  return {.prompt_tokens = 1100, .depths_percent = {20, 50}, .questions = 3, .threads = 1};
}

// Its first layer attends to the position before, its second to what followed the byte at hand
// earlier: the number, unless a digit of it stands in it twice.
TEST(HeadGates, TellTheHeadThatCopiesFromTheOneThatLooksBesideIt) {
  const Result<HeadGates> gates = MeasureHeadGates(Copying(), Haystack(), Options());
  ASSERT_TRUE(gates.ok()) << gates.status().message();
  EXPECT_EQ(gates->questions, 6);
  EXPECT_EQ(gates->model_hash, Copying().file_hash());
  ASSERT_EQ(gates->gates.size(), 2u);
  EXPECT_LT(gates->Of(0, 0), 1e-6);
  EXPECT_GT(gates->Of(1, 0), 0.9);
  EXPECT_LE(gates->Of(1, 0), 1 + 1e-6);
}

TEST(HeadGates, AreThoseOfAnyChunksAndThreads) {
  HeadGateOptions options = Options();
  const std::vector<double> expected =
      MeasureHeadGates(Copying(), Haystack(), options).value().gates;
  options.chunk_tokens = 77;
  options.threads = 2;
  EXPECT_EQ(MeasureHeadGates(Copying(), Haystack(), options).value().gates, expected);
}

TEST(HeadGates, RefuseWhatTellsNothing) {
  const auto message_of = [](auto change) {
    HeadGateOptions options = Options();
    change(options);
    return MeasureHeadGates(Copying(), Haystack(), options).status().message();
  };
  const auto says = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  says(message_of([](auto& o) { o.depths_percent = {95}; }), "the newest 256");
  says(message_of([](auto& o) {
         o.depths_percent = {0};
         o.sinks_tokens = 300;
       }),
       "the first 300");
  says(message_of([](auto& o) { o.depths_percent = {101}; }), "101");
  says(message_of([](auto& o) { o.questions = 0; }), "0 questions");
  says(message_of([](auto& o) { o.prompt_tokens = 5000; }), "context of 2048");
}

}  // namespace
}  // namespace kvant
