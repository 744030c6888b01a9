// Levels for tests of fitted formats.
#pragma once

#include "codec/fitted_table.h"

namespace kvant::testing {

// Levels as a calibration may give them: neither symmetric nor those of any constant table.
inline const LevelTable& TestLevels(int bits) {
  static const FittedTable kTables[] = {
      FittedTable({.sigma = 60, .levels = {-100, -20, 24, 127}}),
      FittedTable({.sigma = 50, .levels = {-127, -70, -42, -14, 11, 40, 66, 121}}),
      FittedTable(
          {.sigma = 42,
           .levels = {-127, -88, -68, -52, -38, -27, -16, -6, 4, 14, 26, 38, 52, 66, 86, 115}})};
  return kTables[bits - 2].table();
}

}  // namespace kvant::testing
