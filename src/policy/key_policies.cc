// Policies that look at keys and values alone: what a page can be judged by when it closes, before
// any later query has read it.
//
// KeyDiff (as in kvpress): a token is the more important the less its key points where keys point
// on average: -cos(k, mean of k / |k|). LagKV (as in kvpress): tokens come in parts of LAG. A part
// is seen through the range that the next one has in each channel; what varies most over channels
// then is what the next part does not repeat. Score: softmax over the part of the deviation over
// channels, mean of K and V; tokens are ranked within their part. The last whole part and the rest
// behind it are kept.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policy/policies.h"

namespace kvant {
namespace {

double Norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

class KeyDiff : public KeepRanked {
 public:
  using KeepRanked::KeepRanked;
  std::string name() const override { return SpecText("keydiff", {AmountText(keep_)}); }
  bool needs_keys() const override { return true; }

  void Importance(const PolicyTokens& tokens, const PolicyLimits&,
                  std::span<double> importance) const override {
    std::vector<double> anchor(static_cast<size_t>(tokens.head_dim));
    for (size_t i = 0; i < importance.size(); ++i) {
      const auto key = TokenRow(tokens.k.data(), tokens.head_dim, i);
      const double norm = Norm(key);
      if (tokens.width[i] == kDroppedWidth || norm == 0) continue;
      for (size_t c = 0; c < anchor.size(); ++c) anchor[c] += key[c] / norm;
    }
    const double anchor_norm =
        std::sqrt(std::inner_product(anchor.begin(), anchor.end(), anchor.begin(), 0.0));
    for (size_t i = 0; i < importance.size(); ++i) {
      const auto key = TokenRow(tokens.k.data(), tokens.head_dim, i);
      const double norms = Norm(key) * anchor_norm;
      const double dot = std::inner_product(anchor.begin(), anchor.end(), key.begin(), 0.0);
      importance[i] = norms == 0 ? 0 : -dot / norms;
    }
  }
};

// The range that some rows have in each channel.
class ChannelRanges {
 public:
  ChannelRanges(const float* rows, int head_dim, std::span<const size_t> members)
      : low_(static_cast<size_t>(head_dim), INFINITY), high_(low_.size(), -INFINITY) {
    for (const size_t i : members) {
      const auto row = TokenRow(rows, head_dim, i);
      for (size_t c = 0; c < low_.size(); ++c) {
        low_[c] = std::min(low_[c], row[c]);
        high_[c] = std::max(high_[c], row[c]);
      }
    }
  }

  // Standard deviation over channels of a row that is scaled by the ranges; a channel without one
  // says nothing.
  double Deviation(std::span<const float> row) const {
    double sum = 0, squares = 0;
    for (size_t c = 0; c < row.size(); ++c) {
      if (!(high_[c] > low_[c])) continue;
      const double x =
          (static_cast<double>(row[c]) - low_[c]) / (static_cast<double>(high_[c]) - low_[c]);
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(row.size());
    return n > 1 ? std::sqrt(std::max(0.0, (squares - sum * sum / n) / (n - 1))) : 0;
  }

 private:
  std::vector<float> low_, high_;
};

class LagKv : public KeepRanked {
 public:
  LagKv(Amount keep, int lag_tokens) : KeepRanked(keep), lag_tokens_(lag_tokens) {}
  std::string name() const override {
    return SpecText("lagkv", {AmountText(keep_), std::to_string(lag_tokens_)});
  }
  bool needs_keys() const override { return true; }
  bool needs_values() const override { return true; }

  void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                  std::span<double> importance) const override {
    const int64_t parts = (limits.length - limits.sinks) / lag_tokens_;
    for (size_t i = 0; i < importance.size(); ++i) {
      importance[i] = RecentImportance(tokens.position[i], limits.length);
    }
    for (int64_t part = 0; part + 1 < parts; ++part) {
      RankPart(tokens, Part(tokens, limits, part), Part(tokens, limits, part + 1), importance);
    }
  }

 private:
  // Indices of the tokens of one part that are alive.
  std::vector<size_t> Part(const PolicyTokens& tokens, const PolicyLimits& limits,
                           int64_t part) const {
    const int64_t first = limits.sinks + part * lag_tokens_;
    std::vector<size_t> members;
    auto at = std::lower_bound(tokens.position.begin(), tokens.position.end(), first);
    for (; at != tokens.position.end() && *at < first + lag_tokens_; ++at) {
      const auto i = static_cast<size_t>(at - tokens.position.begin());
      if (tokens.width[i] != kDroppedWidth) members.push_back(i);
    }
    return members;
  }

  // Softmax of the deviations of the members.
  static std::vector<double> Scores(const float* rows, int head_dim,
                                    std::span<const size_t> members, std::span<const size_t> next) {
    const ChannelRanges ranges(rows, head_dim, next);
    std::vector<double> scores;
    for (const size_t i : members) scores.push_back(ranges.Deviation(TokenRow(rows, head_dim, i)));
    const double top = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& s : scores) total += s = std::exp(s - top);
    for (double& s : scores) s /= total;
    return scores;
  }

  void RankPart(const PolicyTokens& tokens, std::span<const size_t> members,
                std::span<const size_t> next, std::span<double> importance) const {
    const auto k = Scores(tokens.k.data(), tokens.head_dim, members, next);
    const auto v = Scores(tokens.v, tokens.head_dim, members, next);
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return k[a] + v[a] > k[b] + v[b]; });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      importance[members[order[rank]]] = static_cast<double>(order.size() - 1 - rank) / lag_tokens_;
    }
  }

  int lag_tokens_;
};

}  // namespace

std::unique_ptr<Policy> MakeKeyDiff(Amount keep) { return std::make_unique<KeyDiff>(keep); }

std::unique_ptr<Policy> MakeLagKv(Amount keep, int lag_tokens) {
  return std::make_unique<LagKv>(keep, lag_tokens);
}

}  // namespace kvant
