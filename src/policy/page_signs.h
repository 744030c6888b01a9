// What a page shows without attention: tokens that act as sinks, and how high its scores can get.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvant {

// Sinks are not only the first tokens: any token whose key is far shorter than those around it
// (KVSink, arXiv 2508.04257; OScaR, arXiv 2605.19660). Marks norms below `ratio` of the page's
// median, the lower one of two. norms, sink: [tokens of the page].
void MarkSinks(std::span<const float> norms, float ratio, std::span<uint8_t> sink);

// Quest's bound of a page's scores from the least and the largest value of each channel of its
// keys: sum over channels of the larger of q * low and q * high. No key of the page scores more,
// most pages far less: it is there to rank pages, not to leave any out for certain. All [head_dim].
double PageScoreBound(std::span<const float> q, std::span<const float> low,
                      std::span<const float> high);

// Pages by falling bound; the lower page of equals first. low, high: [pages][head_dim].
std::vector<int32_t> RankPages(std::span<const float> q, std::span<const float> low,
                               std::span<const float> high);

}  // namespace kvant
