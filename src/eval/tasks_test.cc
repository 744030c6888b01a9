#include "kvant/tasks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "eval/prompts.h"

namespace kvant {
namespace {

TEST(Tasks, SentencesEndAtTheirMarksWhateverTheLineBreaks) {
  EXPECT_EQ(SplitSentences("One\n two.  Three?\nfour"),
            (std::vector<std::string>{"One two.", "Three?", "four"}));
  EXPECT_TRUE(SplitSentences(" \n ").empty());
}

TEST(Tasks, ANeedleCountsAnywhereAnItemOnlyAtItsPlace) {
  TaskPrompt prompt;
  prompt.expected = {"11", "22"};
  EXPECT_EQ(ScoreAnswer(prompt, " 22 and 11."), 1);
  EXPECT_EQ(ScoreAnswer(prompt, " 22"), 0.5);
  prompt.separator = ' ';
  EXPECT_EQ(ScoreAnswer(prompt, " 11 22\n33"), 1);
  EXPECT_EQ(ScoreAnswer(prompt, " 22 11"), 0);
  EXPECT_EQ(ScoreAnswer(prompt, " 11\n22"), 0.5);
  EXPECT_EQ(ScoreAnswer(prompt, ""), 0);
}

TEST(Tasks, PromptsReachFromTheFirstTokenToTheLast) {
  std::vector<int32_t> text(1000);
  std::iota(text.begin(), text.end(), 0);
  const auto prompts = *CutPrompts(text, 100, 50);
  ASSERT_EQ(prompts.size(), 100u);
  EXPECT_EQ(prompts.front().front(), 0);
  EXPECT_EQ(prompts.back().back(), 999);
  for (const auto& prompt : prompts) EXPECT_EQ(prompt.size(), 50u);
  EXPECT_EQ(CutPrompts(text, 1, 1001).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(CutPrompts(text, 0, 50).status().code(), StatusCode::kInvalidArgument);
}

TEST(Tasks, QuartilesAreNearestRanks) {
  GreedyAgreement agreement;
  agreement.first_divergence = {40, 10, 30, 20};
  const DivergenceSummary four = SummariseDivergence(agreement);
  EXPECT_EQ(four.first_quartile_tokens, 10);
  EXPECT_EQ(four.median_tokens, 20);
  EXPECT_EQ(four.third_quartile_tokens, 30);
  agreement.first_divergence = {7};
  EXPECT_EQ(SummariseDivergence(agreement).first_quartile_tokens, 7);
  EXPECT_EQ(SummariseDivergence({}).prompts, 0);
}

}  // namespace
}  // namespace kvant
