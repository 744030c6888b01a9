#include "cache/head_mass.h"

#include <algorithm>

#include "format/page_layout.h"
#include "policy/mass_score.h"

namespace kvant {

static_assert(kScoredQueries == kPageTokens, "sums begin anew with each page");

int SumsOf(ScoreKind kind, int group_ratio) {
  return kind == ScoreKind::kRecentTop ? group_ratio : 1;
}

HeldPlaces::HeldPlaces(const MixedHead& head, int64_t sinks_tokens, int64_t sealed,
                       int64_t length_in)
    : length(length_in) {
  const int64_t sinks = std::min(sinks_tokens, length);
  closed = sinks;
  for (const HeadPool& pool : head.pools) closed += pool.tokens();
  open_begin = std::max(sinks, sealed * kPageTokens);
}

void AddStep(ScoreKind kind, const HeldPlaces& places, const StepProbabilities& step,
             HeadMass* mass) {
  const size_t tokens = static_cast<size_t>(places.count());
  const auto sums = static_cast<size_t>(SumsOf(kind, step.group_ratio));
  const bool starts = step.first_position % kPageTokens == 0 && kind != ScoreKind::kTotal;
  mass->next.assign(sums * tokens, 0.0f);
  const size_t before = starts ? 0 : mass->now.size() / sums;
  for (size_t s = 0; s < sums; ++s) {
    std::copy_n(mass->now.begin() + static_cast<int64_t>(s * before), before,
                mass->next.begin() + static_cast<int64_t>(s * tokens));
  }
  for (int row = 0; row < step.queries * step.group_ratio; ++row) {
    const float* const p = step.rows + row * step.stride;
    const size_t sum = sums == 1 ? 0 : static_cast<size_t>(row % step.group_ratio);
    float* const to = mass->next.data() + sum * tokens;
    const auto add = [&](const float* from, int64_t count, float* into) {
      const auto n = static_cast<size_t>(count);
      if (kind != ScoreKind::kRecentMax) return AccumulateMass({from, n}, {into, n});
      for (size_t i = 0; i < n; ++i) into[i] = std::max(into[i], from[i]);
    };
    add(p, places.closed, to);
    add(p + places.open_begin, places.length - places.open_begin, to + places.closed);
  }
}

float ScoreOf(ScoreKind kind, int group_ratio, std::span<const float> now, int64_t tokens,
              int64_t place, int64_t position, int64_t length) {
  const auto seen_by = static_cast<float>(std::min<int64_t>(kPageTokens, length - position));
  const float sum = now[static_cast<size_t>(place)];
  if (kind == ScoreKind::kRecentMean) return sum / (seen_by * static_cast<float>(group_ratio));
  if (kind != ScoreKind::kRecentTop) return sum;
  float most = sum;
  for (int g = 1; g < group_ratio; ++g) {
    most = std::max(most, now[static_cast<size_t>(g * tokens + place)]);
  }
  return most / seen_by;
}

}  // namespace kvant
