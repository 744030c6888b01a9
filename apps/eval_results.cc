#include "eval_results.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "output.h"
#include "rows.h"

namespace kvant::cli {
namespace {

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json BucketJson(const EvalBucket& b) {
  return {{"first_position", b.first_position},
          {"end_position", b.end_position},
          {"tokens", b.tokens},
          {"mean_kl", b.mean_kl},
          {"floor_kl", OrNull(b.floor_kl)},
          {"mean_nll", b.mean_nll},
          {"mean_nll_base", b.mean_nll_base}};
}

Json GreedyJson(const GreedyAgreement& g) {
  return {{"prompts", g.first_divergence.size()},
          {"tokens", g.tokens},
          {"share_equal", g.share_equal},
          {"mean_equal_tokens", g.mean_equal_tokens},
          {"first_divergence", g.first_divergence}};
}

Json BytesJson(const EvalTest& test) {
  return test.bytes_per_token ? Number(*test.bytes_per_token) : Json(nullptr);
}

Json TestJson(const EvalTest& test, int layers) {
  return {{"preset", test.name},
          {"formats", LayerFormatsJson(test.spec, layers)},
          {"kv_sinks_tokens", test.spec.sinks_tokens},
          {"kv_window_tokens", test.spec.window_tokens},
          {"bytes_per_token", BytesJson(test)},
          {"ns_per_cached_token", OrNull(test.ns_per_cached_token)},
          {"greedy", test.greedy ? GreedyJson(*test.greedy) : Json(nullptr)}};
}

std::vector<std::string> Cells(const EvalTest& test, const EvalContext& c) {
  return {test.name,
          SideText(test.spec, Side::kK),
          SideText(test.spec, Side::kV),
          Grouped(c.ctx_tokens),
          std::string(EvalModeName(c.mode)),
          Grouped(c.tokens),
          fmt::format("{:.2f}", c.effective_bits),
          BytesText(test),
          fmt::format("{} ± {}", KlText(c.mean_kl), KlText(c.mean_kl_se)),
          c.floor ? KlText(c.floor->mean_kl) : "-",
          KlText(c.median_kl),
          KlText(c.p99_kl),
          KlText(c.p999_kl),
          fmt::format("{:.3f}", c.max_kl),
          fmt::format("{:.2f} %", 100 * c.same_top1),
          fmt::format("{:.4f} ± {:.3f}", c.ppl, c.ppl * c.mean_nll_se),
          fmt::format("{:.4f}", c.ppl_base),
          fmt::format("{:.5f}", c.ppl_ratio),
          test.ns_per_cached_token ? fmt::format("{:.1f}", *test.ns_per_cached_token) : "-"};
}

}  // namespace

std::string KlText(double kl) {
  if (kl == 0) return "0";
  if (std::fabs(kl) < 1e-4) return fmt::format("{:.1e}", kl);
  const int digits = static_cast<int>(std::ceil(1 - std::log10(std::fabs(kl))));
  return fmt::format("{:.{}f}", kl, std::clamp(digits, 3, 6));
}

Json EvalContextJson(const EvalResults& results, const EvalContext& c) {
  const EvalTest& test = results.tests[static_cast<size_t>(c.test)];
  const auto floor = [&](double EvalFloor::*member) {
    return c.floor ? Json((*c.floor).*member) : Json(nullptr);
  };
  Json json = {{"preset", test.name},
               {"format_k", SideText(test.spec, Side::kK)},
               {"format_v", SideText(test.spec, Side::kV)},
               {"ctx", c.ctx_tokens},
               {"mode", EvalModeName(c.mode)},
               {"tokens", c.tokens},
               {"mean_kl", c.mean_kl},
               {"mean_kl_se", c.mean_kl_se},
               {"median_kl", c.median_kl},
               {"p99_kl", c.p99_kl},
               {"p999_kl", c.p999_kl},
               {"max_kl", c.max_kl},
               {"max_kl_token", c.max_kl_token},
               {"same_top1", c.same_top1},
               {"ppl", c.ppl},
               {"ppl_base", c.ppl_base},
               {"ppl_ratio", c.ppl_ratio},
               {"mean_nll", c.mean_nll},
               {"mean_nll_se", c.mean_nll_se},
               {"mean_nll_base", c.mean_nll_base},
               {"floor_kl", floor(&EvalFloor::mean_kl)},
               {"floor_kl_se", floor(&EvalFloor::mean_kl_se)},
               {"floor_p99_kl", floor(&EvalFloor::p99_kl)},
               {"floor_p999_kl", floor(&EvalFloor::p999_kl)},
               {"floor_same_top1", floor(&EvalFloor::same_top1)},
               {"floor_ppl_ratio", floor(&EvalFloor::ppl_ratio)},
               {"effective_bits", c.effective_bits},
               {"kv_bytes", c.kv_bytes},
               {"effective_bits_base", OrNull(c.effective_bits_base)},
               {"bytes_per_token", BytesJson(test)},
               {"ns_per_cached_token", OrNull(test.ns_per_cached_token)}};
  json["by_position"] = Json::array();
  for (const EvalBucket& bucket : c.by_position) json["by_position"].push_back(BucketJson(bucket));
  return json;
}

void AddEvalResults(const EvalResults& results, Json* report) {
  const bool from_file = !results.base_file.empty();
  (*report)["base_file"] = from_file ? Json(results.base_file) : Json(nullptr);
  (*report)["formats_base"] =
      from_file ? Json(nullptr) : LayerFormatsJson(results.base, results.layers);
  if (results.tests.size() == 1) {  // of one cache, as of run: where scripts look for it
    const Json test = TestJson(results.tests[0], results.layers);
    for (const char* field : {"formats", "kv_sinks_tokens", "kv_window_tokens", "greedy"}) {
      (*report)[field] = test[field];
    }
  }
  (*report)["contexts"] = Json::array();
  for (const EvalContext& context : results.contexts) {
    (*report)["contexts"].push_back(EvalContextJson(results, context));
  }
  (*report)["tests"] = Json::array();
  for (const EvalTest& test : results.tests) {
    (*report)["tests"].push_back(TestJson(test, results.layers));
  }
  (*report)["skipped"] = Json::array();
  for (const auto& [preset, why] : results.skipped) {
    (*report)["skipped"].push_back({{"preset", preset}, {"reason", why}});
  }
}

std::string BytesText(const EvalTest& test) {
  return test.bytes_per_token ? Grouped(std::round(*test.bytes_per_token)) : "-";
}

void PrintEvalRows(const EvalResults& results, const std::string& format) {
  RowPrinter printer(format, {"preset", "K", "V", "ctx", "mode", "tokens", "bits", "B/token",
                              "mean KL", "floor", "median", "99 %", "99.9 %", "max", "same top-1",
                              "perplexity", "base", "ratio", "ns/token"});
  for (const EvalContext& context : results.contexts) {
    Json row = EvalContextJson(results, context);
    if (format == "csv") row.erase("by_position");
    printer.Add(row, Cells(results.tests[static_cast<size_t>(context.test)], context));
  }
  printer.Finish();
}

std::string PositionsText(const EvalResults& results, const EvalContext& c) {
  Table table({"positions", "tokens", "mean KL", "floor", "perplexity", "base"});
  for (const EvalBucket& b : c.by_position) {
    table.Add({fmt::format("{}–{}", b.first_position, b.end_position - 1), Grouped(b.tokens),
               KlText(b.mean_kl), b.floor_kl ? KlText(*b.floor_kl) : "-",
               fmt::format("{:.3f}", std::exp(b.mean_nll)),
               fmt::format("{:.3f}", std::exp(b.mean_nll_base))});
  }
  return fmt::format("\nBy position, {}, context {}, {}\n",
                     results.tests[static_cast<size_t>(c.test)].name, c.ctx_tokens,
                     EvalModeName(c.mode)) +
         table.Text();
}

std::string GreedyText(const EvalTest& test) {
  const GreedyAgreement& g = *test.greedy;
  return fmt::format(
      "\nGreedy answers with {}: {} of {} equal over {} tokens; on average the first {:.1f} "
      "agree.\n",
      test.name, std::count(g.first_divergence.begin(), g.first_divergence.end(), g.tokens),
      g.first_divergence.size(), g.tokens, g.mean_equal_tokens);
}

}  // namespace kvant::cli
