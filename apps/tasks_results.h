// What kvant tasks found, and how it is printed: rows of tasks, lengths and caches.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cache_list.h"
#include "kvant/eval.h"
#include "kvant/tasks.h"
#include "report.h"

namespace kvant::cli {

struct TaskResults {
  std::string base_name;
  KvSpec base;
  KvGeometry geometry = {};
  CacheList list;  // its caches are what `test` of the cells counts
  uint64_t seed = 0;
  TaskSizes sizes = {};
  TaskScores scores = {};
  int64_t greedy_prompt_tokens = 0;
  std::vector<GreedyAgreement> greedy = {};  // one a cache, or none
};

inline bool BasePasses(const TaskCell& cell) { return cell.base_score >= kPassingScore; }

// One cell a task, length and cache, with all depths put together.
std::vector<TaskCell> OverDepths(const std::vector<TaskCell>& cells);

// results[], cells[], tests[], left_out[] and skipped[].
void AddTaskResults(const TaskResults& results, Json* report);

// Rows and greedy answers in one of bench's formats but json.
void PrintTaskRows(const TaskResults& results, const std::string& format);

// What was not asked, and why: lengths at which the base does not pass, presets that do not fit.
std::vector<std::string> LeftOutText(const TaskResults& results);

// Tables as people read them, head and lines: scores and nats a token with a line a cache and a
// column a task and length; the rows; greedy answers.
using TextRows = std::vector<std::vector<std::string>>;
TextRows TaskMatrix(const TaskResults& results);
TextRows TaskRows(const TaskResults& results);
TextRows GreedyRows(const TaskResults& results);

}  // namespace kvant::cli
