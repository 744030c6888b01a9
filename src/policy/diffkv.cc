#include "policy/diffkv.h"

#include <limits>

#include "policy/policies.h"

namespace kvant {
namespace {

class DiffKv : public TwoWidths {
 public:
  DiffKv(DiffKvThresholds thresholds, int high_width, int low_width)
      : TwoWidths(high_width, low_width), thresholds_(thresholds) {}

  std::string name() const override {
    return SpecText("diffkv", {NumberText(thresholds_.prune), NumberText(thresholds_.low),
                               std::to_string(high_width_), std::to_string(low_width_)});
  }
  ScoreKind score_kind() const override { return ScoreKind::kRecentTop; }

 private:
  void Assign(const PolicyTokens& tokens, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    for (const size_t& i : ranking.order) {
      CapWidths({&i, 1},
                DiffKvWidth(thresholds_, tokens.score[i], limits.length, high_width_, low_width_),
                width);
    }
  }

  DiffKvThresholds thresholds_;
};

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

int DiffKvWidth(const DiffKvThresholds& thresholds, double score, int64_t n, int high_width,
                int low_width) {
  const double average = 1.0 / static_cast<double>(n);
  if (score < thresholds.prune * average) return kDroppedWidth;
  return score < thresholds.low * average ? low_width : high_width;
}

DiffKvStep ChooseDiffKvStep(const DiffKvThresholds& thresholds, std::optional<double> high_victim,
                            std::optional<double> low_victim, int64_t position) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const double high = high_victim.value_or(kNone), low = low_victim.value_or(kNone);
  const double average = 1.0 / static_cast<double>(position);
  // The lowest of all goes first; a high victim that is not the lowest may still outlive a low one.
  if (high < thresholds.prune * average && high < low) return DiffKvStep::kReplaceHigh;
  if (high >= thresholds.low * average) return DiffKvStep::kAppend;
  return low < thresholds.prune * average ? DiffKvStep::kDemoteOverLow : DiffKvStep::kDemoteToNew;
}

int64_t DiffKvPage::token_bytes() const {
  const int64_t codes = static_cast<int64_t>(head_dim) * (k_bits + v_bits) / 8;
  return codes + 4 * (k_groups + v_groups) + 8;
}

double DiffKvPage::bits() const {
  return static_cast<double>(8 * token_bytes()) / (2.0 * head_dim);
}

int64_t DiffKvPage::PageTokens(int64_t page_bytes) const {
  const auto bytes_of = [&](int64_t tokens) {
    const int64_t k = RoundUp(tokens * head_dim * k_bits / 8, 32) + tokens * 4 * k_groups;
    const int64_t v = RoundUp(k, 128) + RoundUp(tokens, 2) * head_dim * v_bits / 8;
    return RoundUp(RoundUp(v, 32) + tokens * 4 * v_groups, 32) + tokens * 8;
  };
  int64_t tokens = 0;
  while (bytes_of(tokens + 1) <= page_bytes) ++tokens;
  return tokens;
}

std::unique_ptr<Policy> MakeDiffKv(double prune, double low, int high_width, int low_width) {
  return std::make_unique<DiffKv>(DiffKvThresholds{prune, low}, high_width, low_width);
}

}  // namespace kvant
