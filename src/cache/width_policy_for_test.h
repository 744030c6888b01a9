// Widths that anybody can recompute, and specs whose policy gives them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvant/mixed_spec.h"
#include "kvant/policy.h"
#include "policy/width_policy.h"

namespace kvant {

inline uint32_t HashOf(int64_t position) {
  return static_cast<uint32_t>((static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15u >> 40);
}

// 16, 8, 4, 2 or dropped, a fifth of the positions each.
inline int HashedWidth(int64_t position, int64_t) {
  constexpr int kWidths[] = {16, 8, 4, 2, 0};
  return kWidths[HashOf(position) % 5];
}
// Starts at 8, 4, 2 or 0 and loses a width every 1 to 4 pages, most stay at 2.
inline int AgeingWidth(int64_t position, int64_t length) {
  constexpr int kWidths[] = {8, 4, 2, 0};
  const int64_t age = (length - position) / 64, patience = 1 + HashOf(position) / 4 % 4;
  const int64_t last = HashOf(position) / 16 % 4 == 0 ? 3 : 2;
  const int64_t first = HashOf(position) % 4;
  return kWidths[std::max(first, std::min(last, first + age / (4 * patience)))];
}

inline KvSpec MakeMixedSpec(const std::string& pools, WidthOf width_of, bool once = false,
                            int sinks = 4, int window = 64) {
  const Result<std::vector<MixedPool>> parsed = ParseMixedPools(pools);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  KvSpec spec;
  spec.sinks_tokens = sinks;
  spec.window_tokens = window;
  SetMixed({.pools = *parsed,
            .policy = std::make_shared<WidthPolicy>(std::move(width_of)),
            .once = once},
           &spec);
  return spec;
}

inline constexpr char kTokenPools[] =
    "16+8=int8:token/int8:token+4=int4:token:min/int4:token+2=int2:token:g32/int2:token:g32";

}  // namespace kvant
