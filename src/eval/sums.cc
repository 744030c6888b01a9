// Chains of sums: questions that need no text.
#include <string>
#include <utility>
#include <vector>

#include "eval/prompts.h"

namespace kvant {
namespace {

struct Chain {
  std::string terms, sums;         // " 3 5 2", " 3+5=8 8+2=10"
  std::vector<std::string> items;  // "3+5=8", "8+2=10"
};

Chain DrawChain(int terms, RandomStream& random) {
  Chain chain;
  uint64_t total = 0;
  for (int i = 0; i < terms; ++i) {
    const std::string term = DrawNumber(1, random), before = std::to_string(total);
    total += static_cast<uint64_t>(term[0] - '0');
    chain.terms += " " + term;
    if (i == 0) continue;
    chain.items.push_back(before + "+" + term + "=" + std::to_string(total));
    chain.sums += " " + chain.items.back();
  }
  return chain;
}

}  // namespace

Result<TaskText> MakeSums(const Model& model, const TaskCell& cell, const TaskSizes& sizes,
                          RandomStream& random) {
  const Chain asked = DrawChain(sizes.terms, random);
  TaskText text;
  text.question = "Numbers:" + asked.terms + "\nSums:";
  text.lead = "Sums:";
  text.answer = asked.sums;
  text.expected = asked.items;
  text.separator = ' ';
  text.blocks.push_back("Add the numbers one after the other.\n\n");
  KVANT_ASSIGN_OR_RETURN(int64_t room, RoomForBlocks(model, text, cell.length_tokens));
  KVANT_ASSIGN_OR_RETURN(const int64_t head, CountTokens(model, text.blocks[0]));
  for (room -= head;;) {
    const Chain chain = DrawChain(sizes.terms, random);
    std::string block = "Numbers:" + chain.terms + "\nSums:" + chain.sums + "\n\n";
    KVANT_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(model, block));
    if (tokens > room || tokens == 0) break;
    room -= tokens;
    text.blocks.push_back(std::move(block));
  }
  return text;
}

}  // namespace kvant
