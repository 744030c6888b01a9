// The page of kvant tasks --report: the tables, a grid of lengths and depths a task and cache, and
// how long greedy answers stay equal.
#pragma once

#include <string>

#include "tasks_results.h"

namespace kvant::cli {

// header: what the JSON of the run begins with. model_name may be empty.
std::string TasksReportHtml(const std::string& model_name, const Json& header,
                            const TaskResults& results);

}  // namespace kvant::cli
