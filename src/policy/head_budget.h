// AdaKV (as in kvpress): one budget for all heads of a layer. Heads whose attention is spread out
// need more tokens than those that look at a few.
//
// Thread rules: pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvant {

inline constexpr double kHeadBudgetFloor = 0.2;

// How many tokens each head keeps of `keep_tokens` over all heads: `floor` of an even share for its
// own most important ones (rounded down), then the most important ones of all heads. Of equals the
// lower head's, then the earlier token's, counts as the more important one.
//   importance [heads][tokens of the head], comparable between heads
std::vector<int64_t> PoolOverHeads(std::span<const std::span<const double>> importance,
                                   int64_t keep_tokens, double floor = kHeadBudgetFloor);

}  // namespace kvant
