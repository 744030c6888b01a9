// Sampler: the next token from a model's logits.
//
// Candidates are narrowed in the order top-k, top-p, min-p, all on the untempered distribution, and
// one is drawn from what is left after temperature: the order that llama.cpp's users know.
// Thread rules: a Sampler has a random state; one thread at a time. Copies continue independently.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// SplitMix64: the same numbers for the same seed on every platform.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : state_(seed) {}

  uint64_t Next();
  double NextUnit();  // uniform in [0, 1), a multiple of 2^-53

 private:
  uint64_t state_;
};

struct SamplerOptions {
  float temperature = 0.8f;  // 0: greedy, the filters and the seed do not matter
  int top_k = 40;            // keep the k likeliest; 0: all
  float top_p = 0.95f;       // keep the fewest likeliest whose probabilities sum to p; 1: all
  float min_p = 0.05f;       // keep those at least this fraction of the likeliest; 0: all
  uint64_t seed = 0;

  // kInvalidArgument names the option, its value and what is possible. The one check that every way
  // to set these options goes through.
  Status Validate() const;
};

class Sampler {
 public:
  // Fails as SamplerOptions::Validate does.
  static Result<Sampler> Create(const SamplerOptions& options);

  // Index of the chosen logit, by token id. Of equal logits the lower id counts as the likelier. An
  // id whose logit is -infinity is never chosen. kInvalidArgument if there are no logits, one is
  // NaN or +infinity (the id is named), or all are -infinity; the random state is then as before.
  // Greedy choices draw no random number, all others exactly one.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // of the distribution at hand, not normalised
  };
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  static bool Likelier(const Candidate& a, const Candidate& b);
  void KeepTopK();
  void KeepTopPAndMinP();
  int32_t Draw();

  SamplerOptions options_;
  RandomStream random_;
  std::vector<Candidate> candidates_;  // kept between calls so that a step does not allocate
};

}  // namespace kvant
