#include "policy/head_budget.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace kvant {

std::vector<int64_t> PoolOverHeads(std::span<const std::span<const double>> importance,
                                   int64_t keep_tokens, double floor) {
  const size_t heads = importance.size();
  std::vector<int64_t> kept(heads);
  if (heads == 0) return kept;
  const double share = static_cast<double>(keep_tokens) / static_cast<double>(heads);
  struct Rest {
    double importance;
    size_t head;
  };
  std::vector<Rest> rest;  // what each head has beyond its floor
  int64_t left = keep_tokens;
  for (size_t h = 0; h < heads; ++h) {
    std::vector<double> sorted(importance[h].begin(), importance[h].end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    kept[h] = std::min(static_cast<int64_t>(floor * share), static_cast<int64_t>(sorted.size()));
    left -= kept[h];
    for (size_t i = static_cast<size_t>(kept[h]); i < sorted.size(); ++i) {
      rest.push_back({sorted[i], h});
    }
  }
  std::stable_sort(rest.begin(), rest.end(),
                   [](const Rest& a, const Rest& b) { return a.importance > b.importance; });
  for (const Rest& token : rest) {
    if (left-- <= 0) break;
    ++kept[token.head];
  }
  return kept;
}

}  // namespace kvant
