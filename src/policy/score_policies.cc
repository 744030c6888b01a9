// Policies that keep what attention looked at and drop the rest.
//
// H2O (arXiv 2306.14048): the probability that a token received, summed over all queries, for the
// HEAVY highest of the old tokens; and the RECENT newest ones. A token that came early was seen by
// more queries, so the sum favours the beginning; `mean` divides by the queries that could see it.
// SnapKV (as in kvpress): the scores of the last queries, averaged over neighbours so that what
// surrounds a find is kept with it.
#include <algorithm>

#include "policy/policies.h"

namespace kvant {
namespace {

class H2o : public RankedPolicy {
 public:
  H2o(Amount heavy, Amount recent, bool mean) : heavy_(heavy), recent_(recent), mean_(mean) {}

  std::string name() const override {
    const std::string text = SpecText("h2o", {AmountText(heavy_), AmountText(recent_)});
    return mean_ ? text + ",mean" : text;
  }
  ScoreKind score_kind() const override { return ScoreKind::kTotal; }

  void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) {
      const int64_t queries = limits.length - tokens.position[i];  // its own among them
      importance[i] = IsRecent(tokens, limits, i)
                          ? RecentImportance(tokens.position[i], limits.length)
                          : tokens.score[i] / (mean_ ? static_cast<double>(queries) : 1.0);
    }
  }

 private:
  bool IsRecent(const PolicyTokens& tokens, const PolicyLimits& limits, size_t i) const {
    return tokens.position[i] >= limits.length - recent_.Of(MiddleTokens(limits));
  }
  void Assign(const PolicyTokens& tokens, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    const auto old = std::find_if(ranking.order.begin(), ranking.order.end(),
                                  [&](size_t i) { return !IsRecent(tokens, limits, i); });
    const int64_t recents = old - ranking.order.begin();
    CapWidths(AllBut(ranking.order, recents + heavy_.Of(MiddleTokens(limits))), kDroppedWidth,
              width);
  }

  Amount heavy_, recent_;
  bool mean_;
};

class SnapKv : public KeepRanked {
 public:
  SnapKv(Amount keep, int pool_tokens) : KeepRanked(keep), pool_tokens_(pool_tokens) {}

  std::string name() const override {
    return SpecText("snapkv", {AmountText(keep_), std::to_string(pool_tokens_)});
  }
  ScoreKind score_kind() const override { return ScoreKind::kRecentMean; }

  // Neighbours are those in the span, dropped or not; beyond its ends they count as 0.
  void Importance(const PolicyTokens& tokens, const PolicyLimits&,
                  std::span<double> importance) const override {
    const auto count = static_cast<int64_t>(importance.size());
    const int64_t reach = pool_tokens_ / 2;
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(count - 1, i + reach); ++j) {
        sum += tokens.score[static_cast<size_t>(j)];
      }
      importance[static_cast<size_t>(i)] = sum / pool_tokens_;
    }
  }

 private:
  int pool_tokens_;
};

}  // namespace

std::unique_ptr<Policy> MakeH2o(Amount heavy, Amount recent, bool mean) {
  return std::make_unique<H2o>(heavy, recent, mean);
}

std::unique_ptr<Policy> MakeSnapKv(Amount keep, int pool_tokens) {
  return std::make_unique<SnapKv>(keep, pool_tokens);
}

}  // namespace kvant
