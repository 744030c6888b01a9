// Flow: the basic blocks of a function and its loops.
#pragma once

#include <cstdint>
#include <vector>

#include "kvant/status.h"
#include "meter/sass.h"

namespace kvant {

// Instructions [begin, end) that are executed one after the other.
struct BasicBlock {
  int begin = 0, end = 0;
  std::vector<int> next;  // blocks that may follow
};

// Blocks in the order of the code. The edges are those that a warp takes whose lanes are together:
// on sm_80 and sm_89 the compiler keeps copies of shuffles for lanes that are not, and as edges of
// the loop they would be counted in every iteration.
//   BRA.DIV    leaves for such a copy: never taken
//   BRA.CONV   passes over one: always taken
//   @!PT BRA   the same as a constant: never taken; @PT is no condition either
// kUnsupported for jumps to computed places, kCorrupt for branches into the middle of nothing.
Result<std::vector<BasicBlock>> FindBlocks(const SassFunction& function);

// Whether an instruction never does anything: "@!UPT UIADD3 URZ,URZ,URZ,URZ", which sm_80's
// compiler puts between matrix products as a pause.
bool NeverRuns(const SassInstruction& instruction);

// Whether an instruction calls a function that returns behind it. What is called has a name:
// compilers use CALL with an offset as a plain jump, out of a loop for example.
bool IsCall(const SassInstruction& instruction);

// A natural loop: what can reach the edge back to its head without passing the head. Loops with the
// same head are one.
struct Loop {
  int head = 0;             // block
  std::vector<int> blocks;  // ascending, head among them
  bool is_innermost = true;
};

// By place of the head. The empty endless branch behind a kernel is none. kUnsupported where a loop
// has two entries, since no count of an iteration exists then.
Result<std::vector<Loop>> FindLoops(const std::vector<BasicBlock>& blocks);

}  // namespace kvant
