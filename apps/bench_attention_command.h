// kvant bench attention, a command inside bench.
#pragma once

#include "command.h"

namespace kvant::cli {

void AddBenchAttention(CLI::App& bench, Action* action);

}  // namespace kvant::cli
