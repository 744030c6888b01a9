// The levels of iq4_nl, in units of the scale; ascending. Data only: per-ISA files include it.
#pragma once

#include <cstdint>

namespace kvant {

inline constexpr int8_t kIq4NlLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace kvant
