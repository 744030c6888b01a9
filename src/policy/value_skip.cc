#include "policy/value_skip.h"

#include <algorithm>
#include <cstddef>

namespace kvant {

ValueSkip SkipValues(std::span<const float> probability, std::span<const float> value_norm,
                     float tau, std::span<uint8_t> skip) {
  ValueSkip result;
  double largest = 0;
  for (size_t i = 0; i < probability.size(); ++i) {
    largest = std::max<double>(largest, value_norm[i]);
    skip[i] = probability[i] < tau ? 1 : 0;
    if (skip[i] == 0) continue;
    ++result.skipped_tokens;
    result.skipped_mass += probability[i];
    result.error_bound += static_cast<double>(probability[i]) * value_norm[i];
  }
  result.coarse_bound = result.skipped_mass * largest;
  return result;
}

}  // namespace kvant
