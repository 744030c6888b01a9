#include "tasks_results.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kvant/explain.h"
#include "output.h"
#include "rows.h"

namespace kvant::cli {
namespace {

constexpr const char* kGreedyName = "greedy";

const NamedSpec& CacheOf(const TaskResults& results, size_t test) {
  return results.list.caches[test];
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// How far a share of so many questions strays by chance alone: one standard deviation of a binomial
// distribution, with one right and one wrong answer added, or 3 of 3 would be certain. Of scores of
// several items it is the most.
double Spread(double share, int64_t questions) {
  const double n = static_cast<double>(questions) + 2;
  const double p = (share * static_cast<double>(questions) + 1) / n;
  return std::sqrt(p * (1 - p) / n);
}

// Every field that a row of any task has; the caller fills in those of its own.
Json EmptyRow(const NamedSpec& cache, std::string_view task, int64_t length_tokens) {
  Json row = {{"task", task},
              {"length", length_tokens},
              {"preset", cache.name},
              {"format_k", FormatSpec(cache.spec.k)},
              {"format_v", FormatSpec(cache.spec.v)}};
  for (const char* field :
       {"questions", "score", "score_se", "base_score", "base_passes", "base_right", "kept", "nll",
        "nll_base", "answer_tokens", "mean_equal_tokens", "first_quartile_tokens", "median_tokens",
        "third_quartile_tokens"}) {
    row[field] = nullptr;
  }
  return row;
}

Json CellJson(const TaskResults& results, const TaskCell& c) {
  Json row = EmptyRow(CacheOf(results, static_cast<size_t>(c.test)), TaskKindName(c.kind),
                      c.length_tokens);
  row["questions"] = c.questions;
  row["score"] = c.score;
  row["score_se"] = Spread(c.score, c.questions);
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
  row["score_se"] = Spread(d.share_equal, d.prompts);
  row["answer_tokens"] = results.greedy[test].tokens;
  row["mean_equal_tokens"] = d.mean_tokens;
  row["first_quartile_tokens"] = d.first_quartile_tokens;
  row["median_tokens"] = d.median_tokens;
  row["third_quartile_tokens"] = d.third_quartile_tokens;
  return row;
}

std::vector<Json> RowsJson(const TaskResults& results) {
  std::vector<Json> rows;
  for (const TaskCell& cell : OverDepths(results.scores.cells))
    rows.push_back(CellJson(results, cell));
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

std::string PercentAndSpread(double share, int64_t questions) {
  return fmt::format("{:.0f} ± {:.0f} %", 100 * share, 100 * Spread(share, questions));
}

std::string ScoreAndNats(double score, double nats) {
  return fmt::format("{:.0f} %, {:.3f}", 100 * score, nats);
}

// The cells of one cache, all depths together.
std::vector<TaskCell> CellsOf(const std::vector<TaskCell>& rows, size_t test) {
  std::vector<TaskCell> cells;
  for (const TaskCell& row : rows) {
    if (static_cast<size_t>(row.test) == test) cells.push_back(row);
  }
  return cells;
}

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
  (*report)["sizes"] = {{"needles", results.sizes.needles},
                        {"digits", results.sizes.digits},
                        {"terms", results.sizes.terms},
                        {"fields", results.sizes.fields}};
  (*report)["base"] = results.base_name;
  (*report)["formats_base"] = LayerFormatsJson(results.base, results.geometry.layers);
  (*report)["results"] = RowsJson(results);
  (*report)["cells"] = Json::array();
  for (const TaskCell& cell : results.scores.cells) {
    Json json = CellJson(results, cell);
    json["depth_pct"] = cell.kind == TaskKind::kSums ? Json(nullptr) : Json(cell.depth_percent);
    (*report)["cells"].push_back(std::move(json));
  }
  (*report)["tests"] = Json::array();
  for (size_t i = 0; i < results.list.caches.size(); ++i) {
    (*report)["tests"].push_back(TestJson(results, i));
  }
  (*report)["left_out"] = Json::array();
  for (const TaskLeftOut& l : results.scores.left_out) {
    (*report)["left_out"].push_back(
        {{"task", TaskKindName(l.kind)},
         {"length", l.length_tokens},
         {"base_score", l.base_score ? Json(*l.base_score) : Json(nullptr)}});
  }
  (*report)["skipped"] = Json::array();
  for (const auto& [preset, why] : results.list.skipped) {
    (*report)["skipped"].push_back({{"preset", preset}, {"reason", why}});
  }
}

std::vector<std::string> LeftOutText(const TaskResults& results) {
  std::vector<std::string> lines;
  for (const TaskLeftOut& l : results.scores.left_out) {
    const std::string why = l.base_score ? "scores " + Percent(*l.base_score) +
                                               " there, less than " + Percent(kPassingScore)
                                         : "does not pass at a shorter length";
    lines.push_back(fmt::format("Left out {} at {} tokens: {} {}", TaskKindName(l.kind),
                                Grouped(l.length_tokens), results.base_name, why));
  }
  for (const auto& [preset, why] : results.list.skipped) {
    lines.push_back(fmt::format("Left out {}: {}", preset, why));
  }
  return lines;
}

TextRows TaskMatrix(const TaskResults& results) {
  const std::vector<TaskCell> all = OverDepths(results.scores.cells);
  TextRows rows = {{"score, nats/token"}};
  for (size_t i = 0; i < results.list.caches.size() && !all.empty(); ++i) {
    const std::vector<TaskCell> cells = CellsOf(all, i);
    if (i == 0) rows.push_back({results.base_name + ", the base"});
    rows.push_back({CacheOf(results, i).name});
    for (const TaskCell& c : cells) {
      if (i == 0) {
        rows[0].push_back(fmt::format("{} {}", TaskKindName(c.kind), Grouped(c.length_tokens)));
        rows[1].push_back(ScoreAndNats(c.base_score, c.nll_base));
      }
      rows.back().push_back(ScoreAndNats(c.score, c.nll));
    }
  }
  return rows;
}

TextRows TaskRows(const TaskResults& results) {
  const std::string& base = results.base_name;
  TextRows rows = {{"task", "cache", "length", "questions", "score", base, base + " passes", "kept",
                    "nats/token", base + " nats"}};
  for (const TaskCell& c : OverDepths(results.scores.cells)) {
    rows.push_back({std::string(TaskKindName(c.kind)),
                    CacheOf(results, static_cast<size_t>(c.test)).name, Grouped(c.length_tokens),
                    Grouped(int64_t{c.questions}), PercentAndSpread(c.score, c.questions),
                    Percent(c.base_score), BasePasses(c) ? "yes" : "no",
                    fmt::format("{} of {}", c.kept, c.base_right), fmt::format("{:.3f}", c.nll),
                    fmt::format("{:.3f}", c.nll_base)});
  }
  return rows;
}

TextRows GreedyRows(const TaskResults& results) {
  TextRows rows = {{"greedy", "prompts", "of tokens", "never diverge", "in tokens", "median",
                    "mean", "middle half"}};
  for (size_t i = 0; i < results.greedy.size(); ++i) {
    const DivergenceSummary d = SummariseDivergence(results.greedy[i]);
    rows.push_back({CacheOf(results, i).name, Grouped(d.prompts),
                    Grouped(results.greedy_prompt_tokens),
                    PercentAndSpread(d.share_equal, d.prompts), Grouped(results.greedy[i].tokens),
                    Grouped(d.median_tokens), fmt::format("{:.1f}", d.mean_tokens),
                    fmt::format("{}–{}", d.first_quartile_tokens, d.third_quartile_tokens)});
  }
  return rows;
}

void PrintTaskRows(const TaskResults& results, const std::string& format) {
  if (format != "table" && format != "md") {
    RowPrinter printer(format, {});
    for (const Json& row : RowsJson(results)) printer.Add(row, {});
    printer.Finish();
    for (const std::string& line : LeftOutText(results)) Note(line);
    return;
  }
  bool first = true;
  for (const TextRows& rows : {TaskMatrix(results), TaskRows(results), GreedyRows(results)}) {
    if (rows.size() == 1) continue;
    Table table(rows[0]);
    for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
    Write(first ? "" : "\n");
    Write(format == "md" ? table.Markdown() : table.Text(""));
    first = false;
  }
  for (const std::string& line : LeftOutText(results)) Print("\n{}\n", line);
}

}  // namespace kvant::cli
