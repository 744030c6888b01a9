#include "planted.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "cache_list.h"
#include "failure.h"
#include "kvant/tasks.h"
#include "output.h"
#include "rows.h"

namespace kvant::cli {
namespace {

constexpr int kMaxOffset = 60000;  // f16, which open pages are held in, ends at 65504

Json RowJson(const NamedSpec& cache, const PlantedOptions& options, const PlantedResult& result) {
  return {{"preset", cache.name},
          {"format_k", FormatSpec(cache.spec.k)},
          {"format_v", FormatSpec(cache.spec.v)},
          {"head_dim", options.head_dim},
          {"tokens", options.tokens},
          {"margin", Shortest(options.margin)},
          {"channel_offset", Shortest(options.channel_offset)},
          {"seed", options.seed},
          {"queries", result.queries},
          {"hit_rate", result.hit_rate},
          {"mean_mass", result.mean_mass},
          {"exact_mass", result.exact_mass},
          {"max_mass_error", result.max_mass_error}};
}

std::vector<std::string> Cells(const NamedSpec& cache, const PlantedOptions& options,
                               const PlantedResult& result) {
  return {cache.name,
          FormatSpec(cache.spec.k),
          FormatSpec(cache.spec.v),
          Grouped(int64_t{options.head_dim}),
          Grouped(options.tokens),
          fmt::format("{}", options.channel_offset),
          fmt::format("{:.0f} %", 100 * result.hit_rate),
          fmt::format("{:.3f}", result.mean_mass),
          fmt::format("{:.3f}", result.exact_mass),
          fmt::format("{:.3f}", result.max_mass_error)};
}

// The conditions that a cache is tested under, channel offsets the fastest.
std::vector<PlantedOptions> PlanTests(const PlantedFlags& flags, int head_dim, uint64_t seed) {
  std::vector<PlantedOptions> tests;
  for (const int64_t tokens : ParseCounts("--cache-tokens", flags.tokens)) {
    for (const int offset : ParseIntList("--offset", flags.offsets, -kMaxOffset, kMaxOffset)) {
      tests.push_back({.head_dim = head_dim,
                       .tokens = tokens,
                       .margin = flags.margin,
                       .channel_offset = static_cast<float>(offset),
                       .seed = seed});
    }
  }
  return tests;
}

}  // namespace

void PlantedFlags::Add(CLI::App& command, CLI::Option* planted) {
  command.add_option("--head-dim", head_dims, "With --planted: channels of a head, a list [64]")
      ->type_name("N,...")
      ->needs(planted);
  command
      .add_option("--cache-tokens", tokens,
                  "With --planted: tokens of the cache, at least 512, a list [2048]")
      ->type_name("N,...")
      ->needs(planted);
  command
      .add_option("--offset", offsets,
                  "With --planted: added to four channels of every key, a list [0,200]")
      ->type_name("N,...")
      ->needs(planted);
  command
      .add_option("--margin", margin,
                  "With --planted: by how much the planted score beats the logarithm of the number "
                  "of tokens [3]")
      ->type_name("X")
      ->needs(planted);
}

int RunPlantedTest(const PlantedFlags& flags, const KvFlags& kv, bool sweep, uint64_t seed,
                   const std::string& format) {
  RowPrinter printer(format, {"cache", "K", "V", "head", "tokens", "offset", "found", "mass",
                              "exact mass", "largest error"});
  std::vector<std::pair<std::string, std::string>> skipped;
  Progress bar("planted");
  for (const int head_dim : ParseIntList("--head-dim", flags.head_dims, 1, 1024)) {
    const KvGeometry geometry{1, 1, head_dim, 1};
    CheckArgument(CheckGeometry(geometry));
    const CacheList list = ListCaches(kv, sweep, geometry);
    skipped.insert(skipped.end(), list.skipped.begin(), list.skipped.end());
    const std::vector<PlantedOptions> tests = PlanTests(flags, head_dim, seed);
    double done = 0;
    for (const NamedSpec& cache : list.caches) {
      for (const PlantedOptions& options : tests) {
        const PlantedResult result = Unwrap(RunPlanted(cache.spec, options));
        printer.Add(RowJson(cache, options, result), Cells(cache, options, result));
        bar.Update(++done, static_cast<double>(list.caches.size() * tests.size()));
      }
    }
  }
  bar.Clear();
  printer.Finish();
  if (format != "table") return kExitDone;
  Print("\nSeed {}, margin {}\n", seed, flags.margin);
  for (const auto& [preset, why] : skipped) Print("Left out {}: {}\n", preset, why);
  return kExitDone;
}

}  // namespace kvant::cli
