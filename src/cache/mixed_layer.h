// MixedLayer: how a layer stores tokens of several widths.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "codec/fitted_table.h"
#include "format/page_layout.h"
#include "kvant/mixed_spec.h"
#include "kvant/policy.h"

namespace kvant {

struct MixedLayer {
  struct Pool {
    int width = 0;
    PageLayout layout;
    int pool = -1;  // into Cache::Impl::pools
    std::unique_ptr<const FittedTable> k_levels, v_levels;
  };
  std::vector<Pool> pools;  // wider first
  int tail_pool = -1;       // of pages as written
  std::array<int64_t, 17> token_bytes = {};

  // Of a width that has a pool.
  size_t PoolOf(int width) const {
    size_t i = 0;
    while (pools[i].width != width) ++i;
    return i;
  }
};

// kInvalidArgument for a layer of several widths that sees its newest tokens alone.
// layer_windows: as CacheOptions.
Status CheckMixedWindows(const KvSpec& spec, std::span<const int64_t> layer_windows);

}  // namespace kvant
