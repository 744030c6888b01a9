// V skip: rows of V that hardly any attention falls on are not read. The sum of probabilities keeps
// them, so the output misses exactly what they would have added.
//
// Thread rules: pure function.
#pragma once

#include <cstdint>
#include <span>

namespace kvant {

struct ValueSkip {
  int64_t skipped_tokens = 0;
  double skipped_mass = 0;  // sum of their probabilities
  // |change of the output| <= error_bound <= coarse_bound, in exact arithmetic.
  double error_bound = 0;   // sum of p |v| over skipped tokens
  double coarse_bound = 0;  // skipped_mass times the largest |v| of all tokens
};

// Marks tokens with a probability below tau. probability, value_norm, skip: [tokens]. Probabilities
// of one query; where several rows share a pass over V, the largest of each token.
ValueSkip SkipValues(std::span<const float> probability, std::span<const float> value_norm,
                     float tau, std::span<uint8_t> skip);

}  // namespace kvant
