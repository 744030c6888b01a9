// What every JSON of kvant has in common, so that a figure can be traced to what made it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/mixed_spec.h"

namespace kvant::cli {

using Json = nlohmann::ordered_json;

// version, commit, cpu, isa, threads.
Json Header(int threads);

// Adds model_path, model_bytes and model_xxh64, which `xxhsum -H1` prints too.
void AddModel(const std::string& path, int64_t file_bytes, uint64_t file_hash, Json* report);

// The pools of layers of several widths, and what fills them.
Json MixedJson(const std::vector<MixedPool>& of, const std::string& policy, bool once,
               int64_t budget_bytes);
Json PairJson(const FormatPair& pair);
// layer_json(0) when all layers are alike, otherwise a list with one for each layer, which is
// named.
Json ByLayerJson(int layers, bool alike, const std::function<Json(int layer)>& layer_json);
// {"k": …, "v": …}, or {"pools": …, "policy": …, …} of several widths, when all layers are alike,
// otherwise a list with one of these a layer.
Json LayerFormatsJson(const KvSpec& spec, int layers);
// The format of a side, "by layer" where each layer has its own, "by token" with several widths.
std::string SideText(const KvSpec& spec, Side side);
// "K int4:channel:g64:min, V …", and the layers that differ.
std::string LayerFormatsText(const KvSpec& spec, int layers);

// {"layers": …, "kv_heads": …, "head_dim": …, "q_heads": …}, and "latent_dim" where heads share
// one.
Json GeometryJson(const KvGeometry& geometry);
// What a layer caches of a token: "3 KV heads of 64 channels", "a latent of 512 channels and a RoPE
// key of 64".
std::string CachedText(const KvGeometry& geometry);

// Tokens that each layer sees, 0: all; null where no layer has a window.
Json LayerWindowsJson(const std::vector<int64_t>& layer_windows);
// "15 of 18 layers see only the newest 512 tokens"; empty where none has a window.
std::string LayerWindowsText(const std::vector<int64_t>& layer_windows);

// A whole number without its ".0", so that readers can compare bytes exactly.
Json Number(double value);

// The shortest decimal that reads back as the float: 0.8, not 0.800000011920929.
Json Shortest(float value);

// The text as JSON can hold it: bytes that are no UTF-8 become U+FFFD.
std::string Dump(const Json& json, int indent);

// "AMD EPYC …", or "unknown".
std::string CpuName();

// Throws when WriteFile could not make a file there; better known before the work than after it.
void CheckWritable(const std::string& path);

// Writes a file whole or not at all.
void WriteFile(const std::string& path, const std::string& text);

}  // namespace kvant::cli
