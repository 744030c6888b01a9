#include "bench_rows.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "kvant/explain.h"
#include "options.h"
#include "statistics.h"

namespace kvant::cli {
namespace {

// A user waits for the slowest token, not for the mean one.
void AddSteps(const std::vector<double>& steps_ns, Json* row) {
  const auto add = [&](const char* name, double part) {
    (*row)[name] = steps_ns.empty() ? Json(nullptr) : Json(std::llround(Quantile(steps_ns, part)));
  };
  add("step_median_ns", 0.5);
  add("step_p99_ns", 0.99);
  add("step_max_ns", 1);
}

}  // namespace

std::string BenchTest::Name(int64_t depth, int64_t shared) const {
  std::string name =
      prompt_tokens > 0 ? fmt::format("pp{}", prompt_tokens) : fmt::format("tg{}", answer_tokens);
  if (parallel > 1) name += fmt::format(" x{}", parallel);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return parallel > 1 && shared < depth ? name + fmt::format(" s{}", shared) : name;
}

BenchRows::BenchRows(const std::string& format, const ModelFlags& flags, const Model& model,
                     double read_bytes_per_s)
    : flags_(flags),
      model_(model),
      read_bytes_per_s_(read_bytes_per_s),
      printer_(format, {"type_k", "type_v", "test", "t/s", "step 99 %", "max", "KV B/token",
                        "KV GB/s", "roofline"}),
      header_(Header(flags.threads)) {
  AddModel(model.path(), model.file_bytes(), model.file_hash(), &header_);
}

std::string BenchRows::ModelType() const {
  std::string type = fmt::format("{} {:.0f}M", model_.architecture(),
                                 static_cast<double>(model_.parameters()) / 1e6);
  const auto& types = model_.weight_types();
  const auto most = std::max_element(types.begin(), types.end(), [](const auto& a, const auto& b) {
    return a.file_bytes < b.file_bytes;
  });
  return most == types.end() ? type : type + " " + most->type;
}

Json BenchRows::Row(const BenchTest& test, int64_t depth, int64_t shared_tokens, const KvSpec& spec,
                    const std::vector<double>& samples_ns,
                    const std::vector<double>& tokens_per_s) const {
  const KvGeometry g = model_.geometry();
  const double kv_bytes = PageBytesPerToken(g, spec);
  Json row = header_;
  row.update(
      Json{{"build_commit", header_["commit"]},
           {"cpu_info", header_["cpu"]},
           {"model_filename", model_.path()},
           {"model_type", ModelType()},
           {"model_size", model_.file_bytes()},
           {"model_n_params", model_.parameters()},
           {"n_batch", flags_.chunk_tokens},
           {"n_threads", flags_.threads},
           {"type_k", SideText(spec, Side::kK)},
           {"type_v", SideText(spec, Side::kV)},
           {"formats", LayerFormatsJson(spec, g.layers)},
           {"flash_attn", true},
           {"test", test.Name(depth, shared_tokens)},
           {"n_prompt", test.prompt_tokens},
           {"n_gen", test.answer_tokens},
           {"n_depth", depth},
           {"n_parallel", test.parallel},
           {"n_shared", shared_tokens},
           {"test_time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
           {"avg_ns", std::llround(Mean(samples_ns))},
           {"stddev_ns", std::llround(StandardDeviation(samples_ns))},
           {"median_ns", std::llround(Median(samples_ns))},
           {"avg_ts", Mean(tokens_per_s)},
           {"stddev_ts", StandardDeviation(tokens_per_s)},
           {"samples_ts", tokens_per_s},
           {"kv_bytes_per_token", Number(kv_bytes)},
           {"kv_effective_bits", Number(8 * kv_bytes / static_cast<double>(g.values_per_token()))},
           {"read_bw_GBps", read_bytes_per_s_ / 1e9}});
  return row;
}

// What a step must read; a prompt's chunks are bound by arithmetic, so they have no such figure.
void BenchRows::AddReading(const BenchTest& test, double median_ns, double kv_read_bytes,
                           Json* row) const {
  for (const char* name :
       {"kv_bytes_read_per_step", "weight_bytes_read_per_step", "kv_read_GBps", "roofline_pct"}) {
    (*row)[name] = nullptr;
  }
  if (test.answer_tokens == 0) return;
  const double step_s = median_ns / 1e9 / static_cast<double>(test.answer_tokens);
  const double weight_bytes = static_cast<double>(model_.weight_bytes_read_per_token());
  (*row)["kv_bytes_read_per_step"] = Number(kv_read_bytes);
  (*row)["weight_bytes_read_per_step"] = Number(weight_bytes);
  (*row)["kv_read_GBps"] = kv_read_bytes / step_s / 1e9;
  (*row)["roofline_pct"] = 100 * (kv_read_bytes + weight_bytes) / step_s / read_bytes_per_s_;
}

void BenchRows::Add(const BenchTest& test, int64_t depth, int64_t shared_tokens, const KvSpec& spec,
                    const std::vector<int64_t>& samples_ns, const std::vector<double>& steps_ns,
                    double kv_read_bytes, const std::optional<MachineLoad>& load) {
  const std::vector<double> samples(samples_ns.begin(), samples_ns.end());
  std::vector<double> tokens_per_s;
  for (double ns : samples) tokens_per_s.push_back(1e9 * static_cast<double>(test.tokens()) / ns);
  Json row = Row(test, depth, shared_tokens, spec, samples, tokens_per_s);
  row["samples_ns"] = samples_ns;
  AddSteps(steps_ns, &row);
  AddReading(test, Median(samples), kv_read_bytes, &row);
  busy_.Add(load, samples, &row);
  const auto cell = [&](const char* field, const char* pattern) {
    return row[field].is_null() ? std::string()
                                : fmt::format(fmt::runtime(pattern), row[field].get<double>());
  };
  const auto ms = [&](const char* field) {
    return row[field].is_null() ? std::string()
                                : fmt::format("{:.2f} ms", row[field].get<double>() / 1e6);
  };
  printer_.Add(
      row,
      {SideText(spec, Side::kK), SideText(spec, Side::kV), test.Name(depth, shared_tokens),
       fmt::format("{:.2f} ± {:.2f}", Mean(tokens_per_s), StandardDeviation(tokens_per_s)),
       ms("step_p99_ns"), ms("step_max_ns"), Grouped(PageBytesPerToken(model_.geometry(), spec)),
       cell("kv_read_GBps", "{:.2f}"), cell("roofline_pct", "{:.0f} %")});
}

void BenchRows::Finish(bool quiet) {
  printer_.Finish();
  if (!quiet) busy_.Print();
}

}  // namespace kvant::cli
