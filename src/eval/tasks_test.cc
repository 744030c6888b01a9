#include "kvant/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "eval/copying_model_for_test.h"
#include "eval/prompts.h"

namespace kvant {
namespace {

const Model& Copying() {
  static const Model model =
      CopyingModel().Load("copying", {.threads = 1, .float_activations = true}).value();
  return model;
}

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
  const auto prompts = *CutPrompts(Copying().tokenizer(), text, 100, 50);
  ASSERT_EQ(prompts.size(), 100u);
  EXPECT_EQ(prompts.front().front(), 0);
  EXPECT_EQ(prompts.back().back(), 999);
  for (const auto& prompt : prompts) EXPECT_EQ(prompt.size(), 50u);
  EXPECT_EQ(CutPrompts(Copying().tokenizer(), text, 1, 1001).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(CutPrompts(Copying().tokenizer(), text, 0, 50).status().code(),
            StatusCode::kInvalidArgument);
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

// Words without digits or colons, so that nothing but the needles has any.
std::string Haystack() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The grass is green and the sky is blue. Here we go again. ";
  return text;
}

TaskOptions Options(std::vector<TaskKind> kinds, const std::string& test) {
  TaskOptions options;
  options.kinds = std::move(kinds);
  options.lengths_tokens = {600};
  options.depths_percent = {50};
  options.base = *ParseKvPreset("f32");
  options.tests = {*ParseKvPreset(test)};
  options.threads = 1;
  return options;
}

TaskScores Scores(const TaskOptions& options) {
  Result<TaskScores> scores = RunTasks(Copying(), Haystack(), options);
  EXPECT_TRUE(scores.ok()) << scores.status().message();
  return scores.ok() ? *scores : TaskScores{};
}
std::vector<TaskCell> Cells(const TaskOptions& options) {
  const TaskScores scores = Scores(options);
  EXPECT_TRUE(scores.left_out.empty());
  return scores.cells;
}

// The questions of a cell.
std::vector<TaskText> QuestionsOf(const TaskOptions& options, const TaskCell& cell) {
  const std::vector<std::string> sentences = SplitSentences(Haystack());
  RandomStream random = CellStream(options.seed, cell);
  std::vector<TaskText> questions;
  while (static_cast<int>(questions.size()) < cell.questions) {
    questions.push_back(*MakeQuestion(Copying(), sentences, cell, options.sizes, random));
  }
  return questions;
}

// Whether the model above can copy it: each digit but the last must say what follows.
bool CanBeCopied(const std::string& number) {
  return std::set<char>(number.begin(), number.end() - 1).size() == number.size() - 1;
}

TEST(RunTasks, ScoresAreThoseOfTheQuestionsThatTheModelCanAnswer) {
  TaskOptions options = Options({TaskKind::kNeedle}, "int8");
  options.lengths_tokens = {600, 1100};
  options.depths_percent = {0, 50, 100};
  options.sizes.digits = 5;
  options.questions = 3;
  options.tests.push_back(*ParseKvPreset("int2:token:none"));
  options.tests[1].window_tokens = 0;
  int right = 0, all = 0;
  std::vector<std::tuple<int64_t, int, int>> order;
  for (const TaskCell& cell : Cells(options)) {
    order.emplace_back(cell.length_tokens, cell.depth_percent, cell.test);
    int expected = 0;
    for (const TaskText& question : QuestionsOf(options, cell)) {
      expected += CanBeCopied(question.expected[0]) ? 1 : 0;
    }
    const double score = static_cast<double>(expected) / 3;
    EXPECT_EQ(cell.questions, 3);
    EXPECT_EQ(cell.base_right, expected);
    EXPECT_EQ(cell.base_score, score);
    EXPECT_EQ(cell.kept, cell.test == 0 ? expected : 0);
    EXPECT_EQ(cell.score, cell.test == 0 ? score : 0);
    if (cell.test == 1) {
      EXPECT_GT(cell.nll, cell.nll_base);
    }
    right += expected;
    all += 3;
  }
  EXPECT_EQ(order, (std::vector<std::tuple<int64_t, int, int>>{{600, 0, 0},
                                                               {600, 0, 1},
                                                               {600, 50, 0},
                                                               {600, 50, 1},
                                                               {600, 100, 0},
                                                               {600, 100, 1},
                                                               {1100, 0, 0},
                                                               {1100, 0, 1},
                                                               {1100, 50, 0},
                                                               {1100, 50, 1},
                                                               {1100, 100, 0},
                                                               {1100, 100, 1}}));
  EXPECT_GT(right, 0) << "the test must see right answers";
  EXPECT_LT(right, all) << "the test must see wrong answers";
}

// Prompt, right answer and greedy answer token by token, as a user would ask.
struct ByHand {
  double nll = 0, score = 0;
};
ByHand AskByHand(const KvSpec& spec, const TaskPrompt& prompt) {
  const auto session = [&] {
    Session made =
        Session::Create(Copying(), {.kv = spec, .context_tokens = 1000, .threads = 1}).value();
    EXPECT_TRUE(made.Prefill(prompt.tokens).ok());
    return made;
  };
  ByHand result;
  Session forced = session();
  for (const int32_t token : prompt.answer) {
    const std::span<const float> logits = *forced.Logits();
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[0]);
    const double answer = static_cast<double>(logits[static_cast<size_t>(token)]) - logits[0];
    result.nll += (std::log(sum) - answer) / static_cast<double>(prompt.answer.size());
    EXPECT_TRUE(forced.Decode(token).ok());
  }
  Session greedy = session();
  std::string answer;
  for (size_t i = 0; i < prompt.answer.size() + 8; ++i) {
    const std::span<const float> logits = *greedy.Logits();
    const int32_t token =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    answer += Copying().tokenizer().TokenBytes(token);
    EXPECT_TRUE(greedy.Decode(token).ok());
  }
  result.score = ScoreAnswer(prompt, answer);
  return result;
}

TEST(RunTasks, EveryKindIsAskedAsOneWouldAskTokenByToken) {
  TaskOptions options = Options({std::begin(kTaskKinds), std::end(kTaskKinds)}, "int4");
  options.questions = 2;
  const std::vector<TaskCell> cells = Cells(options);
  ASSERT_EQ(cells.size(), std::size(kTaskKinds));
  double best = 0;
  for (const TaskCell& cell : cells) {
    ByHand base, test;
    for (const TaskText& question : QuestionsOf(options, cell)) {
      const TaskPrompt prompt = *EncodeTask(Copying(), question);
      for (const auto& [spec, sum] :
           {std::pair{options.base, &base}, std::pair{options.tests[0], &test}}) {
        const ByHand one = AskByHand(spec, prompt);
        sum->nll += one.nll / 2;
        sum->score += one.score / 2;
      }
    }
    EXPECT_EQ(cell.score, test.score) << TaskKindName(cell.kind);
    EXPECT_EQ(cell.base_score, base.score) << TaskKindName(cell.kind);
    // Logarithms of sums in another order: rounding of doubles alone.
    EXPECT_NEAR(cell.nll, test.nll, 1e-9 * (1 + test.nll)) << TaskKindName(cell.kind);
    EXPECT_NEAR(cell.nll_base, base.nll, 1e-9 * (1 + base.nll)) << TaskKindName(cell.kind);
    best = std::max(best, cell.base_score);
  }
  EXPECT_GT(best, 0) << "the test must see an answer that scores";
}

TEST(RunTasks, WhatElseIsAskedDoesNotChangeACell) {
  TaskOptions options = Options({TaskKind::kNeedle}, "int4");
  const TaskCell alone = Cells(options).at(0);
  options.kinds = {TaskKind::kSums, TaskKind::kNeedle};
  options.lengths_tokens = {500, 600};
  options.depths_percent = {20, 50};
  options.tests.insert(options.tests.begin(), *ParseKvPreset("int2"));
  const std::vector<TaskCell> cells = Cells(options);
  ASSERT_EQ(cells.size(), 2u * 2 + 2 * 2 * 2) << "sums have no depth";
  const TaskCell& among = cells.back();
  EXPECT_EQ(among.length_tokens, 600);
  EXPECT_EQ(among.depth_percent, 50);
  EXPECT_EQ(among.test, 1);
  EXPECT_EQ(among.nll, alone.nll);
  EXPECT_EQ(among.nll_base, alone.nll_base);
  EXPECT_EQ(among.score, alone.score);
}

TEST(RunTasks, ANeedleLiesAtItsDepthInAPromptOfItsLength) {
  for (const int depth : {0, 30, 100}) {
    const TaskCell cell{.length_tokens = 900, .depth_percent = depth, .questions = 1};
    const TaskText question = QuestionsOf({}, cell).at(0);
    const TaskPrompt prompt = *EncodeTask(Copying(), question);
    EXPECT_LE(prompt.tokens.size(), 900u);
    EXPECT_GE(prompt.tokens.size(), 900u - 40) << "a sentence more would have fitted";
    size_t needle = 0;
    while (question.blocks[needle].find("magic number for") == std::string::npos) ++needle;
    // One block before the hay; the needle itself is no hay.
    const double hay = static_cast<double>(question.blocks.size()) - 2;
    EXPECT_NEAR((static_cast<double>(needle) - 1) / hay, depth / 100.0, 1 / hay) << depth;
  }
}

// Number of the block of each needle, in the order in which they stand.
std::vector<size_t> NeedlePlaces(const TaskText& question) {
  std::vector<size_t> places;
  for (size_t i = 0; i < question.blocks.size(); ++i) {
    if (question.blocks[i].find("magic number for") != std::string::npos) places.push_back(i);
  }
  return places;
}

TEST(RunTasks, SeveralKeysAreSpreadAndTheOneAskedForLiesAtTheDepth) {
  for (const int depth : {0, 40, 100}) {
    const TaskCell cell{
        .kind = TaskKind::kMultiKey, .length_tokens = 900, .depth_percent = depth, .questions = 1};
    TaskOptions options;
    options.sizes.needles = 6;
    const TaskText question = QuestionsOf(options, cell).at(0);
    const std::vector<size_t> places = NeedlePlaces(question);
    ASSERT_EQ(places.size(), 6u);
    const double hay = static_cast<double>(question.blocks.size()) - 7;
    size_t asked = 0;
    while (question.blocks[places[asked]].find(question.expected[0]) == std::string::npos) ++asked;
    // Behind the head and the needles before it.
    EXPECT_NEAR((static_cast<double>(places[asked]) - 1 - static_cast<double>(asked)) / hay,
                depth / 100.0, 1 / hay);
    for (size_t i = 1; i < places.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(places[i] - places[i - 1] - 1), (hay + 1) / 6, 1.01);
    }
    EXPECT_EQ(question.expected.size(), 1u);
  }
}

TEST(RunTasks, SeveralValuesLieTogetherAtTheDepthInTheOrderOfTheAnswer) {
  size_t last = 0;
  for (const int depth : {0, 50, 100}) {
    const TaskCell cell{.kind = TaskKind::kMultiValue,
                        .length_tokens = 900,
                        .depth_percent = depth,
                        .questions = 1};
    const TaskText question = QuestionsOf({}, cell).at(0);
    const std::vector<size_t> places = NeedlePlaces(question);
    ASSERT_EQ(places.size(), 4u);
    std::string answer;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NE(question.blocks[places[i]].find(question.expected[i]), std::string::npos);
      answer += (i == 0 ? " " : ", ") + question.expected[i];
      EXPECT_EQ(places[i], places[0] + 2 * i) << "a sentence apart";
    }
    EXPECT_EQ(question.answer, answer);
    if (depth == 0) {
      EXPECT_EQ(places[0], 1u) << "behind the head";
    } else {
      EXPECT_GT(places[0], last);
    }
    if (depth == 100) {
      EXPECT_EQ(places[3], question.blocks.size() - 1);
    }
    last = places[0];
  }
}

TEST(RunTasks, SizesAreThoseOfTheQuestions) {
  TaskOptions options;
  options.sizes = {.needles = 3, .digits = 2, .terms = 5, .fields = 2};
  const auto question = [&](TaskKind kind) {
    return QuestionsOf(options, {.kind = kind, .length_tokens = 900, .questions = 1}).at(0);
  };
  const TaskText values = question(TaskKind::kMultiValue);
  EXPECT_EQ(values.expected.size(), 3u);
  EXPECT_EQ(values.expected[0].size(), 2u);
  EXPECT_EQ(question(TaskKind::kSums).expected.size(), 4u) << "additions";
  const TaskText copy = question(TaskKind::kJsonCopy);
  ASSERT_EQ(copy.expected.size(), 2u);
  EXPECT_EQ(copy.expected[0].find_first_of("0123456789") + 2, copy.expected[0].size());
}

// What the base scores at each length is known from a run that leaves nothing out.
TEST(RunTasks, LengthsAtWhichTheBaseFailsAndLongerOnesAreLeftOut) {
  TaskOptions options = Options({TaskKind::kNeedle, TaskKind::kSums}, "int8");
  options.lengths_tokens = {1200, 600, 900, 750};
  options.depths_percent = {0, 100};
  options.questions = 3;
  options.sizes.digits = 5;
  std::vector<TaskCell> all;
  std::vector<double> base;  // of the needle, by length
  size_t passing = 0;        // lengths before the first that scores less than the shortest
  // A seed with a length beyond one that fails.
  for (options.seed = 1; passing == 0 || passing > 2; ++options.seed) {
    ASSERT_LT(options.seed, 20u);
    all = Cells(options);
    base.clear();
    for (size_t i = 0; i < 8; i += 2) {
      base.push_back((all[i].base_score + all[i + 1].base_score) / 2);
    }
    passing = 0;
    while (passing < 4 && base[passing] >= base[0]) ++passing;
  }
  --options.seed;
  options.least_base_score = base[0];
  ASSERT_GT(base[0], 0);
  EXPECT_EQ(all[0].length_tokens, 600) << "the shortest first";
  int64_t done = 0, total = 0;
  const TaskScores scores =
      RunTasks(Copying(), Haystack(), options,
               {.progress = [&](int64_t d, int64_t t) { done = d, total = t; }, .cancel = nullptr})
          .value();
  ASSERT_EQ(scores.cells.size(), 2 * passing);
  for (size_t i = 0; i < scores.cells.size(); ++i) {
    EXPECT_EQ(scores.cells[i].nll, all[i].nll);
    EXPECT_EQ(scores.cells[i].length_tokens, all[i].length_tokens);
  }
  ASSERT_EQ(scores.left_out.size(), 4 - passing + 4);
  for (size_t i = 0; i < 4 - passing; ++i) {
    const TaskLeftOut& left = scores.left_out[i];
    EXPECT_EQ(left.kind, TaskKind::kNeedle);
    EXPECT_EQ(left.length_tokens, all[2 * (passing + i)].length_tokens);
    EXPECT_EQ(left.base_score.has_value(), i == 0);
  }
  EXPECT_EQ(*scores.left_out[0].base_score, base[passing]);
  EXPECT_EQ(scores.left_out.back().kind, TaskKind::kSums);
  EXPECT_EQ(done, total);
}

TEST(RunTasks, ImpossibleOptionsAreRefused) {
  const auto code = [](const TaskOptions& options, const std::string& text) {
    return RunTasks(Copying(), text, options).status().code();
  };
  const TaskOptions good = Options({TaskKind::kNeedle}, "int4");
  for (const auto& spoil : std::vector<std::function<void(TaskOptions*)>>{
           [](TaskOptions* o) { o->kinds.clear(); }, [](TaskOptions* o) { o->tests.clear(); },
           [](TaskOptions* o) { o->depths_percent = {101}; },
           [](TaskOptions* o) { o->questions = 0; }, [](TaskOptions* o) { o->sizes.needles = 1; },
           [](TaskOptions* o) { o->sizes = {.needles = 10, .digits = 1}; }}) {
    TaskOptions bad = good;
    spoil(&bad);
    EXPECT_EQ(code(bad, Haystack()), StatusCode::kInvalidArgument);
  }
  for (const int64_t length : {0, 100, 2049}) {
    TaskOptions bad = good;
    bad.lengths_tokens = {length};
    EXPECT_EQ(code(bad, Haystack()), StatusCode::kOutOfRange) << length;
  }
  EXPECT_EQ(code(good, "A short text."), StatusCode::kOutOfRange);
}

// Before an answer is computed: minutes of other lengths would be lost.
TEST(RunTasks, ATextThatIsTooShortForOneLengthIsRefusedAtOnce) {
  TaskOptions options = Options({TaskKind::kNeedle}, "int4");
  options.lengths_tokens = {400, 1500};
  bool asked = false;
  const Status status =
      RunTasks(Copying(), Haystack().substr(0, 500), options,
               {.progress = [&](int64_t, int64_t) { asked = true; }, .cancel = nullptr})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange) << status.message();
  EXPECT_FALSE(asked);
}

TEST(RunTasks, ACancelIsHeededAndProgressCountsAnswers) {
  TaskOptions options = Options({TaskKind::kSums}, "int4");
  options.questions = 3;
  std::vector<int64_t> seen;
  int64_t total = 0;
  std::atomic<bool> cancel = false;
  RunControl control{
      .progress = [&](int64_t done, int64_t all) { seen.push_back(done), total = all; },
      .cancel = &cancel};
  EXPECT_TRUE(RunTasks(Copying(), "", options, control).ok());
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(total, 6);
  seen.clear();
  control.progress = [&](int64_t done, int64_t) { seen.push_back(done), cancel = done == 3; };
  EXPECT_EQ(RunTasks(Copying(), "", options, control).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(seen.size(), 3u);
}

}  // namespace
}  // namespace kvant
