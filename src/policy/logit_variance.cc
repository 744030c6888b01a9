#include "policy/logit_variance.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/policies.h"

namespace kvant {
namespace {

struct Step {
  size_t item;
  size_t to;  // of its options
  double price;
};

double Price(const WidthOption& from, const WidthOption& to) {
  return (to.kl - from.kl) / static_cast<double>(from.bytes - to.bytes);
}

// Steps from the widest option down along the lower convex hull.
void AddSteps(std::span<const WidthOption> options, double weight, size_t item,
              std::vector<Step>* steps) {
  for (size_t from = 0; from + 1 < options.size();) {
    size_t cheapest = from + 1;
    for (size_t to = from + 2; to < options.size(); ++to) {
      if (Price(options[from], options[to]) <= Price(options[from], options[cheapest])) {
        cheapest = to;
      }
    }
    steps->push_back({item, cheapest, weight * Price(options[from], options[cheapest])});
    from = cheapest;
  }
}

class LogitVariance : public RankedPolicy {
 public:
  explicit LogitVariance(std::vector<int> widths) : widths_(std::move(widths)) {}

  std::string name() const override { return SpecText("variance", {WidthsText(widths_)}); }
  ScoreKind score_kind() const override { return ScoreKind::kRecentMean; }
  bool needs_keys() const override { return true; }
  std::vector<int> widths() const override { return widths_; }

  // A uniform code over the key's range has a step proportional to it; the variance that it adds to
  // the logit counts as often as the token is looked at.
  void Importance(const PolicyTokens& tokens, const PolicyLimits&,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) {
      const double range = RowRange(TokenRow(tokens.k.data(), tokens.head_dim, i));
      importance[i] = tokens.score[i] * range * range;
    }
  }

 private:
  // Of a key with range 1 that takes all attention, under queries of mean square 1.
  std::vector<WidthOption> Options(const PolicyLimits& limits) const {
    std::vector<WidthOption> options;
    const int64_t written = limits.token_bytes[kWrittenWidth];
    if (written > 0) options.push_back({kWrittenWidth, written, 0});
    for (auto w = widths_.rbegin(); w != widths_.rend(); ++w) {
      const int64_t bytes = limits.token_bytes[static_cast<size_t>(*w)];
      if (!options.empty() && bytes >= options.back().bytes) continue;  // saves nothing
      const double step = 1 / (std::exp2(*w) - 1);
      options.push_back({*w, bytes, PredictedKl(step * step / 12)});
    }
    return options;
  }

  void Assign(const PolicyTokens&, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    if (limits.budget_bytes == 0) return;
    const std::vector<WidthOption> options = Options(limits);
    std::vector<WidthItem> items;
    for (const size_t i : ranking.order) {
      items.push_back({options, ranking.importance[i], width[i], limits.token_bytes[width[i]]});
    }
    LowerWidths(items, TotalBytes(limits, width) - limits.budget_bytes);
    for (size_t rank = 0; rank < items.size(); ++rank) {
      width[ranking.order[rank]] = static_cast<uint8_t>(items[rank].width);
    }
  }

  std::vector<int> widths_;  // ascending
};

}  // namespace

double PredictedLogitVariance(std::span<const float> error,
                              std::span<const float> query_mean_square) {
  double sum = 0;
  const size_t channels = query_mean_square.size();
  for (size_t i = 0; i < error.size(); ++i) {
    sum += static_cast<double>(query_mean_square[i % channels]) * error[i] * error[i];
  }
  const double tokens = static_cast<double>(error.size()) / static_cast<double>(channels);
  return sum / tokens / static_cast<double>(channels);
}

void LowerWidths(std::span<WidthItem> items, int64_t excess_bytes) {
  std::vector<Step> steps;
  for (size_t i = 0; i < items.size(); ++i) {
    AddSteps(items[i].options, items[i].weight, i, &steps);
  }
  // Stable: the steps of one item keep their order where their prices are equal.
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.price != b.price ? a.price < b.price : a.item > b.item;
  });
  for (const Step& step : steps) {
    if (excess_bytes <= 0) return;
    WidthItem& item = items[step.item];
    const WidthOption& to = item.options[step.to];
    if (to.width >= item.width) continue;  // it is narrower already
    excess_bytes -= item.bytes - to.bytes;
    item.width = to.width;
    item.bytes = to.bytes;
  }
}

std::unique_ptr<Policy> MakeLogitVariance(std::vector<int> widths) {
  return std::make_unique<LogitVariance>(std::move(widths));
}

}  // namespace kvant
