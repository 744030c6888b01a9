// What a cache as a whole is asked for: the formats of all its layers, sinks, window.
#include <algorithm>
#include <string>
#include <vector>

#include "format/page_layout.h"
#include "kvant/calibration.h"
#include "kvant/format.h"
#include "kvant/mixed_spec.h"

namespace kvant {
namespace {

// One side of a layer, in a cache.
Status CheckCachedFormat(const Format& format, Side side, const KvSpec& spec, int head_dim) {
  KVANT_RETURN_IF_ERROR(CheckFormat(format, side, head_dim));
  if (format.levels == Levels::kIf4) {
    return Status::InvalidArgument("KV format if4 is possible for arrays only: no kernel reads it");
  }
  if (format.needs_calibration() && spec.calibration == nullptr) {
    return Status::InvalidArgument(std::string(side == Side::kK ? "K" : "V") + " format " +
                                   FormatSpec(format) +
                                   " needs a calibration of the model, and there is none: make one "
                                   "with kvant calibrate, name it with --calibration");
  }
  return Status::Ok();
}

bool IsSkipped(const KvSpec& spec, int layer) {
  const std::vector<int>& skipped = spec.skip_layers;
  return std::find(skipped.begin(), skipped.end(), layer) != skipped.end();
}

std::string ShapeText(const KvGeometry& g) {
  return std::to_string(g.layers) + " layers of " + std::to_string(g.kv_heads) + " KV heads of " +
         std::to_string(g.head_dim) + " channels" +
         (g.is_latent() ? ", of which a latent of " + std::to_string(g.latent_dim) : "");
}

// A latent is read as K and as V: what is done to one of them only, and undone on the other side of
// a product, would be wrong for the other.
Status CheckLatentFormat(const Format& format, Side side) {
  const std::string_view why = format.is_rotated() ? "rotated"
                               : format.balanced   ? "balanced"
                               : format.smooth     ? "smoothed"
                               : format.pre_rope   ? "kept before RoPE"
                                                   : "";
  if (why.empty()) return Status::Ok();
  return Status::InvalidArgument(
      std::string(side == Side::kK ? "K" : "V") + " format " + FormatSpec(format) +
      " is not possible for multi-head latent attention: the latent is K and V in one, and cannot "
      "be " +
      std::string(why) +
      " for one of them; possible: f16 and all int, q and fp formats without "
      "had, rot, smooth and prerope");
}

// A policy takes a narrower width to cost less, and the widest one less than f16.
Status CheckPoolBytes(const MixedSpec& mixed, int head_dim) {
  const auto bytes_of = [&](const FormatPair& pair) {
    return MakePageLayout(pair.k, pair.v, head_dim, kPageTokens).page_bytes;
  };
  int wider = bytes_of({kFormatF16, kFormatF16});
  for (const MixedPool& pool : mixed.pools) {
    const int bytes = bytes_of(pool.formats);
    if (bytes > wider) {
      return Status::InvalidArgument("mixed widths: a page of width " + std::to_string(pool.width) +
                                     " takes " + std::to_string(bytes) + " bytes, more than the " +
                                     std::to_string(wider) + " of the next wider one");
    }
    wider = bytes;
  }
  return Status::Ok();
}

Status CheckLayers(const KvSpec& spec, const KvGeometry& geometry) {
  if (spec.calibration != nullptr && spec.calibration->geometry != geometry) {
    return Status::InvalidArgument("the calibration is of " +
                                   ShapeText(spec.calibration->geometry) + ", the model has " +
                                   ShapeText(geometry));
  }
  if (!spec.layers.empty() && spec.layers.size() != static_cast<size_t>(geometry.layers)) {
    return Status::InvalidArgument("formats of " + std::to_string(spec.layers.size()) +
                                   " layers are given, but the model has " +
                                   std::to_string(geometry.layers));
  }
  std::vector<FormatPair> pairs = spec.layers;
  if (pairs.empty()) pairs.push_back({spec.k, spec.v});
  if (spec.mixed != nullptr) {
    if (geometry.is_latent()) {
      return Status::InvalidArgument(
          "policies and mixed widths are not possible for multi-head latent attention: they judge "
          "K and V of a head apart, and its heads share one latent");
    }
    KVANT_RETURN_IF_ERROR(CheckMixedSpec(spec));
    for (const MixedPool& pool : spec.mixed->pools) pairs.push_back(pool.formats);
  }
  for (const FormatPair& pair : pairs) {
    KVANT_RETURN_IF_ERROR(CheckCachedFormat(pair.k, Side::kK, spec, geometry.k_channels()));
    KVANT_RETURN_IF_ERROR(CheckCachedFormat(pair.v, Side::kV, spec, geometry.v_channels()));
    if (!geometry.is_latent()) continue;
    KVANT_RETURN_IF_ERROR(CheckLatentFormat(pair.k, Side::kK));
    KVANT_RETURN_IF_ERROR(CheckLatentFormat(pair.v, Side::kV));
  }
  return spec.mixed == nullptr ? Status::Ok() : CheckPoolBytes(*spec.mixed, geometry.head_dim);
}

}  // namespace

Status CheckGeometry(const KvGeometry& g) {
  const auto bad = [](const std::string& what) { return Status::InvalidArgument(what); };
  if (g.layers < 1 || g.layers > 1024) {
    return bad("layer count " + std::to_string(g.layers) + " is not between 1 and 1024");
  }
  if (g.kv_heads < 1 || g.kv_heads > 4096) {
    return bad("KV head count " + std::to_string(g.kv_heads) + " is not between 1 and 4096");
  }
  if (g.q_heads < 1 || g.q_heads > 4096 || g.q_heads % g.kv_heads != 0) {
    return bad("q head count " + std::to_string(g.q_heads) + " is not a multiple of " +
               std::to_string(g.kv_heads) + " KV heads");
  }
  KVANT_RETURN_IF_ERROR(CheckFormat(kFormatF16, Side::kK, g.head_dim));
  if (!g.is_latent()) return Status::Ok();
  if (g.kv_heads != 1) {
    return bad("a latent is shared by all heads, but there are " + std::to_string(g.kv_heads) +
               " KV heads");
  }
  if (g.latent_dim < 4 || g.latent_dim > g.head_dim - 4 || g.latent_dim % 4 != 0) {
    return bad("a latent of " + std::to_string(g.latent_dim) + " channels of " +
               std::to_string(g.head_dim) +
               " is not a multiple of 4 that leaves at least 4 to the RoPE key");
  }
  return Status::Ok();
}

Status CheckKvSpec(const KvSpec& spec, const KvGeometry& geometry) {
  KVANT_RETURN_IF_ERROR(CheckGeometry(geometry));
  KVANT_RETURN_IF_ERROR(CheckLayers(spec, geometry));
  if (spec.sinks_tokens < 0 || spec.sinks_tokens > kPageTokens) {
    return Status::InvalidArgument("kv-sinks " + std::to_string(spec.sinks_tokens) +
                                   " is not between 0 and 64 tokens");
  }
  if (spec.window_tokens < 0 || spec.window_tokens % kPageTokens != 0 ||
      spec.window_tokens > (1 << 20)) {
    return Status::InvalidArgument("kv-window " + std::to_string(spec.window_tokens) +
                                   " is not a multiple of 64 tokens between 0 and 1048576");
  }
  for (int layer : spec.skip_layers) {
    if (layer < 0 || layer >= geometry.layers) {
      return Status::InvalidArgument("kv-skip-layers names layer " + std::to_string(layer) +
                                     ", but the model has layers 0 to " +
                                     std::to_string(geometry.layers - 1));
    }
  }
  return Status::Ok();
}

bool IsMixedLayer(const KvSpec& spec, int layer) {
  if (spec.mixed == nullptr || IsSkipped(spec, layer)) return false;
  const std::vector<int>& others = spec.mixed->one_width_layers;
  return std::find(others.begin(), others.end(), layer) == others.end();
}

FormatPair LayerFormats(const KvSpec& spec, int layer) {
  if (IsSkipped(spec, layer)) return {kFormatF16, kFormatF16};
  return spec.layers.empty() ? FormatPair{spec.k, spec.v} : spec.layers[static_cast<size_t>(layer)];
}

}  // namespace kvant
