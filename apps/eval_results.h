// What kvant eval found, and how it is printed: rows of tests, contexts and modes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvant/eval.h"
#include "report.h"

namespace kvant::cli {

// One cache that was compared with the base.
struct EvalTest {
  std::string name;  // as the user or the list of presets calls it
  KvSpec spec;
  // Stored pages alone, all layers; null where each token has a width of its own.
  std::optional<double> bytes_per_token = std::nullopt;
  // Attention of a decode step over a cache as deep as the longest context, by its tokens.
  std::optional<double> ns_per_cached_token = std::nullopt;
  std::optional<GreedyAgreement> greedy = std::nullopt;
};

struct EvalResults {
  KvSpec base;
  std::string base_file;  // empty: the base is a cache
  int layers = 0;
  std::vector<EvalTest> tests;
  std::vector<EvalContext> contexts;                         // their `test` is an index into tests
  std::vector<std::pair<std::string, std::string>> skipped;  // preset, why
};

Json EvalContextJson(const EvalResults& results, const EvalContext& context);
// contexts, tests, skipped and the base's formats.
void AddEvalResults(const EvalResults& results, Json* report);

// The table of all rows in one of bench's formats but json.
void PrintEvalRows(const EvalResults& results, const std::string& format);
std::string PositionsText(const EvalResults& results, const EvalContext& context);
std::string GreedyText(const EvalTest& test);
// Of a token; "-" where it is not known.
std::string BytesText(const EvalTest& test);

// "0.0123", "0.00012", "7.3e-07": at least two digits that say something.
std::string KlText(double kl);

}  // namespace kvant::cli
