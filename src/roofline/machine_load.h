// The arithmetic behind LoadMeter, apart from the files it reads.
#pragma once

#include <optional>
#include <string_view>

#include "kvant/machine_load.h"

namespace kvant {

// The cores' times out of the text of /proc/stat (own_s stays 0); nothing if it has no such lines.
std::optional<CoreTimes> ParseCoreTimes(std::string_view proc_stat, double ticks_per_s);

// What lies between two moments; load_average is left 0.
MachineLoad LoadBetween(const CoreTimes& begin, const CoreTimes& end, double seconds);

}  // namespace kvant
