#include "eval/prompts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvant {
namespace {

constexpr std::array<const char*, 32> kWords = {
    "apple",  "bridge", "candle", "desert", "engine",   "forest", "garden", "harbor",
    "island", "jacket", "kettle", "ladder", "market",   "needle", "orange", "pencil",
    "quartz", "river",  "silver", "ticket", "umbrella", "violin", "window", "yellow",
    "zebra",  "anchor", "basket", "copper", "dragon",   "falcon", "guitar", "hammer"};

// An item less the blanks around it.
std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

std::vector<std::string> SplitSentences(std::string_view text) {
  std::vector<std::string> sentences;
  std::string sentence;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!blank) {
      sentence += c;
      continue;
    }
    if (sentence.empty()) continue;
    const char last = sentence.back();
    if (last == '.' || last == '!' || last == '?') {
      sentences.push_back(std::exchange(sentence, {}));
    } else if (last != ' ') {
      sentence += ' ';
    }
  }
  if (!Trim(sentence).empty()) sentences.push_back(std::string(Trim(sentence)));
  return sentences;
}

Result<std::vector<int32_t>> EncodePart(const Model& model, std::string_view text) {
  KVANT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, model.tokenizer().Encode(text, false));
  if (model.tokenizer().add_bos()) tokens.erase(tokens.begin());
  return tokens;
}

Result<int64_t> CountTokens(const Model& model, std::string_view text) {
  KVANT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EncodePart(model, text));
  return static_cast<int64_t>(tokens.size());
}

Result<TaskText> MakeQuestion(const Model& model, const std::vector<std::string>& sentences,
                              const TaskCell& cell, const TaskSizes& sizes, RandomStream& random) {
  if (cell.kind == TaskKind::kSums) return MakeSums(model, cell, sizes, random);
  return MakeNeedle(model, sentences, cell, sizes, random);
}

Result<TaskPrompt> EncodeTask(const Model& model, const TaskText& text) {
  std::string body;
  for (const std::string& block : text.blocks) body += block;
  body += text.question;
  TaskPrompt prompt;
  const std::vector<ChatTurn> turns = {{"user", body}};
  Result<std::vector<int32_t>> chat = model.EncodeChat(turns);
  if (chat.ok()) {
    prompt.tokens = std::move(chat).value();
  } else if (chat.status().code() == StatusCode::kUnsupported) {
    KVANT_ASSIGN_OR_RETURN(prompt.tokens, model.tokenizer().Encode(body + "\n", false));
  } else {
    return chat.status();
  }
  // The answer is tokenised apart from its lead, as greedy decoding would go on from it.
  for (const auto& [part, out] :
       {std::pair{&text.lead, &prompt.tokens}, std::pair{&text.answer, &prompt.answer}}) {
    KVANT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EncodePart(model, *part));
    out->insert(out->end(), tokens.begin(), tokens.end());
  }
  if (prompt.tokens.empty() || prompt.answer.empty()) {
    return Status::InvalidArgument("the vocabulary has no tokens for the questions of a task");
  }
  prompt.expected = text.expected;
  prompt.separator = text.separator;
  return prompt;
}

Result<int64_t> RoomForBlocks(const Model& model, const TaskText& text, int64_t length_tokens) {
  TaskText rest = text;
  rest.blocks.clear();
  KVANT_ASSIGN_OR_RETURN(const TaskPrompt prompt, EncodeTask(model, rest));
  const int64_t room = length_tokens - static_cast<int64_t>(prompt.tokens.size());
  if (room <= 0) {
    return Status::OutOfRange("a prompt of " + std::to_string(length_tokens) +
                              " tokens has no room for a question of " +
                              std::to_string(prompt.tokens.size()));
  }
  return room;
}

double ScoreAnswer(const TaskPrompt& prompt, std::string_view answer) {
  size_t found = 0;
  if (prompt.separator == 0) {
    for (const std::string& item : prompt.expected) found += answer.find(item) != answer.npos;
  } else {
    answer = Trim(answer.substr(0, answer.find('\n')));
    for (const std::string& item : prompt.expected) {
      const size_t end = std::min(answer.find(prompt.separator), answer.size());
      found += Trim(answer.substr(0, end)) == item;
      answer.remove_prefix(std::min(end + 1, answer.size()));
    }
  }
  return static_cast<double>(found) / static_cast<double>(prompt.expected.size());
}

RandomStream CellStream(uint64_t seed, const TaskCell& cell) {
  for (const int64_t part :
       {static_cast<int64_t>(cell.kind), cell.length_tokens, int64_t{cell.depth_percent}}) {
    seed = RandomStream(seed + static_cast<uint64_t>(part)).Next();
  }
  return RandomStream(seed);
}

std::string DrawNumber(int digits, RandomStream& random) {
  std::string number;
  for (int i = 0; i < digits; ++i) {
    const uint64_t low = i == 0 ? 1 : 0;
    number += static_cast<char>('0' + low + random.Next() % (10 - low));
  }
  return number;
}

std::vector<std::string> DrawWords(size_t count, RandomStream& random) {
  std::vector<std::string> words(kWords.begin(), kWords.end());
  for (size_t i = 0; i < count; ++i) {
    std::swap(words[i], words[i + random.Next() % (words.size() - i)]);
  }
  words.resize(count);
  return words;
}

}  // namespace kvant
