// The policies by name: what ParsePolicy makes. Each one's file says where it comes from.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/policy.h"
#include "policy/number_text.h"
#include "policy/ranked_policy.h"

namespace kvant {

std::unique_ptr<Policy> MakeFull(std::vector<int> widths = {});
std::unique_ptr<Policy> MakeStreaming(int64_t first_tokens, int64_t recent_tokens);
std::unique_ptr<Policy> MakeH2o(Amount heavy, Amount recent, bool mean);
std::unique_ptr<Policy> MakeSnapKv(Amount keep, int pool_tokens);
std::unique_ptr<Policy> MakeKeyDiff(Amount keep);
std::unique_ptr<Policy> MakeLagKv(Amount keep, int lag_tokens);
std::unique_ptr<Policy> MakeDiffKv(double prune, double low, int high_width, int low_width);
std::unique_ptr<Policy> MakeMiKv(Amount high, int high_width, int low_width);
// widths: ascending, not empty.
std::unique_ptr<Policy> MakeQaq(double error, std::vector<int> widths);
std::unique_ptr<Policy> MakeLogitVariance(std::vector<int> widths);

// "name:a,b,c": how all names are printed.
std::string SpecText(std::string_view name, std::initializer_list<std::string> arguments);
// An amount of everything prints as "all".
std::string AmountText(const Amount& amount);
std::string WidthsText(std::span<const int> widths);

// As many tokens as there are.
inline constexpr Amount kAllTokens{0x1p62};

}  // namespace kvant
