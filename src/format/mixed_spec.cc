#include "kvant/mixed_spec.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "format/page_layout.h"
#include "kvant/head_classes.h"
#include "kvant/policy.h"

namespace kvant {
namespace {

constexpr int kWidths[] = {16, 8, 4, 3, 2};

Status Refuse(const std::string& what) { return Status::InvalidArgument("mixed cache: " + what); }

Result<MixedPool> ParsePool(std::string_view part) {
  const size_t equals = part.find('=');
  const std::string width(part.substr(0, equals));
  MixedPool pool;
  for (const int possible : kWidths) {
    if (width == std::to_string(possible)) pool.width = possible;
  }
  if (pool.width == 0) {
    return Refuse("width '" + width + "' is not one of 16 8 4 3 2 (0 drops, and needs no format)");
  }
  if (equals == std::string_view::npos) {
    if (pool.width != 16) return Refuse("width " + width + " has no format: write " + width + "=F");
    pool.formats = {kFormatF16, kFormatF16};
    return pool;
  }
  KVANT_ASSIGN_OR_RETURN(const KvSpec spec, ParseKvPreset(part.substr(equals + 1)));
  pool.formats = {spec.k, spec.v};
  return pool;
}

// What is done to K before a format sees it; formats that ask for nothing take any.
bool TurnsVectors(const Format& f) { return f.is_rotated() || f.smooth; }
bool TurnAlike(const Format& a, const Format& b) {
  const auto how = [](const Format& f) {
    return std::tuple(f.is_rotated(), f.balanced, f.smooth, f.loaded_rotation);
  };
  return !TurnsVectors(a) || !TurnsVectors(b) || how(a) == how(b);
}

// The format of one side that says how its vectors are turned.
const Format& Leading(const std::vector<MixedPool>& pools, Format FormatPair::*side) {
  for (const MixedPool& pool : pools) {
    if (TurnsVectors(pool.formats.*side)) return pool.formats.*side;
  }
  return pools.front().formats.*side;
}

Status CheckSide(const MixedSpec& mixed, const MixedPool& pool, Format FormatPair::*side) {
  const Format& format = pool.formats.*side;
  const std::string name =
      "format " + FormatSpec(format) + " of width " + std::to_string(pool.width);
  if ((pool.width == 16 || format.is_float()) && format != kFormatF16) {
    return Refuse(name + ": width 16 is f16 on both sides, the others are coded or f16");
  }
  if (format.pre_rope) {
    return Refuse(name + " holds keys before RoPE (prerope), but pools mix positions");
  }
  if (!TurnAlike(format, Leading(mixed.pools, side))) {
    return Refuse(name + " and " + FormatSpec(Leading(mixed.pools, side)) +
                  " rotate or scale vectors in different ways");
  }
  if (!mixed.once && !format.by_token()) {
    return Refuse(name +
                  " shares figures among tokens, so that none can leave alone: take axis "
                  "token, no mean, no n8, no trellis, or choose widths once");
  }
  return Status::Ok();
}

Status CheckPolicy(const MixedSpec& mixed) {
  const Policy& policy = *mixed.policy;
  for (const int width : policy.widths()) {
    const bool has_pool = std::any_of(mixed.pools.begin(), mixed.pools.end(),
                                      [&](const MixedPool& pool) { return pool.width == width; });
    if (has_pool) continue;
    return Refuse("policy " + policy.name() + " gives width " + std::to_string(width) +
                  ", of which there is no pool in " + MixedPoolsText(mixed.pools));
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<MixedPool>> ParseMixedPools(std::string_view text) {
  std::vector<MixedPool> pools;
  while (true) {
    const size_t plus = text.find('+');
    KVANT_ASSIGN_OR_RETURN(const MixedPool pool, ParsePool(text.substr(0, plus)));
    pools.push_back(pool);
    if (plus == std::string_view::npos) break;
    text.remove_prefix(plus + 1);
  }
  std::sort(pools.begin(), pools.end(),
            [](const MixedPool& a, const MixedPool& b) { return a.width > b.width; });
  return pools;
}

std::string MixedPoolsText(const std::vector<MixedPool>& pools) {
  std::string text;
  for (const MixedPool& pool : pools) {
    if (!text.empty()) text += '+';
    text += std::to_string(pool.width) + "=" + FormatSpec(pool.formats.k) + "/" +
            FormatSpec(pool.formats.v);
  }
  return text;
}

Result<MixedSpec> ParseMixedSpec(std::string_view text) {
  constexpr std::string_view kOnce = "+once";
  if (!text.starts_with(kMixedPrefix)) {
    return Refuse("'" + std::string(text) + "' does not begin with '" + std::string(kMixedPrefix) +
                  "'");
  }
  text.remove_prefix(kMixedPrefix.size());
  MixedSpec mixed;
  mixed.once = text.ends_with(kOnce);
  if (mixed.once) text.remove_suffix(kOnce.size());
  KVANT_ASSIGN_OR_RETURN(mixed.pools, ParseMixedPools(text));
  return mixed;
}

void SetMixed(MixedSpec mixed, KvSpec* spec) {
  if (!mixed.pools.empty()) {
    spec->k = Leading(mixed.pools, &FormatPair::k);
    spec->v = Leading(mixed.pools, &FormatPair::v);
  }
  spec->mixed = std::make_shared<const MixedSpec>(std::move(mixed));
}

KvSpec WithWindows(const KvSpec& spec, std::span<const int64_t> layer_windows) {
  KvSpec held = spec;
  if (spec.mixed == nullptr) return held;
  MixedSpec mixed = *spec.mixed;
  mixed.one_width_layers.clear();
  for (size_t layer = 0; layer < layer_windows.size(); ++layer) {
    if (layer_windows[layer] != 0) mixed.one_width_layers.push_back(static_cast<int>(layer));
  }
  held.mixed = std::make_shared<const MixedSpec>(std::move(mixed));
  return held;
}

Status CheckMixedModel(const KvSpec& spec, uint64_t model_hash) {
  const HeadClasses* const heads = spec.mixed == nullptr ? nullptr : spec.mixed->heads.get();
  if (heads == nullptr || heads->model_hash == model_hash) return Status::Ok();
  return Refuse("the head classes were found for another model: its file's hash differs");
}

Status CheckMixedSnapshot(const KvSpec& spec) {
  if (spec.mixed == nullptr || spec.mixed->heads == nullptr) return Status::Ok();
  return Status::Unsupported("a cache with head classes cannot be saved or loaded");
}

Status CheckMixedSpec(const KvSpec& spec) {
  const MixedSpec& mixed = *spec.mixed;
  if (mixed.pools.empty()) return Refuse("there are no pools");
  if (mixed.policy == nullptr) return Refuse("there is no policy that chooses widths");
  if (!spec.layers.empty()) return Refuse("formats by layer are given too");
  if (mixed.heads != nullptr) KVANT_RETURN_IF_ERROR(CheckHeadClasses(*mixed.heads));
  if (mixed.budget_bytes < 0) {
    return Refuse("a budget of " + std::to_string(mixed.budget_bytes) + " bytes is negative");
  }
  if (mixed.once && mixed.budget_bytes > 0) {
    return Refuse("a budget asks for widths that change, but they are chosen once");
  }
  int wider = 17;
  for (const MixedPool& pool : mixed.pools) {
    const bool possible = std::count(std::begin(kWidths), std::end(kWidths), pool.width) == 1;
    if (!possible || pool.width >= wider) {
      return Refuse(
          "width " + std::to_string(pool.width) +
          (possible ? " stands twice, or not behind the wider ones" : " is not one of 16 8 4 3 2"));
    }
    wider = pool.width;
    KVANT_RETURN_IF_ERROR(CheckSide(mixed, pool, &FormatPair::k));
    KVANT_RETURN_IF_ERROR(CheckSide(mixed, pool, &FormatPair::v));
    const int page_tokens = PageTokensFor(pool.formats.k, pool.formats.v);
    if (page_tokens != kPageTokens) {
      return Refuse("width " + std::to_string(pool.width) + " has groups of " +
                    std::to_string(page_tokens) + " tokens, pools have pages of 64");
    }
  }
  if (spec.k != Leading(mixed.pools, &FormatPair::k) ||
      spec.v != Leading(mixed.pools, &FormatPair::v)) {
    return Refuse("formats " + FormatSpec(spec.k) + " and " + FormatSpec(spec.v) +
                  " are given beside it");
  }
  return CheckPolicy(mixed);
}

}  // namespace kvant
