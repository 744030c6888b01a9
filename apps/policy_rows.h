// What kvant policies found: a line a cache, and which of them no other one beats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvant/eval.h"
#include "kvant/tasks.h"
#include "report.h"

namespace kvant::cli {

// A cache of one width, or a policy over pools at a share of the bytes.
struct PolicyCache {
  std::string name;          // the preset, or the pools
  std::string policy;        // empty: one width
  int share_percent = 100;   // of what int4 stores
  KvSpec spec;               // at the length of the text
  KvSpec task_spec;          // at that of the needles
  int64_t budget_bytes = 0;  // of spec; 0: one width
};

struct PolicyRow {
  PolicyCache cache;
  EvalContext loss = {};
  std::optional<TaskCell> needles =
      {};  // all depths; none were asked, or the base does not find them
  bool is_front = false;
};

// Marks the rows that no other beats in both bytes and KL; in order of bytes.
void MarkFront(std::vector<PolicyRow>* rows);

void PrintPolicyRows(const std::vector<PolicyRow>& rows, const std::string& format,
                     const Json& header);

}  // namespace kvant::cli
