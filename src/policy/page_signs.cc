#include "policy/page_signs.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kvant {

void MarkSinks(std::span<const float> norms, float ratio, std::span<uint8_t> sink) {
  if (norms.empty()) return;
  std::vector<float> sorted(norms.begin(), norms.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (size_t i = 0; i < norms.size(); ++i) sink[i] = norms[i] < ratio * *middle ? 1 : 0;
}

double PageScoreBound(std::span<const float> q, std::span<const float> low,
                      std::span<const float> high) {
  double bound = 0;
  for (size_t c = 0; c < q.size(); ++c) {
    const double at = q[c];
    bound += std::max(at * low[c], at * high[c]);
  }
  return bound;
}

std::vector<int32_t> RankPages(std::span<const float> q, std::span<const float> low,
                               std::span<const float> high) {
  std::vector<double> bounds;
  for (size_t first = 0; first < low.size(); first += q.size()) {
    bounds.push_back(
        PageScoreBound(q, low.subspan(first, q.size()), high.subspan(first, q.size())));
  }
  std::vector<int32_t> order(bounds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return bounds[static_cast<size_t>(a)] > bounds[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace kvant
