#include "policy/mikv.h"

#include <cmath>

#include "policy/policies.h"

namespace kvant {
namespace {

class MiKv : public TwoWidths {
 public:
  MiKv(Amount high, int high_width, int low_width)
      : TwoWidths(high_width, low_width), high_(high) {}

  std::string name() const override {
    return SpecText("mikv",
                    {AmountText(high_), std::to_string(high_width_), std::to_string(low_width_)});
  }
  ScoreKind score_kind() const override { return ScoreKind::kTotal; }

 private:
  void Assign(const PolicyTokens&, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    CapWidths(ranking.order, high_width_, width);
    CapWidths(AllBut(ranking.order, high_.Of(MiddleTokens(limits))), low_width_, width);
  }

  Amount high_;
};

}  // namespace

void ChannelBalance(std::span<const float> q_absmax, std::span<const float> k_absmax,
                    std::span<float> balance) {
  for (size_t c = 0; c < balance.size(); ++c) {
    const bool balanced = q_absmax[c] > 0 && k_absmax[c] > 0;
    balance[c] = balanced ? std::sqrt(q_absmax[c] / k_absmax[c]) : 1.0f;
  }
}

double MeanBits(std::span<const WidthShare> kinds) {
  double bits = 0;
  for (const WidthShare& kind : kinds) bits += kind.share * kind.bits;
  return bits;
}

std::unique_ptr<Policy> MakeMiKv(Amount high, int high_width, int low_width) {
  return std::make_unique<MiKv>(high, high_width, low_width);
}

}  // namespace kvant
