// FP8 and FP4: groups of small floats of the OCP standard with one scale.
//
//   fp8_e4m3  s = amax / 448 as f16              one group a token and head
//   fp8_e5m2  s = amax / 57344 as f16
//   mxfp4     s = 2^(floor(log2 amax) - 2)       groups of 32 channels; amax / s is in [4, 8)
//   mxfp4:c20 s = 2^floor(log2(.2 amax) + .5)
//   nvfp4     s = amax / 6 as E4M3               groups of 16 channels; no outer scale: it is 1
//   nvfp4_4over6  amax / 6 or amax / 4 as E4M3, the one with the smaller squared error
//   if4       s = amax / 6 as E4M3; codes are E2M1, or where that has the smaller squared error and
//             the scale's sign bit is set, the nearest whole numbers -7 .. 7 in units of 6/7 s, in
//             two's complement
//
// A code is the float nearest to x / s with s as stored, half to even, and it saturates; zeros keep
// their sign. A group of zeros has scale 0 (byte 0, which E8M0 reads as 2^-127) and codes 0.
// The ends of E4M3 scales: one that would round to 0 becomes the smallest, 2^-9, so groups with
// amax below .1 lose precision and values below .0005 vanish; the largest is 448, so values
// saturate beyond +-2688. Formats with E8M0 or f16 scales hold all that f16 does. Thread rules:
// pure functions on the caller's memory.
#pragma once

#include <cstdint>
#include <span>

#include "kvant/format.h"

namespace kvant {

// Codes one group and gives its scale as stored, in 16 or in 8 bits.
//   codes  [values.size()] or more: bytes of an FP8, nibbles of an FP4 format
// REQUIRES: finite values that f16 holds.
uint16_t EncodeSmallFloats(const Format& format, std::span<const float> values,
                           std::span<uint8_t> codes);

// Negative where if4 has whole numbers.
float SmallFloatScale(const Format& format, uint16_t stored);
// Value of a code of a group whose scale is stored so.
float SmallFloatValue(const Format& format, uint16_t stored, uint8_t code);

}  // namespace kvant
