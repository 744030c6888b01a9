#include "policy/qaq.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/policies.h"

namespace kvant {
namespace {

double Bits(QaqFormula formula, double sigma, double range) {
  const double max_error = 2 * std::sqrt(3.0) * sigma;
  return std::ceil(formula == QaqFormula::kPaper ? std::log2(range / max_error)
                                                 : std::log2(range / (2 * max_error) + 1));
}

// One width holds K and V of a token. It follows V's bits; K's hardly move with the score, so they
// are a matter of the widths that a pool has, not of the token.
class Qaq : public RankedPolicy {
 public:
  Qaq(double error, std::vector<int> widths) : error_(error), widths_(std::move(widths)) {}

  std::string name() const override {
    return SpecText("qaq", {NumberText(error_), WidthsText(widths_)});
  }
  ScoreKind score_kind() const override { return ScoreKind::kRecentMax; }
  bool needs_values() const override { return true; }
  std::vector<int> widths() const override { return widths_; }

  // Bits are monotone in score times range.
  void Importance(const PolicyTokens& tokens, const PolicyLimits&,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) {
      importance[i] = tokens.score[i] * RangeOf(tokens, i);
    }
  }

 private:
  static double RangeOf(const PolicyTokens& tokens, size_t i) {
    return RowRange(TokenRow(tokens.v, tokens.head_dim, i));
  }

  void Assign(const PolicyTokens& tokens, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    for (const size_t& i : ranking.order) {
      const double bits = QaqValueBits(QaqFormula::kPaper, error_, limits.length, tokens.score[i],
                                       RangeOf(tokens, i));
      // The narrowest that is enough, or the widest.
      const auto enough =
          std::find_if(widths_.begin(), widths_.end() - 1, [&](int w) { return w >= bits; });
      CapWidths({&i, 1}, *enough, width);
    }
  }

  double error_;
  std::vector<int> widths_;  // ascending
};

}  // namespace

double QaqValueBits(QaqFormula formula, double error, int64_t tokens, double score, double range) {
  const double sigma = error / (std::sqrt(static_cast<double>(tokens)) * score);
  return Bits(formula, sigma, range);
}

double QaqKeyBits(QaqFormula formula, double logit_error, int64_t tokens, double query_energy,
                  double range) {
  const auto t = static_cast<double>(tokens);
  const double variance =
      std::log1p(t * t * t / (t - 1) * logit_error * logit_error) / query_energy;
  return Bits(formula, std::sqrt(variance), range);
}

std::unique_ptr<Policy> MakeQaq(double error, std::vector<int> widths) {
  return std::make_unique<Qaq>(error, std::move(widths));
}

}  // namespace kvant
