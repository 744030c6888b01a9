// WidthPolicy: a policy whose widths a function of position and length gives, for benchmarks and
// tests. Sinks and window stay as they are, and no token gets wider, as with every policy.
//
// Thread rules: those of the function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "kvant/policy.h"

namespace kvant {

// The width of a position in a sequence of `length` tokens; never more for a longer one.
using WidthOf = std::function<int(int64_t position, int64_t length)>;

class WidthPolicy : public Policy {
 public:
  explicit WidthPolicy(WidthOf width_of) : width_of_(std::move(width_of)) {}
  std::string name() const override { return "by position"; }
  void Importance(const PolicyTokens& tokens, const PolicyLimits&,
                  std::span<double> importance) const override {
    for (size_t i = 0; i < importance.size(); ++i) importance[i] = tokens.position[i];
  }
  void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
              std::span<uint8_t> width) const override {
    for (size_t i = 0; i < width.size(); ++i) {
      const int64_t position = tokens.position[i];
      const bool fixed =
          position < limits.sinks || position >= limits.length - limits.window_tokens;
      width[i] = tokens.width[i];
      if (fixed) continue;
      width[i] = std::min(width[i], static_cast<uint8_t>(width_of_(position, limits.length)));
    }
  }

 private:
  WidthOf width_of_;
};

}  // namespace kvant
