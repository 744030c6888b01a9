// The subcommands. Each adds itself to the command line and, when chosen, leaves what is to be done
// in `action`; main runs it once parsing is over.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace kvant::cli {

using Action = std::function<int()>;  // returns the exit code, or throws Failure

void AddBench(CLI::App& root, Action* action);
void AddCalibrate(CLI::App& root, Action* action);
void AddEval(CLI::App& root, Action* action);
void AddExplain(CLI::App& root, Action* action);
void AddHeads(CLI::App& root, Action* action);
void AddInspect(CLI::App& root, Action* action);
void AddMeter(CLI::App& root, Action* action);
void AddPolicies(CLI::App& root, Action* action);
void AddRoofline(CLI::App& root, Action* action);
void AddRun(CLI::App& root, Action* action);
void AddTasks(CLI::App& root, Action* action);

}  // namespace kvant::cli
