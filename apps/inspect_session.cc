#include "inspect_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "failure.h"
#include "kvant/inspect.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

Json MixedOf(const SnapshotSummary& s) {
  std::vector<MixedPool> pools;
  for (const SnapshotPoolTotal& total : s.pools) pools.push_back(total.pool);
  return MixedJson(pools, s.policy, s.once, s.budget_bytes);
}

// As LayerFormatsJson has them of a session.
Json FormatsJson(const SnapshotSummary& s) {
  const auto layer_json = [&](int layer) {
    const auto at = std::find(s.mixed_layers.begin(), s.mixed_layers.end(), layer);
    if (at != s.mixed_layers.end()) return MixedOf(s);
    return PairJson(s.formats[static_cast<size_t>(layer)]);
  };
  const bool alike = s.totals.size() + (s.mixed_layers.empty() ? 0 : 1) == 1;
  return ByLayerJson(s.geometry.layers, alike, layer_json);
}

Json PoolsJson(const SnapshotSummary& s) {
  Json pools = Json::array();
  for (const SnapshotPoolTotal& total : s.pools) {
    pools.push_back({{"width", total.pool.width},
                     {"head_tokens", total.head_tokens},
                     {"pages", total.pages},
                     {"bytes", total.bytes}});
  }
  return pools.empty() ? Json() : pools;
}

std::string PairText(const FormatPair& pair) {
  return FormatSpec(pair.k) + " / " + FormatSpec(pair.v);
}

std::string HashText(uint64_t hash) { return hash == 0 ? "none" : fmt::format("{:016x}", hash); }

Json SessionJson(const std::string& path, const SnapshotSummary& s) {
  Json json = Header(DefaultThreads());
  json["session_path"] = path;
  json["session_bytes"] = s.file_bytes;
  json["model_xxh64"] = s.model_hash == 0 ? Json() : Json(HashText(s.model_hash));
  json["calibration_xxh64"] = s.calibration_hash == 0 ? Json() : Json(HashText(s.calibration_hash));
  json["geometry"] = GeometryJson(s.geometry);
  json["formats"] = FormatsJson(s);
  json["kv_sinks_tokens"] = s.sinks_tokens;
  json["kv_window_tokens"] = s.window_tokens;
  json["page_tokens"] = s.page_tokens;
  json["timeline_tokens"] = s.length;
  json["has_logits"] = s.has_logits;
  json["bytes_by_format"] = Json::array();
  for (const SnapshotFormatTotal& total : s.totals) {
    json["bytes_by_format"].push_back({{"k", FormatSpec(total.formats.k)},
                                       {"v", FormatSpec(total.formats.v)},
                                       {"layers", total.layers},
                                       {"pages", total.pages},
                                       {"bytes", total.bytes}});
  }
  json["widths"] = PoolsJson(s);
  json["dropped_head_tokens"] = s.pools.empty() ? Json() : Json(s.dropped_head_tokens);
  json["window_bytes"] = s.window_bytes;
  json["sink_bytes"] = s.sink_bytes;
  json["other_bytes"] = s.other_bytes;
  json["tokens"] = s.tokens;
  return json;
}

std::string SessionText(const SnapshotSummary& s) {
  const KvGeometry& g = s.geometry;
  std::string text = fmt::format(
      "  {} of a model with XXH64 {}, {}\n  {}, {}, {}\n"
      "  {} sinks, window {}, calibration {}\n\n",
      Plural(s.length, "token"), HashText(s.model_hash),
      s.has_logits ? "ready to go on" : "in need of a token to go on", Plural(g.layers, "layer"),
      CachedText(g), Plural(g.q_heads, "query head"), s.sinks_tokens, s.window_tokens,
      HashText(s.calibration_hash));
  if (!s.pools.empty()) {
    text += fmt::format("  widths by policy {}, {} tokens of a head dropped\n\n", s.policy,
                        Grouped(s.dropped_head_tokens));
  }
  Table table({"K / V", "layers", "pages", "bytes"});
  for (const SnapshotFormatTotal& total : s.totals) {
    table.Add({PairText(total.formats), Grouped(int64_t{total.layers}), Grouped(total.pages),
               Grouped(total.bytes)});
  }
  for (const SnapshotPoolTotal& total : s.pools) {
    table.Add({fmt::format("width {}: {}", total.pool.width, PairText(total.pool.formats)),
               Grouped(std::ssize(s.mixed_layers)), Grouped(total.pages), Grouped(total.bytes)});
  }
  table.Add({"window, as written", "", "", Grouped(s.window_bytes)});
  table.Add({"sinks, as written", "", "", Grouped(s.sink_bytes)});
  table.Add({"header, tokens, hidden state", "", "", Grouped(s.other_bytes)});
  table.Add({"together", "", "", Grouped(s.file_bytes)});
  return text + table.Text();
}

}  // namespace

void PrintSession(const std::string& path, bool json) {
  const SnapshotSummary summary = Unwrap(InspectSnapshot(path));
  if (json) {
    Write(Dump(SessionJson(path, summary), 2));
    return;
  }
  Print("{}: a saved session, {}\n{}", path, HumanBytes(static_cast<double>(summary.file_bytes)),
        SessionText(summary));
}

}  // namespace kvant::cli
