// kvant inspect: what a model file holds and what its KV cache would cost, or what a saved session
// holds.
#include <fmt/core.h>

#include <memory>

#include "command.h"
#include "failure.h"
#include "inspect_session.h"
#include "kvant/explain.h"
#include "kvant/inspect.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant inspect model.gguf\n"
    "  kvant inspect model.gguf --tensors\n"
    "  kvant inspect model.gguf --json\n"
    "  kvant inspect book.kv";

struct InspectOptions {
  std::string path;
  bool tensors = false, json = false;
};

// The formats whose cost is listed: what --kv takes by name.
struct FormatCost {
  std::string preset;
  double bytes_per_token, bits;  // of stored pages, where a layer sees all
  KvSpec spec;
};
std::vector<FormatCost> CostsOf(const KvGeometry& g) {
  std::vector<FormatCost> costs;
  for (const std::string& preset : KvPresetNames()) {
    const KvSpec spec = UnwrapArgument(ParseKvPreset(preset));
    if (!CheckKvSpec(spec, g).ok()) continue;
    const double bytes = PageBytesPerToken(g, spec);
    costs.push_back({preset, bytes, 8 * bytes / static_cast<double>(g.values_per_token()), spec});
  }
  return costs;
}

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text;
  for (int64_t dim : dims) text += fmt::format("{}{}", text.empty() ? "" : " x ", dim);
  return text;
}

// A value that does not fit a line is cut; the JSON has what the reader gave.
std::string Cut(const std::string& text, size_t columns) {
  if (text.size() <= columns) return text;
  size_t end = columns;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // never inside a character
  return text.substr(0, end) + "…";
}

std::string MetadataText(const GgufSummary& s) {
  std::string text = fmt::format("Metadata, {} entries\n", s.metadata.size());
  size_t width = 0;
  for (const GgufEntryText& entry : s.metadata) width = std::max(width, entry.key.size());
  for (const GgufEntryText& entry : s.metadata) {
    text += fmt::format("  {:{}}  {}\n", entry.key, width, Cut(entry.value, 70));
  }
  return text;
}

std::string TypesText(const GgufSummary& s) {
  Table table({"type", "tensors", "values", "bytes", "bits/value"});
  GgufTypeTotal all{"all", 0, 0, 0};
  const auto add = [&](const GgufTypeTotal& t) {
    table.Add({t.type, Grouped(t.tensors), Grouped(t.values), Grouped(t.bytes),
               t.values == 0 ? "-"
                             : fmt::format("{:.2f}", 8.0 * static_cast<double>(t.bytes) /
                                                         static_cast<double>(t.values))});
  };
  for (const GgufTypeTotal& type : s.types) {
    add(type);
    all.tensors += type.tensors;
    all.values += type.values;
    all.bytes += type.bytes;
  }
  add(all);
  return "Tensors by type\n" + table.Text();
}

std::string TensorsText(const GgufSummary& s) {
  Table table({"tensor", "type", "dims", "bytes"});
  for (const GgufTensorText& t : s.tensors) {
    table.Add({t.name, t.type, DimsText(t.dims), Grouped(t.bytes)});
  }
  return table.Text();
}

std::string CacheText(const GgufSummary& s) {
  if (!s.geometry) return fmt::format("KV cache: unknown, {}\n", s.geometry_problem);
  const KvGeometry& g = *s.geometry;
  std::string text = fmt::format("KV cache: {}, {}, {}", Plural(g.layers, "layer"), CachedText(g),
                                 Plural(g.q_heads, "query head"));
  if (s.context_tokens > 0)
    text += fmt::format(", trained for {} tokens", Grouped(s.context_tokens));
  text += "\n";
  Table table({"--kv", "bytes/token", "bits/value", s.context_tokens > 0 ? "whole context" : ""});
  for (const FormatCost& cost : CostsOf(g)) {
    const auto whole_bytes = [&] {
      return LedgerOf(g, cost.spec, s.context_tokens, 1, s.layer_windows).kv_bytes;
    };
    table.Add({cost.preset, Grouped(cost.bytes_per_token), fmt::format("{:.2f}", cost.bits),
               s.context_tokens > 0 ? HumanBytes(static_cast<double>(whole_bytes())) : ""});
  }
  text += table.Text();
  const std::string windows = LayerWindowsText(s.layer_windows);
  if (!windows.empty()) {
    text += fmt::format(
        "  {}: they hold that and a page more at most, and read no more than that.\n", windows);
  } else if (s.sliding_window_tokens > 0) {
    text += fmt::format("  Some layers see only {} tokens; kvant does not know which.\n",
                        Grouped(s.sliding_window_tokens));
  }
  return text +
         "  Bytes a token are of stored pages; the whole context has window and sinks too.\n";
}

Json SummaryJson(const std::string& path, const GgufSummary& s) {
  Json json = Header(DefaultThreads());
  AddModel(path, s.file_bytes, s.file_hash, &json);
  json["gguf_version"] = s.version;
  json["architecture"] = s.architecture.empty() ? Json(nullptr) : Json(s.architecture);
  json["context_tokens"] = s.context_tokens > 0 ? Json(s.context_tokens) : Json(nullptr);
  json["sliding_window_tokens"] =
      s.sliding_window_tokens > 0 ? Json(s.sliding_window_tokens) : Json(nullptr);
  json["layer_windows_tokens"] = LayerWindowsJson(s.layer_windows);
  json["geometry"] = nullptr;
  json["kv_bytes_per_token"] = nullptr;
  if (s.geometry) {
    const KvGeometry& g = *s.geometry;
    json["geometry"] = GeometryJson(g);
    Json costs = Json::object();
    for (const FormatCost& cost : CostsOf(g)) costs[cost.preset] = Number(cost.bytes_per_token);
    json["kv_bytes_per_token"] = std::move(costs);
  }
  json["types"] = Json::array();
  for (const GgufTypeTotal& t : s.types) {
    json["types"].push_back(
        {{"type", t.type}, {"tensors", t.tensors}, {"values", t.values}, {"bytes", t.bytes}});
  }
  json["metadata"] = Json::array();
  for (const GgufEntryText& e : s.metadata) {
    json["metadata"].push_back({{"key", e.key}, {"type", e.type}, {"value", e.value}});
  }
  json["tensors"] = Json::array();
  for (const GgufTensorText& t : s.tensors) {
    json["tensors"].push_back(
        {{"name", t.name}, {"type", t.type}, {"dims", t.dims}, {"bytes", t.bytes}});
  }
  return json;
}

int RunInspect(const InspectOptions& options) {
  if (Unwrap(IsSnapshotFile(options.path))) {
    if (options.tensors) throw UsageError("--tensors: a saved session has none");
    PrintSession(options.path, options.json);
    return kExitDone;
  }
  const GgufSummary summary = Unwrap(InspectGguf(options.path));
  if (options.json) {
    Write(Dump(SummaryJson(options.path, summary), 2));
    return kExitDone;
  }
  Print("{}: GGUF version {}, {}, XXH64 {:016x}\n\n", options.path, summary.version,
        HumanBytes(static_cast<double>(summary.file_bytes)), summary.file_hash);
  Write(MetadataText(summary) + "\n" + TypesText(summary) + "\n");
  if (options.tensors) Write("All tensors\n" + TensorsText(summary) + "\n");
  Write(CacheText(summary));
  return kExitDone;
}

}  // namespace

void AddInspect(CLI::App& root, Action* action) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* const command = root.add_subcommand(
      "inspect",
      "What a GGUF file holds: metadata, tensors by type, KV bytes a token by format; or what a "
      "saved session holds");
  command->footer(kFooter);
  command->add_option("file", options->path, "The GGUF file or saved session")
      ->required()
      ->type_name("FILE");
  command->add_flag("--tensors", options->tensors, "List every tensor");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, action] { *action = [options] { return RunInspect(*options); }; });
}

}  // namespace kvant::cli
