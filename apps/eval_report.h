// The page of kvant eval --report: tables and plots of what was found, whole in one file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval_results.h"
#include "kvant/eval.h"

namespace kvant::cli {

struct EvalReport {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // model, text, machine: name and value
  EvalResults results;
  std::optional<KeyRanges> keys;
};

std::string EvalReportHtml(const EvalReport& report);

}  // namespace kvant::cli
