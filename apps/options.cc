#include "options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "failure.h"
#include "kvant/calibrate.h"
#include "kvant/head_classes.h"
#include "kvant/mixed_spec.h"
#include "kvant/policy.h"

namespace kvant::cli {
namespace {

bool ParseNumber(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

constexpr char kAutoPreset[] = "auto";

// The one number of a flag that could hold a list; `otherwise` where the flag is not given.
int OneCount(const std::string& flag, const std::string& text, int otherwise) {
  if (text.empty()) return otherwise;
  const std::vector<int64_t> counts = ParseCounts(flag, text);
  if (counts.size() != 1) {
    throw UsageError(fmt::format("{} '{}' is a list, which only eval and tasks take", flag, text));
  }
  return static_cast<int>(counts[0]);
}

void SetGroup(int group, Format* format) {
  if (!format->is_float()) format->group = group;
}

}  // namespace

void KvFlags::AddFormat(CLI::App& command) {
  command
      .add_option(
          "--kv", preset,
          "Store K and V as PRESET: f16, int8, int4, int3, int2, trellis4, plain4 and others, "
          "K/V as two formats, one format for both, or auto: as the calibration chose by layer")
      ->type_name("PRESET");
  command.add_option("--cache-type-k", k, "Store K as SPEC (also -ctk)")->type_name("SPEC");
  command.add_option("--cache-type-v", v, "Store V as SPEC (also -ctv)")->type_name("SPEC");
  command.add_option("--kv-group", group, "Values that share one scale: 16, 32, 64, 128 or 256")
      ->type_name("N");
  command
      .add_option("--calibration", calibration,
                  "What kvant calibrate measured of the model, for formats that need it: fit2 to "
                  "fit4, :smooth, :rot")
      ->type_name("FILE");
}

void KvFlags::AddPolicy(CLI::App& command) {
  command.add_option("--kv-sinks", sinks, "First tokens kept in f16, 0 to 64 [4]")->type_name("N");
  command.add_option("--kv-window", windows, "Newest tokens kept in f16, a multiple of 64 [64]")
      ->type_name("N");
  command
      .add_option("--kv-skip-layers", skip_layers, "Layers that stay in f16, for example 0,1,28-29")
      ->type_name("LIST");
}

void KvFlags::AddBudget(CLI::App& command) {
  command
      .add_option("--kv-budget", budget,
                  "Most bytes the cache may allocate, for example 512M; with mixed:... what the "
                  "tokens of a sequence may take")
      ->type_name("BYTES");
}

void KvFlags::AddTokenPolicy(CLI::App& command) {
  command
      .add_option("--policy", policy,
                  "What gives each token of --kv mixed:... its width: full:2,4, streaming, h2o, "
                  "snapkv, keydiff, lagkv, diffkv, mikv, qaq, variance, with their numbers as "
                  "keydiff:0.5")
      ->type_name("POLICY");
  command
      .add_option("--head-classes", head_classes,
                  "What kvant heads found: heads that need no more keep their first and newest "
                  "tokens, the others as --policy says [full]")
      ->type_name("FILE");
  CLI::Option* const kv = command.get_option("--kv");
  kv->description(kv->get_description() +
                  "; mixed:8=PRESET+2=PRESET: several widths, with --policy");
}

KvSpec KvFlags::Spec() const {
  KvSpec spec;
  if (preset == kAutoPreset) {
    spec = AutoSpec();
  } else if (preset.starts_with(kMixedPrefix)) {
    spec = MixedCacheSpec();
  } else if (!preset.empty()) {
    spec = UnwrapArgument(ParseKvPreset(preset));
  }
  if (!k.empty()) spec.k = UnwrapArgument(ParseFormat(k, Side::kK));
  if (!v.empty()) spec.v = UnwrapArgument(ParseFormat(v, Side::kV));
  spec.calibration = LoadedCalibration();
  ApplyPolicy(&spec);
  return spec;
}

std::vector<KvSpec> KvFlags::Specs() const {
  if (!preset.empty() && !(k.empty() && v.empty())) {
    throw UsageError("--kv and -ctk/-ctv are two ways to list formats; give one of them");
  }
  std::vector<KvSpec> specs;
  KvFlags one = *this;
  if (!preset.empty()) {
    for (const std::string& name : SplitList(preset)) {
      one.preset = name;
      specs.push_back(one.Spec());
    }
    return specs;
  }
  for (const std::string& k_format : SplitList(k)) {
    for (const std::string& v_format : SplitList(v)) {
      one.k = k_format;
      one.v = v_format;
      specs.push_back(one.Spec());
    }
  }
  return specs;
}

std::vector<KvFlags> KvFlags::Policies() const {
  LoadedCalibration();  // once for all copies
  const std::vector<std::string> first = SplitList(sinks), newest = SplitList(windows);
  const size_t count = std::max(first.size(), newest.size());
  if (std::min(first.size(), newest.size()) != 1 && first.size() != newest.size()) {
    throw UsageError(
        fmt::format("--kv-sinks '{}' and --kv-window '{}' do not pair: {} and {} counts", sinks,
                    windows, first.size(), newest.size()));
  }
  std::vector<KvFlags> policies(count, *this);
  for (size_t i = 0; i < count; ++i) {
    policies[i].sinks = first[first.size() == 1 ? 0 : i];
    policies[i].windows = newest[newest.size() == 1 ? 0 : i];
  }
  return policies;
}

// The formats that the calibration chose for each layer.
KvSpec KvFlags::AutoSpec() const {
  if (!k.empty() || !v.empty() || group != 0) {
    throw UsageError(
        "--kv auto sets both sides of every layer; leave out -ctk, -ctv and --kv-group");
  }
  if (calibration.empty()) throw UsageError("--kv auto needs a calibration: --calibration FILE");
  if (LoadedCalibration()->layer_formats.empty()) {
    throw UsageError(fmt::format(
        "--kv auto: '{}' chose no formats; kvant calibrate does with --budget-bits", calibration));
  }
  KvSpec spec;
  spec.layers = LoadedCalibration()->layer_formats;
  spec.k = spec.layers[0].k;
  spec.v = spec.layers[0].v;
  return spec;
}

// Its budget is the policy's, which keeps to it; nothing would be left of a cache that may not
// allocate.
KvSpec KvFlags::MixedCacheSpec() const {
  if (policy.empty() && head_classes.empty()) {
    throw UsageError(fmt::format(
        "--kv {} needs a policy that gives tokens their widths: --policy, of run and eval",
        preset));
  }
  MixedSpec mixed = UnwrapArgument(ParseMixedSpec(preset));
  mixed.policy = UnwrapArgument(ParsePolicy(policy.empty() ? "full" : policy));
  if (!head_classes.empty()) {
    mixed.heads =
        std::make_shared<const HeadClasses>(Unwrap(ParseHeadClasses(ReadTextFile(head_classes))));
  }
  if (!budget.empty()) mixed.budget_bytes = ParseBytes("--kv-budget", budget);
  KvSpec spec;
  SetMixed(std::move(mixed), &spec);
  return spec;
}

const std::shared_ptr<const Calibration>& KvFlags::LoadedCalibration() const {
  if (loaded_ == nullptr && !calibration.empty()) {
    loaded_ = std::make_shared<const Calibration>(Unwrap(ReadCalibration(calibration)));
  }
  return loaded_;
}

void KvFlags::ApplyPolicy(KvSpec* spec) const {
  if (group != 0) {
    if (spec->k.is_float() && spec->v.is_float()) {
      throw UsageError(fmt::format("--kv-group {} has nothing to act on: K is {} and V is {}",
                                   group, FormatSpec(spec->k), FormatSpec(spec->v)));
    }
    SetGroup(group, &spec->k);
    SetGroup(group, &spec->v);
  }
  spec->sinks_tokens = OneCount("--kv-sinks", sinks, spec->sinks_tokens);
  spec->window_tokens = OneCount("--kv-window", windows, spec->window_tokens);
  if (!skip_layers.empty())
    spec->skip_layers = ParseIntList("--kv-skip-layers", skip_layers, 0, 1023);
  // A shape that any format could stand on: only what is wrong by itself is refused here.
  const KvGeometry any{1024, 1, 64, 1};
  Check(CheckKvSpec(*spec, spec->calibration == nullptr ? any : spec->calibration->geometry));
}

int64_t KvFlags::BudgetBytes(const KvSpec& spec) const {
  return budget.empty() || spec.mixed != nullptr ? 0 : ParseBytes("--kv-budget", budget);
}

void KvFlags::CheckPolicyActs() const {
  if ((policy.empty() && head_classes.empty()) || preset.find(kMixedPrefix) != preset.npos) return;
  throw UsageError(
      fmt::format("{} has nothing to act on: --kv names no cache of several widths (mixed:...)",
                  policy.empty() ? "--head-classes " + head_classes : "--policy " + policy));
}

void OutputFlags::Add(CLI::App& command) {
  command.add_option("-o,--output", format, "table, json, jsonl, md or csv [table]")
      ->type_name("FORMAT");
  command.add_flag("--json", json, "The same as -o json");
}

std::string OutputFlags::Format() const {
  if (json) return "json";
  for (const char* name : {"table", "json", "jsonl", "md", "csv"}) {
    if (format == name) return format;
  }
  throw UsageError(
      fmt::format("--output '{}' is unknown; possible: table json jsonl md csv", format));
}

void CompatibilityFlags::Add(CLI::App& command) {
  command
      .add_option(
          "--flash-attn", flash_attention,
          "Accepted for llama.cpp's scripts (also -fa): on or auto, attention is always fused")
      ->type_name("on|auto");
  command
      .add_option("--n-gpu-layers", gpu_layers,
                  "Accepted for llama.cpp's scripts (also -ngl): 0, kvant runs on the CPU")
      ->type_name("0");
}

void CompatibilityFlags::CheckPossible() const {
  if (flash_attention != "on" && flash_attention != "auto" && flash_attention != "1") {
    throw UsageError(
        fmt::format("--flash-attn {} is not possible: attention is always fused; possible: "
                    "on auto",
                    flash_attention));
  }
  if (gpu_layers != 0) {
    throw UsageError(
        fmt::format("--n-gpu-layers {} is not possible: this version runs on the CPU; "
                    "possible: 0",
                    gpu_layers));
  }
}

void AddThreads(CLI::App& command, int* threads) {
  *threads = DefaultThreads();
  command.add_option("-t,--threads", *threads, fmt::format("Threads [{}]", *threads))
      ->type_name("N")
      ->check(Count(1, 256));
}

void AddTextFile(CLI::App& command, const std::string& what, std::string* path) {
  command.add_option("-f,--file", *path, what + ", - for standard input")
      ->required()
      ->type_name("FILE");
}

int DefaultThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
}

CLI::Validator Count(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        int64_t value = 0;
        if (ParseNumber(text, &value) && value >= low && value <= high) return std::string();
        return fmt::format("'{}' is not a number between {} and {}", text, low, high);
      },
      "");
}

std::vector<std::string> SplitList(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::vector<int> ParseIntList(const std::string& flag, const std::string& text, int low, int high) {
  const auto bad = [&](const std::string& part) {
    return UsageError(fmt::format("{} '{}': '{}' is not a number or range between {} and {}", flag,
                                  text, part, low, high));
  };
  std::vector<int> values;
  for (const std::string& part : SplitList(text)) {
    const size_t dash = part.find('-', 1);
    int64_t first = 0, last = 0;
    if (!ParseNumber(std::string_view(part).substr(0, dash), &first)) throw bad(part);
    last = first;
    if (dash != std::string::npos && !ParseNumber(std::string_view(part).substr(dash + 1), &last)) {
      throw bad(part);
    }
    if (first < low || last > high || first > last) throw bad(part);
    for (int64_t value = first; value <= last; ++value) values.push_back(static_cast<int>(value));
  }
  return values;
}

std::vector<int64_t> ParseCounts(const std::string& flag, const std::string& text) {
  std::vector<int64_t> counts;
  for (const std::string& part : SplitList(text)) {
    int64_t value = 0;
    if (!ParseNumber(part, &value) || value < 0 || value > (1 << 24)) {
      throw UsageError(
          fmt::format("{} '{}': '{}' is not a count between 0 and 16777216", flag, text, part));
    }
    counts.push_back(value);
  }
  return counts;
}

int64_t ParseBytes(const std::string& flag, const std::string& text) {
  constexpr struct {
    std::string_view suffix;
    int shift;
  } kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"K", 10}, {"M", 20}, {"G", 30}, {"", 0}};
  for (const auto& unit : kUnits) {
    if (!std::string_view(text).ends_with(unit.suffix)) continue;
    int64_t value = 0;
    const auto digits = std::string_view(text).substr(0, text.size() - unit.suffix.size());
    if (!ParseNumber(digits, &value) || value <= 0 || value > (INT64_MAX >> unit.shift)) break;
    return value << unit.shift;
  }
  throw UsageError(fmt::format("{} '{}' is not a number of bytes, such as 1073741824, 512M or 2GiB",
                               flag, text));
}

KvGeometry ParseShape(const std::string& text) {
  std::vector<std::string> parts = SplitList(text);
  int64_t numbers[4] = {}, latent = 0;
  bool good = parts.size() == 3 || parts.size() == 4;
  if (const size_t slash = good ? parts[2].find('/') : std::string::npos;
      slash != std::string::npos) {
    good = ParseNumber(parts[2].substr(slash + 1), &latent) && latent >= 1 && latent <= (1 << 20);
    parts[2].resize(slash);
  }
  for (size_t i = 0; good && i < parts.size(); ++i) {
    good = ParseNumber(parts[i], &numbers[i]) && numbers[i] >= 1 && numbers[i] <= (1 << 20);
  }
  if (!good) {
    throw UsageError(
        fmt::format("--shape '{}' is not LAYERS,KV_HEADS,HEAD_DIM[/LATENT][,Q_HEADS], for example "
                    "32,8,128,32 or 27,1,576/512,16",
                    text));
  }
  if (parts.size() == 3) numbers[3] = numbers[1];
  const KvGeometry geometry{static_cast<int>(numbers[0]), static_cast<int>(numbers[1]),
                            static_cast<int>(numbers[2]), static_cast<int>(numbers[3]),
                            static_cast<int>(latent)};
  Check(CheckGeometry(geometry));
  return geometry;
}

KvGeometry GeometryOf(const std::string& path, const GgufSummary& file) {
  if (!file.geometry) {
    throw Failure(kExitFailed,
                  fmt::format("'{}' has no KV geometry: {}", path, file.geometry_problem));
  }
  if (file.sliding_window_tokens > 0 && file.layer_windows.empty()) {
    throw Failure(
        kExitFailed,
        fmt::format("'{}': some layers of {} see only {} tokens, and this version does not "
                    "know which",
                    path, file.architecture, file.sliding_window_tokens));
  }
  return *file.geometry;
}

std::string ReadTextFile(const std::string& path) {
  const auto fail = [&] {
    return Failure(kExitFailed, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  };
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw fail();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closer(file, std::fclose);
  std::string text;
  char part[1 << 16];
  while (const size_t bytes = std::fread(part, 1, sizeof(part), file)) text.append(part, bytes);
  if (std::ferror(file)) throw fail();
  return text;
}

}  // namespace kvant::cli
