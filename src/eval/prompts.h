// Prompts: questions with a known answer, made from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/model.h"
#include "kvant/sampler.h"
#include "kvant/status.h"
#include "kvant/tasks.h"

namespace kvant {

struct TaskPrompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> answer;        // the right continuation
  std::vector<std::string> expected;  // items of the answer
  char separator = 0;                 // between items; 0: they may stand anywhere in the answer
};

// What a question is put together from: `blocks` in order, then a question, then the words that the
// answer begins with.
struct TaskText {
  std::vector<std::string> blocks;
  std::string question;
  std::string lead;
  std::string answer;
  std::vector<std::string> expected;
  char separator = 0;
};

// A text cut at the ends of its sentences, white space made single blanks.
std::vector<std::string> SplitSentences(std::string_view text);

// Tokens of a text within another: without bos.
Result<std::vector<int32_t>> EncodePart(const Model& model, std::string_view text);
Result<int64_t> CountTokens(const Model& model, std::string_view text);

// Through the chat template of the model; one after the other where it has none.
Result<TaskPrompt> EncodeTask(const Model& model, const TaskText& text);

// A question of a cell's kind, length and depth. Makers leave room for template and question and
// fill up to the length. kOutOfRange when it has no room for the question.
Result<TaskText> MakeQuestion(const Model& model, const std::vector<std::string>& sentences,
                              const TaskCell& cell, const TaskSizes& sizes, RandomStream& random);
// All but sums.
Result<TaskText> MakeNeedle(const Model& model, const std::vector<std::string>& sentences,
                            const TaskCell& cell, const TaskSizes& sizes, RandomStream& random);
Result<TaskText> MakeSums(const Model& model, const TaskCell& cell, const TaskSizes& sizes,
                          RandomStream& random);

// Tokens that blocks may take of a prompt of `length_tokens` with the rest of `text`.
Result<int64_t> RoomForBlocks(const Model& model, const TaskText& text, int64_t length_tokens);

// Share of the expected items in an answer.
double ScoreAnswer(const TaskPrompt& prompt, std::string_view answer);

// What the questions of a cell are drawn from: the same whatever else is asked beside it.
RandomStream CellStream(uint64_t seed, const TaskCell& cell);

// A number of `digits` digits, the first of which is not 0.
std::string DrawNumber(int digits, RandomStream& random);
// `count` different everyday words.
std::vector<std::string> DrawWords(size_t count, RandomStream& random);

}  // namespace kvant
