#include "policy/ranked_policy.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

// Lowers the ranked tokens step by step until all tokens fit: first to the widest of `widths` from
// the least important one up, then to the next narrower one, at last to nothing. Whoever is lowered
// has only narrower or equal ones below, so the order of importance holds at every step.
void FitBudget(const PolicyLimits& limits, std::vector<int> widths, std::span<const size_t> order,
               std::span<uint8_t> width) {
  int64_t excess = TotalBytes(limits, width) - limits.budget_bytes;
  if (limits.budget_bytes == 0 || excess <= 0) return;
  widths.insert(widths.begin(), kDroppedWidth);
  for (auto to = widths.rbegin(); to != widths.rend(); ++to) {
    for (auto token = order.rbegin(); token != order.rend(); ++token) {
      if (excess <= 0) return;
      uint8_t& now = width[*token];
      if (now <= *to) continue;
      excess -= limits.token_bytes[now] - limits.token_bytes[static_cast<size_t>(*to)];
      now = static_cast<uint8_t>(*to);
    }
  }
}

}  // namespace

int64_t MiddleTokens(const PolicyLimits& limits) {
  return std::max<int64_t>(0, limits.length - limits.sinks - limits.window_tokens);
}

int64_t Amount::Of(int64_t tokens) const {
  if (value >= 1) return static_cast<int64_t>(value);
  return static_cast<int64_t>(value * static_cast<double>(tokens));
}

int64_t TotalBytes(const PolicyLimits& limits, std::span<const uint8_t> width) {
  int64_t bytes = 0;
  for (const uint8_t w : width) bytes += limits.token_bytes[w];
  return bytes;
}

double RowRange(std::span<const float> row) {
  constexpr double kNextToNothing = 1e-15;  // no stored key or value resolves this
  const auto [least, largest] = std::minmax_element(row.begin(), row.end());
  return std::max(kNextToNothing, static_cast<double>(*largest) - *least);
}

double RecentImportance(int64_t position, int64_t length) {
  // Beyond any float, and fine enough to tell positions apart.
  return 1e200 * (1 + static_cast<double>(position) / static_cast<double>(length));
}

std::vector<size_t> RankTokens(const PolicyTokens& tokens, const PolicyLimits& limits,
                               std::span<const double> importance) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tokens.position.size(); ++i) {
    const int64_t position = tokens.position[i];
    const bool kept = position < limits.sinks || position >= limits.length - limits.window_tokens;
    if (!kept && tokens.width[i] != kDroppedWidth) order.push_back(i);
  }
  // Stable: equals stay in the order of their positions.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return importance[a] > importance[b]; });
  return order;
}

std::span<const size_t> AllBut(std::span<const size_t> order, int64_t kept) {
  const auto tokens = static_cast<int64_t>(order.size());
  return order.subspan(static_cast<size_t>(std::clamp<int64_t>(kept, 0, tokens)));
}

void CapWidths(std::span<const size_t> tokens, int cap, std::span<uint8_t> width) {
  for (const size_t i : tokens) width[i] = std::min(width[i], static_cast<uint8_t>(cap));
}

void RankedPolicy::Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
                          std::span<uint8_t> width) const {
  std::copy(tokens.width.begin(), tokens.width.end(), width.begin());
  std::vector<double> importance(tokens.position.size());
  Importance(tokens, limits, importance);
  const std::vector<size_t> order = RankTokens(tokens, limits, importance);
  Assign(tokens, limits, {importance, order}, width);
  FitBudget(limits, widths(), order, width);
}

void KeepRanked::Assign(const PolicyTokens&, const PolicyLimits& limits, const Ranking& ranking,
                        std::span<uint8_t> width) const {
  CapWidths(AllBut(ranking.order, keep_.Of(MiddleTokens(limits))), kDroppedWidth, width);
}

void TwoWidths::Importance(const PolicyTokens& tokens, const PolicyLimits&,
                           std::span<double> importance) const {
  std::copy(tokens.score.begin(), tokens.score.end(), importance.begin());
}

}  // namespace kvant
