#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eval/prompts.h"

namespace kvant {
namespace {

constexpr size_t kNeedles = 4;  // of the kinds with several
constexpr int kDigits = 5;

std::string Needle(const std::string& name, const std::string& number) {
  return "The special magic number for " + name + " is: " + number + ". ";
}

// Names and numbers; the first one is asked for, or all.
struct Needles {
  std::vector<std::string> names, numbers;
  size_t asked = 1;
};

Needles DrawNeedles(TaskKind kind, RandomStream& random) {
  Needles needles;
  const size_t count = kind == TaskKind::kNeedle ? 1 : kNeedles;
  const bool one_name = kind == TaskKind::kMultiValue;
  needles.names = DrawWords(one_name ? 1 : count, random);
  needles.names.resize(count, needles.names[0]);
  while (needles.numbers.size() < count) {
    const std::string number = DrawNumber(kDigits, random);
    if (std::find(needles.numbers.begin(), needles.numbers.end(), number) ==
        needles.numbers.end()) {
      needles.numbers.push_back(number);
    }
  }
  needles.asked = one_name ? count : 1;
  return needles;
}

}  // namespace

Result<TaskText> MakeNeedle(const Model& model, const std::vector<std::string>& sentences,
                            TaskKind kind, int64_t length_tokens, int depth_percent,
                            RandomStream& random) {
  const Needles needles = DrawNeedles(kind, random);
  TaskText text;
  const bool several = needles.asked > 1;
  const std::string what = several ? "special magic numbers for " : "special magic number for ";
  const std::string mentioned = " mentioned in the provided text";
  text.question = "\n\nWhat " + std::string(several ? "are all the " : "is the ") + what +
                  needles.names[0] + mentioned + "?";
  text.lead = "The " + what + needles.names[0] + mentioned + (several ? " are" : " is") + ":";
  for (size_t i = 0; i < needles.asked; ++i) {
    text.answer += (i == 0 ? " " : ", ") + needles.numbers[i];
    text.expected.push_back(needles.numbers[i]);
  }
  const std::string head =
      "Some special magic numbers are hidden within the following text. Memorize them.\n\n";
  int64_t fixed = 0;
  KVANT_ASSIGN_OR_RETURN(fixed, CountTokens(model, head));
  for (size_t i = 0; i < needles.names.size(); ++i) {
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens,
                           CountTokens(model, Needle(needles.names[i], needles.numbers[i])));
    fixed += tokens;
  }
  KVANT_ASSIGN_OR_RETURN(int64_t room, RoomForBlocks(model, text, length_tokens));
  room -= fixed;
  if (room <= 0 || sentences.empty()) {
    return Status::OutOfRange("a prompt of " + std::to_string(length_tokens) +
                              " tokens has no room for text around its needles");
  }

  // Sentences from a random place on, round the end of the text.
  std::vector<std::string> hay;
  const size_t first = random.Next() % sentences.size();
  for (size_t i = 0; i < sentences.size(); ++i) {
    const std::string sentence = sentences[(first + i) % sentences.size()] + " ";
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, sentence));
    if (tokens > room) {
      room = 0;
      break;
    }
    room -= tokens;
    hay.push_back(sentence);
  }
  if (room > 0) {
    return Status::OutOfRange("the text is too short for a prompt of " +
                              std::to_string(length_tokens) + " tokens");
  }
  // The needle asked for lies at the depth; with several values the first does. The others follow
  // at even distances, round the end.
  std::vector<std::vector<std::string>> inserted(hay.size() + 1);
  for (size_t i = 0; i < needles.names.size(); ++i) {
    const size_t part = i * (hay.size() + 1) / needles.names.size();
    const size_t place = (hay.size() * static_cast<size_t>(depth_percent) / 100 + part);
    inserted[place % (hay.size() + 1)].push_back(Needle(needles.names[i], needles.numbers[i]));
  }
  text.blocks.push_back(head);
  for (size_t i = 0; i <= hay.size(); ++i) {
    for (std::string& needle : inserted[i]) text.blocks.push_back(std::move(needle));
    if (i < hay.size()) text.blocks.push_back(std::move(hay[i]));
  }
  return text;
}

}  // namespace kvant
