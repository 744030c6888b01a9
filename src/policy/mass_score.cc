#include "policy/mass_score.h"

#include <algorithm>
#include <cstddef>

namespace kvant {

void MassScores(std::span<const float> probability, int group_ratio, int queries, int64_t tokens,
                std::span<float> score) {
  const int first_query = std::max(0, queries - kScoredQueries);
  for (int64_t j = 0; j < tokens; ++j) {
    const int first_seen =
        std::max<int>(first_query, static_cast<int>(std::max<int64_t>(0, j - (tokens - queries))));
    double most = 0;
    for (int g = 0; g < group_ratio; ++g) {
      double sum = 0;
      for (int i = first_seen; i < queries; ++i) {
        const int64_t row = static_cast<int64_t>(g) * queries + i;
        sum += probability[static_cast<size_t>(row * tokens + j)];
      }
      most = std::max(most, sum);
    }
    score[static_cast<size_t>(j)] = static_cast<float>(most / (queries - first_seen));
  }
}

void AccumulateMass(std::span<const float> probability, std::span<float> sum) {
  for (size_t j = 0; j < probability.size(); ++j) sum[j] += probability[j];
}

}  // namespace kvant
