// Loop count: the instructions of a function's innermost loops, by pipe, and the bytes they load.
#pragma once

#include <vector>

#include "kvant/meter.h"
#include "meter/sass.h"

namespace kvant {

// Every innermost loop of the function, those with payload first, and of these the one that reads
// most. Of the options only the bytes of an iteration are read. kUnsupported for an opcode that is
// not known; kInvalidArgument where no loop loads what was declared, with what the loops do load.
Result<std::vector<LoopCount>> CountLoops(const SassFunction& function,
                                          const MeterOptions& declared);

// What the local loads and stores of the whole function move.
int64_t SpillBytes(const SassFunction& function);

}  // namespace kvant
