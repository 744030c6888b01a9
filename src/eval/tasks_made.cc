// Chains of sums and copies of JSON objects: questions that need no text.
#include <string>
#include <utility>
#include <vector>

#include "eval/prompts.h"

namespace kvant {
namespace {

constexpr int kTerms = 6;
constexpr size_t kFields = 4;

struct Chain {
  std::string terms, totals;  // "3 5 2", " 3 8 10"
  std::vector<std::string> items;
};

Chain DrawChain(RandomStream& random) {
  Chain chain;
  uint64_t total = 0;
  for (int i = 0; i < kTerms; ++i) {
    const uint64_t term = 1 + random.Next() % 9;
    total += term;
    chain.terms += " " + std::to_string(term);
    chain.totals += " " + std::to_string(total);
    chain.items.push_back(std::to_string(total));
  }
  return chain;
}

struct Object {
  std::string json;
  std::vector<std::string> items;  // of json cut at its commas
};

Object DrawObject(RandomStream& random) {
  Object object;
  const std::vector<std::string> keys = DrawWords(kFields, random);
  for (size_t i = 0; i < kFields; ++i) {
    std::string item = (i == 0 ? "{\"" : "\"") + keys[i] + "\": " + DrawNumber(4, random);
    if (i + 1 == kFields) item += "}";
    object.json += (i == 0 ? "" : ", ") + item;
    object.items.push_back(std::move(item));
  }
  return object;
}

}  // namespace

Result<TaskText> MakeSums(const Model& model, int64_t length_tokens, RandomStream& random) {
  const Chain asked = DrawChain(random);
  TaskText text;
  text.question = "Numbers:" + asked.terms + "\nTotals:";
  text.lead = "Totals:";
  text.answer = asked.totals;
  text.expected = asked.items;
  text.separator = ' ';
  text.blocks.push_back("Write the running totals of the numbers.\n\n");
  KVANT_ASSIGN_OR_RETURN(int64_t room, RoomForBlocks(model, text, length_tokens));
  KVANT_ASSIGN_OR_RETURN(const int64_t head, CountTokens(model, text.blocks[0]));
  for (room -= head;;) {
    const Chain chain = DrawChain(random);
    std::string block = "Numbers:" + chain.terms + "\nTotals:" + chain.totals + "\n\n";
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, block));
    if (tokens > room || tokens == 0) break;
    room -= tokens;
    text.blocks.push_back(std::move(block));
  }
  return text;
}

Result<TaskText> MakeJsonCopy(const Model& model, int64_t length_tokens, int depth_percent,
                              RandomStream& random) {
  const std::string tag = DrawNumber(3, random);
  const Object asked = DrawObject(random);
  const std::string wanted = "Object " + tag + ": " + asked.json + "\n";
  TaskText text;
  text.question = "\nCopy object " + tag + " word for word.";
  text.lead = "Object " + tag + ":";
  text.answer = " " + asked.json;
  text.expected = asked.items;
  text.separator = ',';
  KVANT_ASSIGN_OR_RETURN(int64_t room, RoomForBlocks(model, text, length_tokens));
  KVANT_ASSIGN_OR_RETURN(const int64_t own, CountTokens(model, wanted));
  if (own > room) {
    return Status::OutOfRange("a prompt of " + std::to_string(length_tokens) +
                              " tokens has no room for an object to copy");
  }
  for (room -= own;;) {
    std::string other = DrawNumber(3, random);
    const Object object = DrawObject(random);
    if (other == tag) continue;
    std::string block = "Object " + other + ": " + object.json + "\n";
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, block));
    if (tokens > room || tokens == 0) break;
    room -= tokens;
    text.blocks.push_back(std::move(block));
  }
  const size_t place = text.blocks.size() * static_cast<size_t>(depth_percent) / 100;
  text.blocks.insert(text.blocks.begin() + static_cast<std::ptrdiff_t>(place), wanted);
  return text;
}

}  // namespace kvant
