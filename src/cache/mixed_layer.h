// MixedLayer: how a layer stores tokens of several widths.
#pragma once

#include <memory>
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
  decltype(PolicyLimits::token_bytes) token_bytes = {};

  // Of a width that has a pool.
  size_t PoolOf(int width) const {
    size_t i = 0;
    while (pools[i].width != width) ++i;
    return i;
  }
};

}  // namespace kvant
