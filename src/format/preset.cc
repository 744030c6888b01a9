// Presets: names for both sides of a cache, and for sinks and window where a method has its own.
#include <algorithm>
#include <iterator>

#include "kvant/format.h"

namespace kvant {
namespace {

// A preset is two specs and, where its method says so, its own sinks and window.
struct Preset {
  std::string_view name, k, v;
  int sinks_tokens = 4, window_tokens = 64;
};
constexpr Preset kPresets[] = {
    {"f32", "f32", "f32"},
    {"f16", "f16", "f16"},
    {"bf16", "bf16", "bf16"},
    // Chosen by measurement: docs/methods.md.
    {"int8", "int8:channel:g64:min", "int8:token:none"},
    {"int4", "tq4:mean:bal:n8", "tq4:n8"},
    {"int3", "tq3:mean:bal:n8", "tq3:n8"},
    {"int2", "tq3:mean:bal:n8", "tq2:n8"},
    {"int2s", "tq2:mean:bal:n8", "tq2:n8"},
    {"trellis4", "tcx4:mean:bal:n8", "tcx4:n8"},
    {"trellis3", "tc3:mean:bal:n8", "tc3:n8"},
    {"trellis2", "tc3:mean:bal:n8", "tc2:n8"},
    {"trellis2s", "tc2:mean:bal:n8", "tc2:n8"},
    // Neither rotation nor table.
    {"plain4", "int4:channel:g64:min", "int4:token:g64:min"},
    {"plain3", "int3:channel:g64:min", "int3:token:g64:min"},
    {"plain2", "int2:channel:g32:min", "int2:token:g32:min"},
    // Published methods. KIVI (arXiv 2402.02750): groups of 32, the newest 128 tokens as they are.
    {"kivi4", "int4:channel:g32:min", "int4:token:g32:min", 0, 128},
    {"kivi2", "int2:channel:g32:min", "int2:token:g32:min", 0, 128},
    // TurboQuant (arXiv 2504.19874) with the norm rule and kvant's sinks and window.
    {"turbo4", "tq4", "tq4"},
    {"turbo3", "tq3", "tq3"},
    {"turbo2", "tq2", "tq2"},
    // QServe (arXiv 2405.04532) and Atom (arXiv 2310.19102): a scale and a zero a token and head;
    // Atom's premultiplied zero is a stored minimum.
    {"qserve8", "int8:token:rzero", "int8:token:rzero", 0, 0},
    {"qserve4", "int4:token:rzero", "int4:token:rzero", 0, 0},
    {"atom4", "int4:token:min", "int4:token:min", 0, 0},
    // KVQuant (arXiv 2401.18079) with a page's own ranges and even levels instead of calibrated
    // ones: K before RoPE, one value of a channel's 64 and of a token's head apart.
    {"kvquant4", "int4:channel:g64:min:prerope:out1", "int4:token:min:out1"},
    {"kvquant3", "int3:channel:g64:min:prerope:out1", "int3:token:min:out1"},
    {"kvquant2", "int2:channel:g64:min:prerope:out1", "int2:token:min:out1"},
    // Small floats of the OCP standard and of NVIDIA's block format.
    {"fp8", "fp8_e4m3", "fp8_e4m3"},
    {"mxfp4", "mxfp4", "mxfp4"},
    {"nvfp4", "nvfp4", "nvfp4"},
};

// Methods that choose among tokens or heads rather than code them; named so that the refusal can
// say where they belong.
constexpr std::string_view kPolicies[] = {"diffkv", "mikv", "qaq", "h2o", "streaming", "duo"};

std::string PresetList() {
  std::string list;
  for (const Preset& each : kPresets) list += (list.empty() ? "" : " ") + std::string(each.name);
  return list;
}

}  // namespace

Result<KvSpec> ParseKvPreset(std::string_view preset) {
  const size_t colon = preset.find(':');
  const std::string_view name = preset.substr(0, colon);
  if (std::find(std::begin(kPolicies), std::end(kPolicies), name) != std::end(kPolicies)) {
    return Status::Unsupported("'" + std::string(preset) +
                               "' is a policy over a cache of several widths, not a KV format; "
                               "formats: " +
                               PresetList() + ", K/V as two KV formats, or one for both");
  }
  const auto pair_of = [](std::string_view k, std::string_view v) -> Result<KvSpec> {
    KvSpec spec;
    KVANT_ASSIGN_OR_RETURN(spec.k, ParseFormat(k, Side::kK));
    KVANT_ASSIGN_OR_RETURN(spec.v, ParseFormat(v, Side::kV));
    return spec;
  };
  for (const Preset& each : kPresets) {
    if (each.name != preset) continue;
    KVANT_ASSIGN_OR_RETURN(KvSpec spec, pair_of(each.k, each.v));
    spec.sinks_tokens = each.sinks_tokens;
    spec.window_tokens = each.window_tokens;
    return spec;
  }
  const size_t slash = preset.find('/');
  if (slash != std::string_view::npos) {
    return pair_of(preset.substr(0, slash), preset.substr(slash + 1));
  }
  return pair_of(preset, preset);
}

std::vector<std::string> KvPresetNames() {
  std::vector<std::string> names;
  for (const Preset& each : kPresets) names.emplace_back(each.name);
  return names;
}

}  // namespace kvant
