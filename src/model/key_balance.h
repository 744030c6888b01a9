// The balance of K's channels that rotated formats want, from the weights alone: no data.
//
// A rotation spreads the error of K evenly over its channels, but a query weighs them unevenly.
// Scaled by b = sqrt(rms q / rms k) before the rotation (the query by 1 / b), K's channels count
// alike. The rms of a channel is taken as that of its row of the projection, with the norm's
// weights in front folded in; both channels of a rope pair share one factor, so that it commutes
// with the rotation by position.
#pragma once

#include <mutex>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace kvant {

// The channel that the rotation by position turns together with c; c itself if it does not turn.
int RopePartner(const ModelConfig& config, int c);

// [layers][kv_heads][head_dim], each between 2^-10 and 2^10; 1 where a row is all zeros.
std::vector<float> KeyBalance(const ModelConfig& config, const ModelWeights& weights);

// The same, computed when it is first asked for: 90 ms for SmolLM2 (30 layers of 768 rows, Zen 4),
// where a session is otherwise made in .1. Any thread may ask.
class LazyKeyBalance {
 public:
  const std::vector<float>& Of(const ModelConfig& config, const ModelWeights& weights) {
    std::call_once(once_, [&] { balance_ = KeyBalance(config, weights); });
    return balance_;
  }

 private:
  std::once_flag once_;
  std::vector<float> balance_;
};

}  // namespace kvant
