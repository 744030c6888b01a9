#include "report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "failure.h"
#include "kvant/head_classes.h"
#include "kvant/isa.h"
#include "kvant/mixed_spec.h"
#include "kvant/policy.h"
#include "kvant_commit.h"
#include "output.h"

namespace kvant::cli {
namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

Failure WriteFailure(const std::string& path) {
  return {kExitFailed, fmt::format("cannot write '{}': {}", path, std::strerror(errno))};
}

// Of the heads of layers that have several widths.
struct HeadCounts {
  int64_t streaming = 0, all = 0;
};

HeadCounts CountHeads(const KvSpec& spec) {
  const HeadClasses& classes = *spec.mixed->heads;
  const std::vector<uint8_t> full = FullHeads(classes.gates, classes.sparsity);
  HeadCounts counts;
  for (size_t i = 0; i < full.size(); ++i) {
    if (!IsMixedLayer(spec, static_cast<int>(i) / classes.kv_heads)) continue;
    ++counts.all;
    if (full[i] == 0) ++counts.streaming;
  }
  return counts;
}

std::string MixedText(const KvSpec& spec) {
  const MixedSpec& mixed = *spec.mixed;
  std::string text = fmt::format("{} by {}", MixedPoolsText(mixed.pools), mixed.policy->name());
  if (mixed.heads == nullptr) return text;
  const HeadCounts counts = CountHeads(spec);
  return text + fmt::format(", {} of {} heads by {}", counts.streaming, counts.all,
                            StreamingSpec(*mixed.heads));
}

}  // namespace

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Json Header(int threads) {
  return {{"version", KVANT_VERSION},
          {"commit", KVANT_COMMIT},
          {"cpu", CpuName()},
          {"isa", IsaName(ActiveIsa())},
          {"threads", threads}};
}

void AddModel(const std::string& path, int64_t file_bytes, uint64_t file_hash, Json* report) {
  (*report)["model_path"] = path;
  (*report)["model_bytes"] = file_bytes;
  (*report)["model_xxh64"] = fmt::format("{:016x}", file_hash);
}

Json MixedJson(const std::vector<MixedPool>& of, const std::string& policy, bool once,
               int64_t budget_bytes) {
  Json pools = Json::array();
  for (const MixedPool& pool : of) {
    pools.push_back({{"width", pool.width},
                     {"k", FormatSpec(pool.formats.k)},
                     {"v", FormatSpec(pool.formats.v)}});
  }
  return {{"pools", pools},
          {"policy", policy},
          {"once", once},
          {"budget_bytes", budget_bytes == 0 ? Json() : Json(budget_bytes)}};
}

Json PairJson(const FormatPair& pair) {
  return {{"k", FormatSpec(pair.k)}, {"v", FormatSpec(pair.v)}};
}

Json ByLayerJson(int layers, bool alike, const std::function<Json(int)>& layer_json) {
  if (alike) return layer_json(0);
  Json list = Json::array();
  for (int layer = 0; layer < layers; ++layer) {
    list.push_back(layer_json(layer));
    list.back()["layer"] = layer;
  }
  return list;
}

Json LayerFormatsJson(const KvSpec& spec, int layers) {
  const auto layer_json = [&](int layer) {
    if (!IsMixedLayer(spec, layer)) return PairJson(LayerFormats(spec, layer));
    const MixedSpec& m = *spec.mixed;
    Json json = MixedJson(m.pools, m.policy->name(), m.once, m.budget_bytes);
    if (m.heads != nullptr) {
      json["streaming"] = StreamingSpec(*m.heads);
      json["streaming_heads"] = CountHeads(spec).streaming;
    }
    return json;
  };
  const bool one_kind = spec.mixed == nullptr || spec.mixed->one_width_layers.empty();
  return ByLayerJson(layers, spec.skip_layers.empty() && spec.layers.empty() && one_kind,
                     layer_json);
}

std::string SideText(const KvSpec& spec, Side side) {
  if (spec.mixed != nullptr) return "by token";
  if (!spec.layers.empty()) return "by layer";
  return FormatSpec(side == Side::kK ? spec.k : spec.v);
}

std::string LayerFormatsText(const KvSpec& spec, int layers) {
  if (!spec.layers.empty()) {
    std::string text;
    for (int layer = 0; layer < layers; ++layer) {
      const FormatPair pair = LayerFormats(spec, layer);
      text += fmt::format("{}{} {}/{}", layer == 0 ? "by layer: " : ", ", layer, FormatSpec(pair.k),
                          FormatSpec(pair.v));
    }
    return text;
  }
  std::string text = spec.mixed != nullptr
                         ? MixedText(spec)
                         : fmt::format("K {}, V {}", FormatSpec(spec.k), FormatSpec(spec.v));
  std::string skipped, one_width;
  for (int layer = 0; layer < layers; ++layer) {
    const bool is_skipped = LayerFormats(spec, layer) != FormatPair{spec.k, spec.v};
    if (!is_skipped && (spec.mixed == nullptr || IsMixedLayer(spec, layer))) continue;
    std::string& list = is_skipped ? skipped : one_width;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", layer);
  }
  if (!one_width.empty()) {
    text +=
        fmt::format("; K {}, V {} in layers {}", FormatSpec(spec.k), FormatSpec(spec.v), one_width);
  }
  if (!skipped.empty()) text += fmt::format("; f16 in layers {}", skipped);
  return text;
}

Json GeometryJson(const KvGeometry& g) {
  Json json = {{"layers", g.layers},
               {"kv_heads", g.kv_heads},
               {"head_dim", g.head_dim},
               {"q_heads", g.q_heads}};
  if (g.is_latent()) json["latent_dim"] = g.latent_dim;
  return json;
}

std::string CachedText(const KvGeometry& g) {
  if (!g.is_latent()) {
    return fmt::format("{} of {} channels", Plural(g.kv_heads, "KV head"), g.head_dim);
  }
  return fmt::format("a latent of {} channels and a RoPE key of {}", g.v_channels(),
                     g.k_channels());
}

Json LayerWindowsJson(const std::vector<int64_t>& layer_windows) {
  return LayerWindowsText(layer_windows).empty() ? Json(nullptr) : Json(layer_windows);
}

std::string LayerWindowsText(const std::vector<int64_t>& layer_windows) {
  const auto all = std::count(layer_windows.begin(), layer_windows.end(), 0);
  const auto count = static_cast<int64_t>(layer_windows.size()) - all;
  if (count == 0) return "";
  return fmt::format("{} of {} layers see only the newest {} tokens", count, layer_windows.size(),
                     *std::max_element(layer_windows.begin(), layer_windows.end()));
}

Json Number(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::trunc(value) == value && std::fabs(value) < kLargestExactInteger) {
    return static_cast<int64_t>(value);
  }
  return value;
}

Json Shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

void CheckWritable(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) throw WriteFailure(path);
}

void WriteFile(const std::string& path, const std::string& text) {
  std::error_code ignored;
  // A pipe or device is written where it stands; renaming over it would replace it by a file.
  const bool in_place =
      std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string part = in_place ? path : fmt::format("{}.{}.part", path, getpid());
  std::FILE* const file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) throw WriteFailure(path);
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = std::fclose(file) == 0 && good;
  if (good && (in_place || std::rename(part.c_str(), path.c_str()) == 0)) return;
  const Failure failure = WriteFailure(path);
  if (!in_place) std::remove(part.c_str());
  throw failure;
}

}  // namespace kvant::cli
