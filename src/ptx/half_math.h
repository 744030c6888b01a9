// One fused multiply-add of halves, rounded once.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float16.h"

namespace kvant::ptx {

inline constexpr uint16_t kF16Nan = 0x7fff;  // the one that PTX's f16 arithmetic gives

// a * b + c to the nearest half, ties to even. Every finite half is an integer times 2^-24, so the
// exact result is an integer times 2^-48 of at most 81 bits: summed as such, then rounded by hand.
// (Through float it would be rounded twice, and sometimes differ.)
uint16_t FmaF16(uint16_t a, uint16_t b, uint16_t c);

}  // namespace kvant::ptx
