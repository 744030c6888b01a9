#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/prompts.h"

namespace kvant {
namespace {

// What is hidden and what is asked: the first one, or all.
struct Needles {
  std::vector<std::string> sentences;
  size_t asked = 1;
  TaskText text;  // without blocks
};

// One or several numbers with a name each, or several of one name.
Needles DrawNumbers(TaskKind kind, const TaskSizes& sizes, RandomStream& random) {
  const bool one_name = kind == TaskKind::kMultiValue;
  const size_t count = kind == TaskKind::kNeedle ? 1 : static_cast<size_t>(sizes.needles);
  std::vector<std::string> names = DrawWords(one_name ? 1 : count, random), numbers;
  names.resize(count, names[0]);
  while (numbers.size() < count) {
    const std::string number = DrawNumber(sizes.digits, random);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
      numbers.push_back(number);
    }
  }
  Needles needles;
  needles.asked = one_name ? count : 1;
  const std::string what =
      std::string(one_name ? "special magic numbers for " : "special magic number for ") +
      names[0] + " mentioned in the provided text";
  TaskText& text = needles.text;
  text.question = std::string("\n\nWhat ") + (one_name ? "are all the " : "is the ") + what + "?";
  text.lead = "The " + what + (one_name ? " are:" : " is:");
  for (size_t i = 0; i < count; ++i) {
    needles.sentences.push_back("The special magic number for " + names[i] + " is: " + numbers[i] +
                                ". ");
    if (i >= needles.asked) continue;
    text.answer += (i == 0 ? " " : ", ") + numbers[i];
    text.expected.push_back(numbers[i]);
  }
  return needles;
}

// An object to be copied.
Needles DrawObject(const TaskSizes& sizes, RandomStream& random) {
  const std::vector<std::string> words =
      DrawWords(static_cast<size_t>(sizes.fields) + 1, random);  // its name first
  Needles needles;
  TaskText& text = needles.text;
  text.separator = ',';
  text.question = "\n\nCopy the object " + words[0] + " mentioned in the provided text.";
  // The answer begins inside of the object: left to itself, a model likes to begin a new line.
  text.lead = "The object " + words[0] + " is: {\"";
  for (size_t i = 1; i < words.size(); ++i) {
    text.expected.push_back((i == 1 ? "" : "\"") + words[i] + "\": " +
                            DrawNumber(sizes.digits, random) + (i + 1 == words.size() ? "}" : ""));
    text.answer += (i == 1 ? "" : ", ") + text.expected.back();
  }
  needles.sentences.push_back(text.lead + text.answer + " ");
  return needles;
}

// Tokens for text around the needles.
Result<int64_t> RoomForHay(const Model& model, std::string_view head, const Needles& needles,
                           int64_t length_tokens) {
  KVANT_ASSIGN_OR_RETURN(int64_t room, RoomForBlocks(model, needles.text, length_tokens));
  KVANT_ASSIGN_OR_RETURN(const int64_t head_tokens, CountTokens(model, head));
  room -= head_tokens;
  for (const std::string& sentence : needles.sentences) {
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, sentence));
    room -= tokens;
  }
  if (room > 0) return room;
  return Status::OutOfRange("a prompt of " + std::to_string(length_tokens) +
                            " tokens has no room for text around its needles");
}

// Sentences of at most `room` tokens from a random place on, round the end of the text.
Result<std::vector<std::string>> DrawHay(const Model& model,
                                         const std::vector<std::string>& sentences, int64_t room,
                                         int64_t length_tokens, RandomStream& random) {
  std::vector<std::string> hay;
  const size_t first = sentences.empty() ? 0 : random.Next() % sentences.size();
  for (size_t i = 0; i < sentences.size(); ++i) {
    const std::string sentence = sentences[(first + i) % sentences.size()] + " ";
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, sentence));
    if (tokens > room) return hay;
    room -= tokens;
    hay.push_back(sentence);
  }
  return Status::OutOfRange("the text is too short for a prompt of " +
                            std::to_string(length_tokens) + " tokens");
}

// Behind how many sentences of `hay` each needle stands. The one asked for lies at the depth, the
// others follow at even distances, round the end. Several that are asked for lie together at the
// depth, a sentence apart, in the order of the answer: spread out, all depths would be alike.
std::vector<size_t> PlacesOf(const Needles& needles, size_t hay, int depth_percent) {
  const size_t count = needles.sentences.size();
  const size_t depth = hay * static_cast<size_t>(depth_percent) / 100;
  std::vector<size_t> places;
  for (size_t i = 0; i < count; ++i) {
    if (needles.asked == 1) {
      places.push_back((depth + i * (hay + 1) / count) % (hay + 1));
    } else {
      const size_t last_start = hay + 1 - std::min(hay + 1, count);
      places.push_back(std::min(std::min(depth, last_start) + i, hay));
    }
  }
  return places;
}

}  // namespace

Result<TaskText> MakeNeedle(const Model& model, const std::vector<std::string>& sentences,
                            const TaskCell& cell, const TaskSizes& sizes, RandomStream& random) {
  const bool json = cell.kind == TaskKind::kJsonCopy;
  Needles needles = json ? DrawObject(sizes, random) : DrawNumbers(cell.kind, sizes, random);
  const std::string head = std::string(json ? "An object is" : "Some special magic numbers are") +
                           " hidden within the following text. Memorize " +
                           (json ? "it.\n\n" : "them.\n\n");
  KVANT_ASSIGN_OR_RETURN(const int64_t room, RoomForHay(model, head, needles, cell.length_tokens));
  KVANT_ASSIGN_OR_RETURN(std::vector<std::string> hay,
                         DrawHay(model, sentences, room, cell.length_tokens, random));
  const std::vector<size_t> places = PlacesOf(needles, hay.size(), cell.depth_percent);
  TaskText text = std::move(needles.text);
  text.blocks.push_back(head);
  for (size_t i = 0; i <= hay.size(); ++i) {
    for (size_t n = 0; n < places.size(); ++n) {
      if (places[n] == i) text.blocks.push_back(needles.sentences[n]);
    }
    if (i < hay.size()) text.blocks.push_back(std::move(hay[i]));
  }
  return text;
}

}  // namespace kvant
