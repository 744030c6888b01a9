// Widths by what an error of K is predicted to cost: the variance of logits, of which KL is half.
// When a page is coded its error is known exactly, so no width need be guessed: with the mean
// square of each channel of the queries, the variance is a sum over channels.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace kvant {

// Mean over tokens of E (q . e)^2 / head_dim when channels of the queries are uncorrelated.
//   error              [tokens][head_dim], decoded less original keys
//   query_mean_square  [head_dim]
double PredictedLogitVariance(std::span<const float> error,
                              std::span<const float> query_mean_square);
// To second order in the logits' error.
inline double PredictedKl(double logit_variance) { return logit_variance / 2; }

// One way to store an item (a page, a token), and the KL that it is predicted to cost.
struct WidthOption {
  int width = 0;
  int64_t bytes = 0;
  double kl = 0;
};
struct WidthItem {
  std::span<const WidthOption> options;  // widest first; bytes fall, kl does not
  double weight = 1;                     // factor of the options' kl
  int width = 0;                         // now; may be none of the options
  int64_t bytes = 0;                     // at that width
};
// Lowers widths until the items take `excess_bytes` less than now, or all have their narrowest
// option: always the step that costs least KL for each byte it saves. Options that another pair of
// options beats (that lie above the lower convex hull of kl over bytes) are not used. Of equal
// steps the later item's is taken.
void LowerWidths(std::span<WidthItem> items, int64_t excess_bytes);

}  // namespace kvant
