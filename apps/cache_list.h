// The caches that eval and tasks compare with a base.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "options.h"

namespace kvant::cli {

struct NamedSpec {
  std::string name;  // as the user or the list of presets calls it
  KvSpec spec;
};

struct CacheList {
  std::vector<NamedSpec> caches;
  std::vector<std::pair<std::string, std::string>> skipped;  // preset, why
};

// What --kv, -ctk and -ctv list; with `sweep` and none of them every preset, less those that the
// geometry cannot take. Throws a usage error for a listed one that it cannot take. Without a
// geometry nothing is held against it. Where --kv-sinks and --kv-window are lists, all of this
// under every pair of them, with names as int4@64+256: sinks, then window.
CacheList ListCaches(const KvFlags& kv, bool sweep, const std::optional<KvGeometry>& geometry);

// A preset under the same policy of sinks and window; under its own where those are lists.
KvSpec BaseSpec(const KvFlags& kv, const std::string& preset);

}  // namespace kvant::cli
