// MiKV (arXiv 2402.18096, for which no code is public: rebuilt from what others say of it): all
// tokens stay, the unimportant ones in few bits.
//
// Thread rules: pure functions.
#pragma once

#include <span>

namespace kvant {

// Factors of K's channels from a prompt: sqrt(max |q| / max |k|), so that keys times b and queries
// divided by b have one range a channel and the same dots. 1 where a channel of either is all 0.
// All spans [head_dim]; with several q heads a KV head, q_absmax is the largest over them.
void ChannelBalance(std::span<const float> q_absmax, std::span<const float> k_absmax,
                    std::span<float> balance);

// Tokens of one kind: their share of all tokens, and bits a value with metadata.
struct WidthShare {
  double share = 0;
  double bits = 0;
};
// Bits a value of the whole; what is dropped adds its share at 0 bits, or may be left out.
double MeanBits(std::span<const WidthShare> kinds);

}  // namespace kvant
