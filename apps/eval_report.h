// The page of kvant eval --report: tables and plots of what was found, whole in one file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval_results.h"
#include "kvant/eval.h"

namespace kvant::cli {

// One cell of a needle grid.
struct GridCell {
  int64_t length_tokens = 0;  // of the haystack
  double depth = 0;           // where the needle lies, 0 (start) to 1 (end)
  std::string kind;           // what was asked: one grid a kind and preset
  double score = 0;           // 0 to 1
  std::string preset;         // may be empty
};

struct EvalReport {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // model, text, machine: name and value
  EvalResults results;
  std::optional<KeyRanges> keys;
  std::vector<GridCell> grid;  // empty: no such section
};

std::string EvalReportHtml(const EvalReport& report);

}  // namespace kvant::cli
