#include "kvant/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace kvant {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Status BadOption(const char* name, const std::string& value, const char* possible) {
  return Status::InvalidArgument(std::string(name) + " is " + value + " but must be " + possible);
}

// Index of the largest logit, the lowest among equals, or why there is none.
Result<int32_t> ArgMax(std::span<const float> logits) {
  if (logits.empty()) return Status::InvalidArgument("there are no logits to choose from");
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -kMinusInfinity) {
      return Status::InvalidArgument("the logit of token " + std::to_string(i) + " is " +
                                     (std::isnan(logits[i]) ? "NaN" : "+infinity"));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == kMinusInfinity) {
    return Status::InvalidArgument("the logits of all " + std::to_string(logits.size()) +
                                   " tokens are -infinity");
  }
  return static_cast<int32_t>(best);
}

}  // namespace

uint64_t RandomStream::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

double RandomStream::NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

// Comparisons are written so that NaN fails them.
Status SamplerOptions::Validate() const {
  if (!(temperature >= 0 && std::isfinite(temperature))) {
    return BadOption("temperature", std::to_string(temperature), "0 (greedy) or a positive number");
  }
  if (top_k < 0) return BadOption("top-k", std::to_string(top_k), "0 (off) or more");
  if (!(top_p > 0 && top_p <= 1)) {
    return BadOption("top-p", std::to_string(top_p), "above 0 and at most 1 (off)");
  }
  if (!(min_p >= 0 && min_p <= 1)) {
    return BadOption("min-p", std::to_string(min_p), "from 0 (off) to 1");
  }
  return Status::Ok();
}

Result<Sampler> Sampler::Create(const SamplerOptions& options) {
  KVANT_RETURN_IF_ERROR(options.Validate());
  return Sampler(options);
}

bool Sampler::Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Leaves the k likeliest, likeliest first: the order fixes how later sums are rounded.
void Sampler::KeepTopK() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  const auto end = candidates_.begin() + static_cast<ptrdiff_t>(k);
  std::nth_element(candidates_.begin(), end, candidates_.end(), Likelier);
  candidates_.resize(k);
  std::sort(candidates_.begin(), candidates_.end(), Likelier);
}

// Top-p, then min-p. Both leave a beginning of the same order, so min-p may go first while top-p
// still counts what it took away: a vocabulary then need not be sorted for the few that stay.
// REQUIRES: weights relative to the likeliest, whose weight is 1.
void Sampler::KeepTopPAndMinP() {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const auto least = static_cast<double>(options_.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.weight < least; });
  if (options_.top_p >= 1) return;
  std::sort(candidates_.begin(), candidates_.end(), Likelier);
  const double wanted = total * static_cast<double>(options_.top_p);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && sum < wanted) sum += candidates_[kept++].weight;
  candidates_.resize(kept);
}

int32_t Sampler::Draw() {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double left = random_.NextUnit() * total;
  const Candidate* last = nullptr;  // rounding may leave a little after the last one
  for (const Candidate& c : candidates_) {
    if (c.weight <= 0) continue;
    last = &c;
    if (left < c.weight) break;
    left -= c.weight;
  }
  return last->id;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  KVANT_ASSIGN_OR_RETURN(const int32_t best, ArgMax(logits));
  if (options_.temperature == 0) return best;
  const auto max = static_cast<double>(logits[static_cast<size_t>(best)]);
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kMinusInfinity) candidates_.push_back({logits[i], static_cast<int32_t>(i), 0});
  }
  KeepTopK();
  for (Candidate& c : candidates_) c.weight = std::exp(static_cast<double>(c.logit) - max);
  KeepTopPAndMinP();
  const auto temperature = static_cast<double>(options_.temperature);
  for (Candidate& c : candidates_) {
    c.weight = std::exp((static_cast<double>(c.logit) - max) / temperature);
  }
  return Draw();
}

}  // namespace kvant
