#include "cache_list.h"

#include <fmt/core.h>

#include "failure.h"

namespace kvant::cli {
namespace {

CacheList AllPresets(KvFlags kv, const std::optional<KvGeometry>& geometry) {
  CacheList list;
  const int group = kv.group;
  for (const std::string& name : KvPresetNames()) {
    kv.preset = name;
    kv.group = UnwrapArgument(ParseKvPreset(name)).k.is_float() ? 0 : group;
    const KvSpec spec = kv.Spec();
    const Status fits = geometry ? CheckKvSpec(spec, *geometry) : Status::Ok();
    if (fits.ok()) {
      list.caches.push_back({name, spec});
    } else {
      list.skipped.emplace_back(name, fits.message());
    }
  }
  return list;
}

CacheList UnderOnePolicy(const KvFlags& kv, bool sweep, const std::optional<KvGeometry>& geometry) {
  const bool only_preset = kv.k.empty() && kv.v.empty();
  if (sweep && only_preset && kv.preset.empty()) return AllPresets(kv, geometry);
  const bool several = sweep || (kv.preset + kv.k + kv.v).find(',') != std::string::npos;
  const std::vector<KvSpec> specs = several ? kv.Specs() : std::vector<KvSpec>{kv.Spec()};
  const std::vector<std::string> names = SplitList(kv.preset);
  CacheList list;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (geometry) CheckArgument(CheckKvSpec(specs[i], *geometry));
    const bool named = !kv.preset.empty() && only_preset;
    list.caches.push_back(
        {named ? names[i] : FormatSpec(specs[i].k) + "/" + FormatSpec(specs[i].v), specs[i]});
  }
  return list;
}

}  // namespace

CacheList ListCaches(const KvFlags& kv, bool sweep, const std::optional<KvGeometry>& geometry) {
  const std::vector<KvFlags> policies = kv.Policies();
  if (policies.size() == 1) return UnderOnePolicy(kv, sweep, geometry);
  CacheList all;
  for (const KvFlags& policy : policies) {
    CacheList list = UnderOnePolicy(policy, sweep, geometry);
    for (NamedSpec& cache : list.caches) {
      cache.name += fmt::format("@{}+{}", cache.spec.sinks_tokens, cache.spec.window_tokens);
      all.caches.push_back(std::move(cache));
    }
    all.skipped = std::move(list.skipped);  // the same every time
  }
  return all;
}

KvSpec BaseSpec(const KvFlags& kv, const std::string& preset) {
  const bool lists = kv.Policies().size() > 1;  // loads the calibration, which the copy then has
  KvFlags base = kv;
  if (lists) base.sinks = base.windows = "";
  base.preset = preset;
  base.k = base.v = "";
  base.group = 0;
  base.skip_layers = "";
  base.policy = base.head_classes = base.budget = "";
  return base.Spec();
}

}  // namespace kvant::cli
