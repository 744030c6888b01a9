// The sentences of kvant explain.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/explain.h"

namespace kvant::cli {

std::string CacheText(const KvExplanation& e);

// Beside what kvant holds; of KIVI's presets.
std::string KiviText(const KiviResidual& residual, const KvExplanation& e);

// group[0] is worked through; the others stand beside it.
std::string GroupText(std::span<const float> values, const std::vector<GroupExample>& group);

std::string_view OffsetWord(Offset offset);               // "integer zero"
std::string HexBytes(const std::vector<uint8_t>& bytes);  // "29 5F C0 46"

}  // namespace kvant::cli
