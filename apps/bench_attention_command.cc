#include "bench_attention_command.h"

#include <fmt/core.h>

#include <memory>
#include <optional>

#include "busy_report.h"
#include "failure.h"
#include "kvant/bench_attention.h"
#include "kvant/machine_load.h"
#include "kvant/roofline.h"
#include "options.h"
#include "rows.h"
#include "statistics.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant bench attention --shape 30,3,64,9 --formats f16,int8,int4,int2 --depth 1024,8192\n"
    "  kvant bench attention --shape 32,8,128,32 --formats f16,int4 --isa avx2,avx512 -o jsonl\n"
    "\n"
    "A step is the attention of one new token in every layer; GB/s counts the bytes of the cache "
    "that it reads.\n"
    "Times f16 says how many times faster than f16 that is, with the middle half of the "
    "repetitions; it needs\n"
    "f16 among the formats. Bytes that fit the processor's caches can be read faster than memory "
    "gives them:\n"
    "more than 100 % is then no error.";

struct AttentionOptions {
  std::string shape = "30,3,64,9", formats = "f16,int8,int4,int3,int2", depths = "1024,8192", isas;
  KvFlags kv;
  OutputFlags output;
  int64_t batch = 1;
  int threads = 0;
  int repetitions = 15;
  bool probabilities = false;
};

// How much longer f16 took in the same repetition: the middle and the middle half.
struct Ratio {
  double median = 0, p25 = 0, p75 = 0;
};
Ratio RatioOf(const AttentionBenchRow& f16, const AttentionBenchRow& row) {
  std::vector<double> ratios;
  for (size_t i = 0; i < row.samples_ns.size(); ++i) {
    ratios.push_back(static_cast<double>(f16.samples_ns[i]) /
                     static_cast<double>(row.samples_ns[i]));
  }
  return {Median(ratios), Quantile(ratios, 0.25), Quantile(ratios, 0.75)};
}

const AttentionBenchRow* FindF16(const std::vector<AttentionBenchRow>& rows,
                                 const AttentionBenchRow& like) {
  for (const AttentionBenchRow& row : rows) {
    if (row.depth_tokens == like.depth_tokens && row.isa == like.isa && row.spec.k == kFormatF16 &&
        row.spec.v == kFormatF16) {
      return &row;
    }
  }
  return nullptr;
}

void AddRow(const AttentionBenchOptions& o, const std::vector<AttentionBenchRow>& all,
            const AttentionBenchRow& row, const ReadBandwidth& bandwidth,
            const std::optional<MachineLoad>& load, BusyReport* busy, RowPrinter* printer) {
  const double ns = static_cast<double>(row.median_ns);
  const double gigabytes = static_cast<double>(row.kv_bytes) / ns;
  const double limit = bandwidth.best_bytes_per_s / 1e9;
  const double cached = static_cast<double>(row.depth_tokens * o.batch);
  const std::vector<double> samples(row.samples_ns.begin(), row.samples_ns.end());
  const std::string spread =
      fmt::format("± {:.0f} %", 100 * StandardDeviation(samples) / Mean(samples));
  Json json = Header(o.threads);
  json.update(Json{{"format_k", SideText(row.spec, Side::kK)},
                   {"format_v", SideText(row.spec, Side::kV)},
                   {"formats", LayerFormatsJson(row.spec, o.geometry.layers)},
                   {"isa", IsaName(row.isa)},
                   {"layers", o.geometry.layers},
                   {"head_dim", o.geometry.head_dim},
                   {"q_heads", o.geometry.q_heads},
                   {"kv_heads", o.geometry.kv_heads},
                   {"depth", row.depth_tokens},
                   {"batch", o.batch},
                   {"threads", o.threads},
                   {"probabilities", o.probabilities},
                   {"kv_bytes", row.kv_bytes},
                   {"median_ns", row.median_ns},
                   {"samples_ns", row.samples_ns},
                   {"ns_per_cached_token", ns / cached},
                   {"GBps", gigabytes},
                   {"read_bw_GBps", limit},
                   {"read_bw_median_GBps", bandwidth.median_bytes_per_s / 1e9},
                   {"roofline_pct", 100 * gigabytes / limit},
                   {"ratio_f16", nullptr},
                   {"ratio_f16_p25", nullptr},
                   {"ratio_f16_p75", nullptr}});
  if (o.geometry.is_latent()) json["latent_dim"] = o.geometry.latent_dim;
  std::string ratio_cell = "-";
  if (const AttentionBenchRow* f16 = FindF16(all, row)) {
    const Ratio ratio = RatioOf(*f16, row);
    json["ratio_f16"] = ratio.median;
    json["ratio_f16_p25"] = ratio.p25;
    json["ratio_f16_p75"] = ratio.p75;
    ratio_cell = fmt::format("{:.2f} ({:.2f}–{:.2f})", ratio.median, ratio.p25, ratio.p75);
  }
  busy->Add(load, samples, &json);
  printer->Add(json, {SideText(row.spec, Side::kK), SideText(row.spec, Side::kV),
                      std::string(IsaName(row.isa)), Grouped(row.depth_tokens),
                      HumanBytes(static_cast<double>(row.kv_bytes)),
                      fmt::format("{:.1f} {}", ns / 1e3, spread),
                      fmt::format("{:.2f}", ns / cached), fmt::format("{:.2f}", gigabytes),
                      fmt::format("{:.0f} %", 100 * gigabytes / limit), ratio_cell});
}

std::vector<Isa> ParseIsas(const std::string& text) {
  std::vector<Isa> isas;
  for (const std::string& name : SplitList(text)) {
    isas.push_back(UnwrapArgument(ParseIsa(name)));
    if (IsaAvailable(isas.back())) continue;
    std::string possible;
    for (Isa isa : AvailableIsas()) possible += fmt::format(" {}", IsaName(isa));
    throw UsageError(fmt::format("--isa {} is not available on this build and CPU; possible:{}",
                                 name, possible));
  }
  return isas;
}

int RunBenchAttention(const AttentionOptions& o) {
  AttentionBenchOptions bench;
  bench.geometry = ParseShape(o.shape);
  KvFlags kv = o.kv;
  kv.preset = o.formats;
  bench.specs = kv.Specs();
  for (const KvSpec& spec : bench.specs) Check(CheckKvSpec(spec, bench.geometry));
  bench.depths = ParseCounts("--depth", o.depths);
  bench.batch = o.batch;
  bench.threads = o.threads;
  bench.repetitions = o.repetitions;
  bench.probabilities = o.probabilities;
  if (!o.isas.empty()) bench.isas = ParseIsas(o.isas);
  const std::string format = o.output.Format();
  const ReadBandwidth bandwidth = Unwrap(MeasureReadBandwidth(o.threads));
  Progress bar("bench attention");
  const LoadMeter meter;
  const std::vector<AttentionBenchRow> rows =
      Unwrap(BenchAttention(bench, [&](double done) { bar.Update(done, 1); }));
  const std::optional<MachineLoad> load = meter.Read();
  bar.Clear();
  BusyReport busy;
  RowPrinter printer(format, {"K", "V", "isa", "depth", "KV read", "us/step", "ns/token", "GB/s",
                              "of memory", "times f16"});
  for (const AttentionBenchRow& row : rows) {
    AddRow(bench, rows, row, bandwidth, load, &busy, &printer);
  }
  printer.Finish();
  busy.Print();
  if (format == "table") {
    Print("\nMemory here gives {:.2f} GB/s (best of {} passes, median {:.2f}), {}.\n",
          bandwidth.best_bytes_per_s / 1e9, bandwidth.passes, bandwidth.median_bytes_per_s / 1e9,
          Plural(o.threads, "thread"));
  }
  return kExitDone;
}

}  // namespace

void AddBenchAttention(CLI::App& bench, Action* action) {
  const auto o = std::make_shared<AttentionOptions>();
  CLI::App* const command = bench.add_subcommand(
      "attention", "The attention kernels of a decode step alone, without a model");
  command->footer(kFooter);
  command->add_option("--shape", o->shape, "Geometry [30,3,64,9]")
      ->type_name("LAYERS,KV_HEADS,HEAD_DIM[/LATENT][,Q_HEADS]");
  command
      ->add_option("--formats,--kv", o->formats,
                   "Presets or formats, a list [f16,int8,int4,int3,int2]")
      ->type_name("SPEC,...");
  command->add_option("-d,--depth", o->depths, "Cached tokens, a list [1024,8192]")
      ->type_name("N,...");
  command->add_option("--batch", o->batch, "Sequences, each with a cache of its own [1]")
      ->type_name("N")
      ->check(Count(1, 4096));
  command
      ->add_option("--isa", o->isas,
                   "Levels, a list of scalar, avx2, avxvnni, avx512, neon [the best]")
      ->type_name("NAME,...");
  command->add_option("-r,--repetitions", o->repetitions, "Repetitions [15]")
      ->type_name("N")
      ->check(Count(1, 100000));
  command->add_flag("--probabilities", o->probabilities,
                    "Also hand out what each query gives each token");
  AddThreads(*command, &o->threads);
  o->kv.AddPolicy(*command);
  o->output.Add(*command);
  command->callback([o, action] { *action = [o] { return RunBenchAttention(*o); }; });
}

}  // namespace kvant::cli
