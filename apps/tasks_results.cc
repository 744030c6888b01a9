#include "tasks_results.h"

#include <fmt/core.h>

#include <algorithm>

#include "kvant/explain.h"
#include "output.h"
#include "rows.h"

namespace kvant::cli {
namespace {

constexpr const char* kGreedyName = "greedy";

const NamedSpec& CacheOf(const TaskResults& results, size_t test) {
  return results.list.caches[test];
}

// Every field that a row of any task has; the caller fills in those of its own.
Json EmptyRow(const NamedSpec& cache, std::string_view task, int64_t length_tokens) {
  Json row = {{"task", task},
              {"length", length_tokens},
              {"preset", cache.name},
              {"format_k", FormatSpec(cache.spec.k)},
              {"format_v", FormatSpec(cache.spec.v)}};
  for (const char* field : {"questions", "score", "base_score", "base_passes", "base_right", "kept",
                            "nll", "nll_base", "answer_tokens", "mean_equal_tokens",
                            "first_quartile_tokens", "median_tokens", "third_quartile_tokens"}) {
    row[field] = nullptr;
  }
  return row;
}

Json CellJson(const TaskResults& results, const TaskCell& c) {
  Json row = EmptyRow(CacheOf(results, static_cast<size_t>(c.test)), TaskKindName(c.kind),
                      c.length_tokens);
  row["questions"] = c.questions;
  row["score"] = c.score;
  row["base_score"] = c.base_score;
  row["base_passes"] = BasePasses(c);
  row["base_right"] = c.base_right;
  row["kept"] = c.kept;
  row["nll"] = c.nll;
  row["nll_base"] = c.nll_base;
  return row;
}

Json GreedyJson(const TaskResults& results, size_t test) {
  const DivergenceSummary d = SummariseDivergence(results.greedy[test]);
  Json row = EmptyRow(CacheOf(results, test), kGreedyName, results.greedy_prompt_tokens);
  row["questions"] = d.prompts;
  row["score"] = d.share_equal;
  row["answer_tokens"] = results.greedy[test].tokens;
  row["mean_equal_tokens"] = d.mean_tokens;
  row["first_quartile_tokens"] = d.first_quartile_tokens;
  row["median_tokens"] = d.median_tokens;
  row["third_quartile_tokens"] = d.third_quartile_tokens;
  return row;
}

std::vector<Json> RowsJson(const TaskResults& results) {
  std::vector<Json> rows;
  for (const TaskCell& cell : OverDepths(results.cells)) rows.push_back(CellJson(results, cell));
  for (size_t i = 0; i < results.greedy.size(); ++i) rows.push_back(GreedyJson(results, i));
  return rows;
}

Json TestJson(const TaskResults& results, size_t test) {
  const NamedSpec& cache = CacheOf(results, test);
  Json json = {{"preset", cache.name},
               {"formats", LayerFormatsJson(cache.spec, results.geometry.layers)},
               {"kv_sinks_tokens", cache.spec.sinks_tokens},
               {"kv_window_tokens", cache.spec.window_tokens},
               {"bytes_per_token", Number(PageBytesPerToken(results.geometry, cache.spec))},
               {"first_divergence", nullptr}};
  if (!results.greedy.empty()) json["first_divergence"] = results.greedy[test].first_divergence;
  return json;
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace

std::vector<TaskCell> OverDepths(const std::vector<TaskCell>& cells) {
  std::vector<TaskCell> rows;
  for (const TaskCell& cell : cells) {
    const auto same = [&](const TaskCell& row) {
      return row.kind == cell.kind && row.length_tokens == cell.length_tokens &&
             row.test == cell.test;
    };
    const auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) {
      rows.push_back(cell);
      continue;
    }
    const double share = static_cast<double>(cell.questions) / (row->questions + cell.questions);
    for (double TaskCell::*mean :
         {&TaskCell::score, &TaskCell::base_score, &TaskCell::nll, &TaskCell::nll_base}) {
      (*row).*mean += share * (cell.*mean - (*row).*mean);
    }
    row->questions += cell.questions;
    row->base_right += cell.base_right;
    row->kept += cell.kept;
  }
  return rows;
}

void AddTaskResults(const TaskResults& results, Json* report) {
  (*report)["seed"] = results.seed;
  (*report)["base"] = results.base_name;
  (*report)["formats_base"] = LayerFormatsJson(results.base, results.geometry.layers);
  (*report)["results"] = RowsJson(results);
  (*report)["cells"] = Json::array();
  for (const TaskCell& cell : results.cells) {
    Json json = CellJson(results, cell);
    json["depth_pct"] = cell.kind == TaskKind::kSums ? Json(nullptr) : Json(cell.depth_percent);
    (*report)["cells"].push_back(std::move(json));
  }
  (*report)["tests"] = Json::array();
  for (size_t i = 0; i < results.list.caches.size(); ++i) {
    (*report)["tests"].push_back(TestJson(results, i));
  }
  (*report)["skipped"] = Json::array();
  for (const auto& [preset, why] : results.list.skipped) {
    (*report)["skipped"].push_back({{"preset", preset}, {"reason", why}});
  }
}

TextRows TaskRows(const TaskResults& results) {
  const std::string& base = results.base_name;
  TextRows rows = {{"task", "cache", "length", "questions", "score", base, base + " passes", "kept",
                    "nats/token", base + " nats"}};
  for (const TaskCell& c : OverDepths(results.cells)) {
    rows.push_back({std::string(TaskKindName(c.kind)),
                    CacheOf(results, static_cast<size_t>(c.test)).name, Grouped(c.length_tokens),
                    Grouped(int64_t{c.questions}), Percent(c.score), Percent(c.base_score),
                    BasePasses(c) ? "yes" : "no", fmt::format("{} of {}", c.kept, c.base_right),
                    fmt::format("{:.3f}", c.nll), fmt::format("{:.3f}", c.nll_base)});
  }
  return rows;
}

TextRows GreedyRows(const TaskResults& results) {
  TextRows rows = {{"greedy", "prompts", "of tokens", "never diverge", "in tokens", "median",
                    "mean", "middle half"}};
  for (size_t i = 0; i < results.greedy.size(); ++i) {
    const DivergenceSummary d = SummariseDivergence(results.greedy[i]);
    rows.push_back({CacheOf(results, i).name, Grouped(d.prompts),
                    Grouped(results.greedy_prompt_tokens), Percent(d.share_equal),
                    Grouped(results.greedy[i].tokens), Grouped(d.median_tokens),
                    fmt::format("{:.1f}", d.mean_tokens),
                    fmt::format("{}–{}", d.first_quartile_tokens, d.third_quartile_tokens)});
  }
  return rows;
}

void PrintTaskRows(const TaskResults& results, const std::string& format) {
  if (format != "table" && format != "md") {
    RowPrinter printer(format, {});
    for (const Json& row : RowsJson(results)) printer.Add(row, {});
    printer.Finish();
    return;
  }
  bool first = true;
  for (const TextRows& rows : {TaskRows(results), GreedyRows(results)}) {
    if (rows.size() == 1) continue;
    Table table(rows[0]);
    for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
    Write(first ? "" : "\n");
    Write(format == "md" ? table.Markdown() : table.Text(""));
    first = false;
  }
}

}  // namespace kvant::cli
