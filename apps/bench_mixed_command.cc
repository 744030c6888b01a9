#include "bench_mixed_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "busy_report.h"
#include "failure.h"
#include "kvant/bench_mixed.h"
#include "kvant/isa.h"
#include "kvant/machine_load.h"
#include "options.h"
#include "rows.h"
#include "statistics.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant bench mixed\n"
    "  kvant bench mixed --shape 32,8,128,32 --depth 16384 --shares 0,1,2,1 --evict 0.75\n"
    "\n"
    "Pools keep the tokens of one width together and read them with the kernels of the cache. In "
    "line, all widths\n"
    "stand in one run: a stream of tagged records, records with a list of their places, or slots "
    "of the widest.\n"
    "Readers in line are plain C++: compare \"x one width\", the time over what the same reader "
    "takes for the same\n"
    "bytes where all tokens have one width. Lines of 64 bytes and sectors of 32 are counted, those "
    "of a step.";

struct MixedOptions {
  std::string shape = "30,3,64,9", shares = "1,3,6,6";
  int64_t depth = 8192;
  double evicted_share = 0.5;
  int threads = 0;
  int repetitions = 15;
  OutputFlags output;
};

const char* LayoutName(MixedLayout layout) {
  switch (layout) {
    case MixedLayout::kPools:
      return "pools";
    case MixedLayout::kStream:
      return "stream";
    case MixedLayout::kIndexed:
      return "indexed";
    case MixedLayout::kSlots:
      return "slots";
  }
  return "";
}

std::string RowName(const MixedBenchRow& row) {
  std::string name = LayoutName(row.layout);
  if (row.width != 0) name += fmt::format(", all {} bits", row.width);
  return row.is_evicted ? name + ", evicted" : name;
}

Json RowJson(const MixedBenchOptions& o, const MixedBenchRow& row) {
  const std::vector<double>& over = row.over_one_width;
  const auto quantile = [&](double part) {
    return over.empty() ? Json() : Json(Quantile(over, part));
  };
  Json json = Header(o.threads);
  json.update(Json{
      {"layout", LayoutName(row.layout)},
      {"width", row.width == 0 ? Json() : Json(row.width)},
      {"evicted", row.is_evicted},
      {"shares", o.shares},
      {"evicted_share", o.evicted_share},
      {"isa", IsaName(ActiveIsa())},
      {"layers", o.geometry.layers},
      {"head_dim", o.geometry.head_dim},
      {"q_heads", o.geometry.q_heads},
      {"kv_heads", o.geometry.kv_heads},
      {"depth", o.depth_tokens},
      {"threads", o.threads},
      {"head_tokens", row.head_tokens},
      {"useful_bytes", row.useful_bytes},
      {"line_bytes", row.line_bytes},
      {"sector_bytes", row.sector_bytes},
      {"widths_in_32", row.widths_in_32},
      {"median_ns", Median({row.samples_ns.begin(), row.samples_ns.end()})},
      {"samples_ns", row.samples_ns},
      {"over_one_width", quantile(0.5)},
      {"over_one_width_p25", quantile(0.25)},
      {"over_one_width_p75", quantile(0.75)},
      {"answer_difference", row.width == 0 ? Json(row.answer_difference) : Json()},
  });
  return json;
}

void AddRow(const MixedBenchOptions& o, const MixedBenchRow& row,
            const std::optional<MachineLoad>& load, BusyReport* busy, RowPrinter* printer) {
  const std::vector<double> samples(row.samples_ns.begin(), row.samples_ns.end());
  const std::vector<double>& over = row.over_one_width;
  const auto over_useful = [&](int64_t bytes) {
    return fmt::format("{:.3f}",
                       static_cast<double>(bytes) / static_cast<double>(row.useful_bytes));
  };
  Json json = RowJson(o, row);
  busy->Add(load, samples, &json);
  printer->Add(json,
               {RowName(row), Grouped(row.head_tokens),
                fmt::format("{:.1f} ± {:.0f} %", Median(samples) / 1e3,
                            100 * StandardDeviation(samples) / Mean(samples)),
                over.empty() ? "-"
                             : fmt::format("{:.3f} ({:.3f}–{:.3f})", Median(over),
                                           Quantile(over, 0.25), Quantile(over, 0.75)),
                HumanBytes(static_cast<double>(row.useful_bytes)), over_useful(row.line_bytes),
                over_useful(row.sector_bytes), fmt::format("{:.2f}", row.widths_in_32)});
}

int RunBenchMixed(const MixedOptions& o) {
  MixedBenchOptions bench;
  bench.geometry = ParseShape(o.shape);
  bench.depth_tokens = o.depth;
  const std::vector<int64_t> shares = ParseCounts("--shares", o.shares);
  if (shares.size() != bench.shares.size()) {
    throw UsageError(
        fmt::format("--shares {} does not have four numbers, for widths 16, 8, 4 and 2", o.shares));
  }
  std::copy(shares.begin(), shares.end(), bench.shares.begin());
  bench.evicted_share = o.evicted_share;
  bench.threads = o.threads;
  bench.repetitions = o.repetitions;
  const std::string format = o.output.Format();
  Progress bar("bench mixed");
  const LoadMeter meter;
  const std::vector<MixedBenchRow> rows =
      Unwrap(BenchMixed(bench, [&](double done) { bar.Update(done, 1); }));
  const std::optional<MachineLoad> load = meter.Read();
  bar.Clear();
  BusyReport busy;
  RowPrinter printer(format, {"tokens", "of heads", "us/step", "x one width", "useful",
                              "lines/useful", "sectors/useful", "widths in 32"});
  for (const MixedBenchRow& row : rows) AddRow(bench, row, load, &busy, &printer);
  printer.Finish();
  busy.Print();
  return kExitDone;
}

}  // namespace

void AddBenchMixed(CLI::App& bench, Action* action) {
  const auto o = std::make_shared<MixedOptions>();
  CLI::App* const command = bench.add_subcommand(
      "mixed", "Tokens of several widths in pools against the same tokens in one run");
  command->footer(kFooter);
  command->add_option("--shape", o->shape, "Geometry [30,3,64,9]")
      ->type_name("LAYERS,KV_HEADS,HEAD_DIM[,Q_HEADS]");
  command->add_option("-d,--depth", o->depth, "Cached tokens [8192]")
      ->type_name("N")
      ->check(Count(512, 65536));
  command->add_option("--shares", o->shares, "Parts of the tokens in 16, 8, 4 and 2 bits [1,3,6,6]")
      ->type_name("N,N,N,N");
  command
      ->add_option("--evict", o->evicted_share,
                   "Part of the older tokens that goes in the rows with evictions [0.5]")
      ->type_name("PART")
      ->check(CLI::Range(0.0, 0.95));
  command->add_option("-r,--repetitions", o->repetitions, "Repetitions [15]")
      ->type_name("N")
      ->check(Count(1, 100000));
  AddThreads(*command, &o->threads);
  o->output.Add(*command);
  command->callback([o, action] { *action = [o] { return RunBenchMixed(*o); }; });
}

}  // namespace kvant::cli
