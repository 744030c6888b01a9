// Attention mass: what queries gave to each token, as the policies want it.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace kvant {

inline constexpr int kScoredQueries = 64;

// DiffKV's score (arXiv 2412.03131): the mean over the queries that a token was seen by, of the
// last 64 at most, its own among them; of the G q heads of a KV head the largest.
//   probability [group_ratio][queries][tokens]: rows of the last queries, row i that of the token
//   at
//               tokens - queries + i; what lies behind a row's own token is not read
//   score       [tokens]; tokens that no row sees do not exist: the last row sees all
void MassScores(std::span<const float> probability, int group_ratio, int queries, int64_t tokens,
                std::span<float> score);

// H2O's score (arXiv 2306.14048), query by query: adds a row of probabilities over the first tokens
// to the sums of all. f32 sums of probabilities: 16 bits would stop to count at 2,048.
void AccumulateMass(std::span<const float> probability, std::span<float> sum);

}  // namespace kvant
