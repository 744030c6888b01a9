// kvant bench mixed, a command inside bench.
#pragma once

#include "command.h"

namespace kvant::cli {

void AddBenchMixed(CLI::App& bench, Action* action);

}  // namespace kvant::cli
