#include "policy_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "eval_results.h"
#include "output.h"
#include "rows.h"

namespace kvant::cli {
namespace {

Json RowJson(const PolicyRow& row) {
  const EvalContext& loss = row.loss;
  const bool is_mixed = row.cache.budget_bytes > 0;
  Json json = {{"cache", row.cache.name},
               {"policy", is_mixed ? Json(row.cache.policy) : Json()},
               {"share_percent", is_mixed ? Json(row.cache.share_percent) : Json()},
               {"budget_bytes", is_mixed ? Json(row.cache.budget_bytes) : Json()},
               {"ctx", loss.ctx_tokens},
               {"tokens", loss.tokens},
               {"kv_bytes", loss.kv_bytes},
               {"effective_bits", loss.effective_bits},
               {"mean_kl", loss.mean_kl},
               {"mean_kl_se", loss.mean_kl_se},
               {"same_top1", loss.same_top1},
               {"ppl_ratio", loss.ppl_ratio},
               {"is_front", row.is_front}};
  const auto of_needles = [&](auto TaskCell::*member) {
    return row.needles ? Json((*row.needles).*member) : Json();
  };
  json["needle_length"] = of_needles(&TaskCell::length_tokens);
  json["needle_questions"] = of_needles(&TaskCell::questions);
  json["needle_score"] = of_needles(&TaskCell::score);
  json["needle_base_score"] = of_needles(&TaskCell::base_score);
  json["needle_nll"] = of_needles(&TaskCell::nll);
  return json;
}

std::vector<std::string> Cells(const PolicyRow& row) {
  const EvalContext& loss = row.loss;
  const bool is_mixed = row.cache.budget_bytes > 0;
  return {row.cache.name,
          is_mixed ? row.cache.policy : "-",
          is_mixed ? fmt::format("{} %", row.cache.share_percent) : "-",
          Grouped(loss.kv_bytes),
          fmt::format("{} ± {}", KlText(loss.mean_kl), KlText(loss.mean_kl_se)),
          fmt::format("{:.1f} %", 100 * loss.same_top1),
          row.needles ? fmt::format("{:.0f} %", 100 * row.needles->score) : "-",
          row.needles ? fmt::format("{:.2f}", row.needles->nll) : "-",
          row.is_front ? "*" : ""};
}

}  // namespace

void MarkFront(std::vector<PolicyRow>* rows) {
  std::stable_sort(rows->begin(), rows->end(), [](const PolicyRow& a, const PolicyRow& b) {
    return std::tie(a.loss.kv_bytes, a.loss.mean_kl) < std::tie(b.loss.kv_bytes, b.loss.mean_kl);
  });
  const PolicyRow* best = nullptr;
  for (PolicyRow& row : *rows) {
    row.is_front = best == nullptr || row.loss.mean_kl < best->loss.mean_kl;
    if (row.is_front) best = &row;
  }
}

void PrintPolicyRows(const std::vector<PolicyRow>& rows, const std::string& format,
                     const Json& header) {
  if (format == "json") {
    Json json = header;
    json["results"] = Json::array();
    for (const PolicyRow& row : rows) json["results"].push_back(RowJson(row));
    Write(Dump(json, 2));
    return;
  }
  RowPrinter printer(format, {"cache", "policy", "share", "KV bytes", "mean KL", "same top-1",
                              "needles", "nats", "front"});
  for (const PolicyRow& row : rows) printer.Add(RowJson(row), Cells(row));
  printer.Finish();
}

}  // namespace kvant::cli
