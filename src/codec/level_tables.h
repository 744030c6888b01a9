// The tables of the normed formats: levels of a normal distribution as signed 8-bit numbers, so
// that integer dots read them exactly. Rounding them to 8 bits adds less than 1.5 % to the error.
//
//   Lloyd-Max   nearest level; mean square error on N(0, 1): .1175 / .0345 / .0095 at 2 / 3 / 4
//               bits
//   trellis     level of element i = levels[window_bits bits of the stream of codes from element
//               i on], lowest first, zeros after the last: .0922 / .0276 with 16 levels at 2 / 3
//               bits, .0861 / .0247 / .0065 with 64 at 2 / 3 / 4 (trellis-coded quantisation, as
//               QTIP, arXiv 2406.11235, uses it for weights)
//   nested      the upper bits of a 4-bit Lloyd-Max code; a level is the mean of what it stands
//               for, scaled so that vectors keep the length that their 4-bit codes give them:
//               .1203 / .0349 at 2 / 3 bits before that, 2.4 / .9 % more than codes of their own
//   fitted      nearest level of a table that a calibration made (codec/fitted_table.h)
// Thread rules: constants.
#pragma once

#include <cstdint>

#include "kvant/format.h"

namespace kvant {

struct SideLayout;

struct LevelTable {
  int bits = 0;         // of a code
  int window_bits = 0;  // of the index; equal to bits for Lloyd-Max
  float sigma = 0;      // standard deviation of what the levels approximate, in their units
  const int8_t* levels = nullptr;  // [2^window_bits]; Lloyd-Max and fitted: ascending
  // The levels plus 128, [16] or [64], in the order in which the attention kernels build an index
  // from the bit planes. Trellis of 3 bits: low bits of the element, of the next one (those that
  // the window holds), then the high bits.
  const uint8_t* kernel_levels = nullptr;
  bool symmetric = true;  // level[i] = -level[n - 1 - i]; of trellis tables nobody asks
};

// The constant table of a format. REQUIRES: format.is_normed(), not fitted, and CheckFormat()
// holds.
const LevelTable& LevelTableOf(const Format& format);
// The table of a side: the fitted one where it has one. REQUIRES: side.format.is_normed().
const LevelTable& LevelTableOf(const SideLayout& side);
// The table by which its codes are found: of nested formats the one of 4 bits.
const LevelTable& EncodeTableOf(const SideLayout& side);

}  // namespace kvant
