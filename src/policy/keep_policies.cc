// Policies that keep the newest tokens, or the first and the newest: no scores.
//
// StreamingLLM (arXiv 2309.17453): the first tokens collect attention whatever they say, so a cache
// of the first few and the newest ones stays usable at any length, though not what lay between.
// Keep [0, first) and [length - recent, length). Making room for n tokens before they come is the
// same rule at length + n.
#include <utility>

#include "policy/policies.h"

namespace kvant {
namespace {

class Full : public RankedPolicy {
 public:
  explicit Full(std::vector<int> widths) : widths_(std::move(widths)) {}

  std::string name() const override {
    return widths_.empty() ? "full" : SpecText("full", {WidthsText(widths_)});
  }
  std::vector<int> widths() const override { return widths_; }
  void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) {
      importance[i] = RecentImportance(tokens.position[i], limits.length);
    }
  }

 private:
  void Assign(const PolicyTokens&, const PolicyLimits&, const Ranking&,
              std::span<uint8_t>) const override {}

  std::vector<int> widths_;  // that the budget may ask for; none: what does not fit goes
};

class Streaming : public RankedPolicy {
 public:
  Streaming(int64_t first_tokens, int64_t recent_tokens)
      : first_tokens_(first_tokens), recent_tokens_(recent_tokens) {}

  std::string name() const override {
    return SpecText("streaming", {std::to_string(first_tokens_), std::to_string(recent_tokens_)});
  }

  // The first ones above the newest ones, those above the middle.
  void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) {
      const bool first = tokens.position[i] < first_tokens_;
      importance[i] = RecentImportance(first ? limits.length : tokens.position[i], limits.length);
    }
  }

 private:
  void Assign(const PolicyTokens& tokens, const PolicyLimits& limits, const Ranking& ranking,
              std::span<uint8_t> width) const override {
    for (const size_t i : ranking.order) {
      const int64_t position = tokens.position[i];
      if (position >= first_tokens_ && position < limits.length - recent_tokens_) {
        width[i] = kDroppedWidth;
      }
    }
  }

  int64_t first_tokens_, recent_tokens_;
};

}  // namespace

std::unique_ptr<Policy> MakeFull(std::vector<int> widths) {
  return std::make_unique<Full>(std::move(widths));
}

std::unique_ptr<Policy> MakeStreaming(int64_t first_tokens, int64_t recent_tokens) {
  return std::make_unique<Streaming>(first_tokens, recent_tokens);
}

}  // namespace kvant
