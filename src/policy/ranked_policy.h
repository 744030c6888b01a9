// What all policies share: which tokens may change, their order, and the fit to a budget of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvant/policy.h"

namespace kvant {

// Tokens between sinks and window, dropped ones included: what shares are shares of. It follows
// from the length alone, so that a share means the same before and after tokens were dropped.
int64_t MiddleTokens(const PolicyLimits& limits);

// A number of tokens: a share of them below 1, tokens from 1 on.
struct Amount {
  double value = 0;
  int64_t Of(int64_t tokens) const;
};

// Bytes of all tokens at these widths.
int64_t TotalBytes(const PolicyLimits& limits, std::span<const uint8_t> width);

// Row i of rows [tokens][head_dim].
inline std::span<const float> TokenRow(const float* rows, int head_dim, size_t i) {
  const auto channels = static_cast<size_t>(head_dim);
  return {rows + i * channels, channels};
}

// Largest less least value; of a constant row next to nothing, so that products with a score still
// tell scores apart.
double RowRange(std::span<const float> row);

// Importance of a token that is kept for being recent: above every score, the newer the more.
double RecentImportance(int64_t position, int64_t length);

// Indices of the tokens that may change (alive, neither sinks nor window), most important first.
std::vector<size_t> RankTokens(const PolicyTokens& tokens, const PolicyLimits& limits,
                               std::span<const double> importance);

// A ranking without its first `kept`.
std::span<const size_t> AllBut(std::span<const size_t> order, int64_t kept);

// Lowers each of these tokens to `cap` at most.
void CapWidths(std::span<const size_t> tokens, int cap, std::span<uint8_t> width);

// A Choose in three steps: rank by Importance, Assign by the method's own rule, fit to the budget.
class RankedPolicy : public Policy {
 public:
  void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
              std::span<uint8_t> width) const final;

 protected:
  struct Ranking {
    std::span<const double> importance;  // [tokens]
    std::span<const size_t> order;       // RankTokens()
  };
  // Lowers widths, those of less important tokens at least as far as those of more important ones.
  virtual void Assign(const PolicyTokens& tokens, const PolicyLimits& limits,
                      const Ranking& ranking, std::span<uint8_t> width) const = 0;
};

// Keeps the KEEP most important tokens as they are and drops the others.
class KeepRanked : public RankedPolicy {
 public:
  explicit KeepRanked(Amount keep) : keep_(keep) {}

 protected:
  const Amount keep_;

 private:
  void Assign(const PolicyTokens& tokens, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override;
};

// Two widths by the score alone.
class TwoWidths : public RankedPolicy {
 public:
  TwoWidths(int high_width, int low_width) : high_width_(high_width), low_width_(low_width) {}
  std::vector<int> widths() const override { return {low_width_, high_width_}; }
  void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                  std::span<double> importance) const override;

 protected:
  const int high_width_, low_width_;
};

}  // namespace kvant
