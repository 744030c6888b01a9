#include "kvant/head_classes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "policy/policies.h"

namespace kvant {

double GateThreshold(std::span<const float> gates, double sparsity) {
  std::vector<float> sorted(gates.begin(), gates.end());
  std::sort(sorted.begin(), sorted.end());
  const double at = sparsity * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return sorted[below] + part * (static_cast<double>(sorted[above]) - sorted[below]);
}

std::vector<uint8_t> FullHeads(std::span<const float> gates, double sparsity) {
  // Behind the quantile's place lie the heads whose gates reach it; at 1 even the largest streams.
  const double place = sparsity * static_cast<double>(gates.size() - 1);
  const size_t streaming = sparsity >= 1 ? gates.size() : static_cast<size_t>(std::ceil(place));
  std::vector<size_t> order(gates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return gates[a] > gates[b]; });
  std::vector<uint8_t> full(gates.size());
  for (size_t i = 0; i + streaming < order.size(); ++i) full[order[i]] = 1;
  return full;
}

std::string StreamingSpec(const HeadClasses& classes) {
  return MakeStreaming(classes.first_tokens, classes.recent_tokens)->name();
}

double HeadClassesRatio(int64_t length, double full_share, int64_t streaming_tokens) {
  const auto all = static_cast<double>(length);
  const auto streaming = static_cast<double>(std::min(length, streaming_tokens));
  return all / (full_share * all + (1 - full_share) * streaming);
}

void GatedOutput(float gate, std::span<const float> full, std::span<const float> streaming,
                 std::span<float> out) {
  for (size_t c = 0; c < out.size(); ++c) out[c] = gate * full[c] + (1 - gate) * streaming[c];
}

}  // namespace kvant
