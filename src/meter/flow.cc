#include "meter/flow.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace kvant {
namespace {

enum class Taken { kNever, kSometimes, kAlways };

// How an instruction ends its block, if it does.
struct Jump {
  Taken taken = Taken::kNever;
  std::optional<int64_t> target;  // index of an instruction; absent: leaves the function
  bool ends_block = false;
};

bool IsConstantTrue(std::string_view predicate) {
  return predicate == "@PT" || predicate == "@UPT" || predicate == "PT" || predicate == "UPT";
}

bool IsConstantFalse(std::string_view predicate) {
  return predicate == "@!PT" || predicate == "@!UPT" || predicate == "!PT" || predicate == "!UPT";
}

// A condition among the operands: "!UP0" of "BRA.U !UP0,0x9f0", "P1" of "BRA P1,0x40".
bool IsPredicateName(std::string_view word) {
  if (word.starts_with('!')) word.remove_prefix(1);
  if (word.starts_with('U')) word.remove_prefix(1);
  return word.starts_with('P') && word.size() >= 2;
}

std::vector<std::string_view> SplitOperands(std::string_view operands) {
  std::vector<std::string_view> words;
  while (!operands.empty()) {
    const size_t comma = operands.find(',');
    words.push_back(operands.substr(0, comma));
    operands = comma == operands.npos ? "" : operands.substr(comma + 1);
  }
  return words;
}

// "0x130", nothing else.
std::optional<int64_t> ParseOffset(std::string_view word) {
  if (!word.starts_with("0x")) return std::nullopt;
  int64_t offset = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + 2, end, offset, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return offset;
}

Taken TakenOf(const SassInstruction& instruction) {
  if (instruction.Has("DIV")) return Taken::kNever;
  if (instruction.Has("CONV")) return Taken::kAlways;
  std::vector<std::string_view> conditions = SplitOperands(instruction.operands);
  std::erase_if(conditions, [](std::string_view word) { return !IsPredicateName(word); });
  if (!instruction.predicate.empty()) conditions.push_back(instruction.predicate);
  Taken taken = Taken::kAlways;
  for (std::string_view condition : conditions) {
    if (IsConstantFalse(condition)) return Taken::kNever;
    if (!IsConstantTrue(condition)) taken = Taken::kSometimes;
  }
  return taken;
}

Result<Jump> JumpOf(const SassFunction& function, const SassInstruction& instruction) {
  const std::string_view base = instruction.Base();
  Jump jump;
  if (base == "EXIT" || base == "RET" || base == "RTT" || base == "KILL") {
    jump.ends_block = true;
    jump.taken = TakenOf(instruction);
    return jump;
  }
  if (base == "BRX" || base == "BRXU" || base == "JMX" || base == "JMXU") {
    return Status::Unsupported("'" + function.name + "' jumps to a computed place (" +
                               instruction.opcode + "), so its loops cannot be told");
  }
  const std::vector<std::string_view> words = SplitOperands(instruction.operands);
  const std::optional<int64_t> offset = words.empty() ? std::nullopt : ParseOffset(words.back());
  const bool jumps = base == "BRA" || base == "JMP" || (base == "CALL" && !IsCall(instruction));
  if (!jumps) return jump;
  if (!offset) {
    return Status::Corrupt("'" + function.name + "': a branch to '" + instruction.operands +
                           "', which is no offset");
  }
  jump.ends_block = true;
  jump.taken = TakenOf(instruction);
  const int64_t bytes = *offset - function.start_bytes;
  if (bytes % kInstructionBytes != 0) {
    return Status::Corrupt("'" + function.name + "': a branch into the middle of an instruction");
  }
  const int64_t index = bytes / kInstructionBytes;
  if (index >= 0 && index < std::ssize(function.instructions)) jump.target = index;
  return jump;
}

// Depth first from block 0; unreachable blocks have no place.
struct DepthFirst {
  explicit DepthFirst(const std::vector<BasicBlock>& blocks) : place(blocks.size(), -1) {
    std::vector<std::pair<int, size_t>> path;  // block, next edge to follow
    std::vector<bool> seen(blocks.size()), open(blocks.size());
    if (blocks.empty()) return;
    seen[0] = open[0] = true;
    path.emplace_back(0, 0);
    while (!path.empty()) {
      auto& [block, edge] = path.back();
      const auto b = static_cast<size_t>(block);
      if (edge == blocks[b].next.size()) {
        open[b] = false;
        order.push_back(block);
        path.pop_back();
        continue;
      }
      const int to = blocks[b].next[edge++];
      if (open[static_cast<size_t>(to)]) retreating.emplace_back(block, to);
      if (seen[static_cast<size_t>(to)]) continue;
      seen[static_cast<size_t>(to)] = open[static_cast<size_t>(to)] = true;
      path.emplace_back(to, 0);
    }
    std::reverse(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) {
      place[static_cast<size_t>(order[i])] = static_cast<int>(i);
    }
  }

  std::vector<int> order;                       // reachable blocks, reverse postorder
  std::vector<int> place;                       // of each block in `order`; -1: unreachable
  std::vector<std::pair<int, int>> retreating;  // edges to a block that is still open
};

std::vector<std::vector<int>> Predecessors(const std::vector<BasicBlock>& blocks,
                                           const DepthFirst& walk) {
  std::vector<std::vector<int>> from(blocks.size());
  for (int block : walk.order) {
    for (int to : blocks[static_cast<size_t>(block)].next) {
      from[static_cast<size_t>(to)].push_back(block);
    }
  }
  return from;
}

// The closest block that every path to a block passes (Cooper, Harvey and Kennedy, "A Simple, Fast
// Dominance Algorithm"). By place in the walk's order; that of the entry is itself.
std::vector<int> ImmediateDominators(const DepthFirst& walk,
                                     const std::vector<std::vector<int>>& from) {
  std::vector<int> dominator(walk.order.size(), -1);
  if (dominator.empty()) return dominator;
  dominator[0] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 1; i < walk.order.size(); ++i) {
      int common = -1;
      for (int block : from[static_cast<size_t>(walk.order[i])]) {
        int other = walk.place[static_cast<size_t>(block)];
        if (dominator[static_cast<size_t>(other)] < 0) continue;
        if (common < 0) common = other;
        while (common != other) {
          int& later = common > other ? common : other;
          later = dominator[static_cast<size_t>(later)];
        }
      }
      changed |= dominator[i] != common;
      dominator[i] = common;
    }
  }
  return dominator;
}

void AddBlocksOf(int tail, const std::vector<std::vector<int>>& from, Loop* loop) {
  std::vector<int> waiting = {tail};
  while (!waiting.empty()) {
    const int block = waiting.back();
    waiting.pop_back();
    if (std::find(loop->blocks.begin(), loop->blocks.end(), block) != loop->blocks.end()) continue;
    loop->blocks.push_back(block);
    const std::vector<int>& before = from[static_cast<size_t>(block)];
    waiting.insert(waiting.end(), before.begin(), before.end());
  }
}

}  // namespace

bool NeverRuns(const SassInstruction& instruction) {
  return IsConstantFalse(instruction.predicate);
}

bool IsCall(const SassInstruction& instruction) {
  return instruction.Base() == "CALL" &&
         !ParseOffset(instruction.operands.substr(instruction.operands.rfind(',') + 1));
}

Result<std::vector<BasicBlock>> FindBlocks(const SassFunction& function) {
  const auto count = static_cast<int>(function.instructions.size());
  std::vector<Jump> jumps;
  std::vector<bool> leads(function.instructions.size() + 1);  // begins a block
  leads[0] = true;
  for (int i = 0; i < count; ++i) {
    KVANT_ASSIGN_OR_RETURN(const Jump jump,
                           JumpOf(function, function.instructions[static_cast<size_t>(i)]));
    if (jump.ends_block) leads[static_cast<size_t>(i) + 1] = true;
    if (jump.target) leads[static_cast<size_t>(*jump.target)] = true;
    jumps.push_back(jump);
  }
  std::vector<BasicBlock> blocks;
  std::vector<int> block_of(function.instructions.size());
  for (int i = 0; i < count; ++i) {
    if (leads[static_cast<size_t>(i)]) blocks.push_back({i, i, {}});
    block_of[static_cast<size_t>(i)] = static_cast<int>(blocks.size()) - 1;
    blocks.back().end = i + 1;
  }
  for (BasicBlock& block : blocks) {
    const Jump& jump = jumps[static_cast<size_t>(block.end) - 1];
    const bool falls = !jump.ends_block || jump.taken != Taken::kAlways;
    if (jump.target && jump.taken != Taken::kNever) {
      block.next.push_back(block_of[static_cast<size_t>(*jump.target)]);
    }
    if (falls && block.end < count) block.next.push_back(block_of[static_cast<size_t>(block.end)]);
  }
  return blocks;
}

Result<std::vector<Loop>> FindLoops(const std::vector<BasicBlock>& blocks) {
  const DepthFirst walk(blocks);
  const std::vector<std::vector<int>> from = Predecessors(blocks, walk);
  const std::vector<int> dominator = ImmediateDominators(walk, from);
  const auto dominates = [&](int above, int block) {
    int at = walk.place[static_cast<size_t>(block)];
    const int place = walk.place[static_cast<size_t>(above)];
    while (at > place) at = dominator[static_cast<size_t>(at)];
    return at == place;
  };
  std::vector<Loop> loops;
  for (const auto& [tail, head] : walk.retreating) {
    if (!dominates(head, tail)) {
      return Status::Unsupported(
          "a loop is entered at two places, so it has no iterations to count");
    }
    const BasicBlock& block = blocks[static_cast<size_t>(head)];
    if (tail == head && block.end - block.begin == 1) continue;
    auto loop = std::find_if(loops.begin(), loops.end(),
                             [head = head](const Loop& other) { return other.head == head; });
    if (loop == loops.end()) loop = loops.insert(loops.end(), {head, {head}});
    AddBlocksOf(tail, from, &*loop);
  }
  std::sort(loops.begin(), loops.end(),
            [](const Loop& a, const Loop& b) { return a.head < b.head; });
  for (Loop& loop : loops) {
    std::sort(loop.blocks.begin(), loop.blocks.end());
    for (const Loop& inner : loops) {
      if (inner.head != loop.head &&
          std::binary_search(loop.blocks.begin(), loop.blocks.end(), inner.head)) {
        loop.is_innermost = false;
      }
    }
  }
  return loops;
}

}  // namespace kvant
