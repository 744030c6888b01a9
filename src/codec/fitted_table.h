// FittedTable: levels of a calibration in the form in which encoder and kernels read constant ones.
// Thread rules: constant once made. It stays where it is: layouts point into it.
#pragma once

#include <cstdint>

#include "codec/level_tables.h"
#include "kvant/calibration.h"

namespace kvant {

class FittedTable {
 public:
  // REQUIRES: what CheckCalibration asks of levels.
  explicit FittedTable(const FittedLevels& fitted);
  FittedTable(const FittedTable&) = delete;

  const LevelTable& table() const { return table_; }

 private:
  int8_t levels_[16] = {};
  uint8_t kernel_levels_[16] = {};
  LevelTable table_;
};

}  // namespace kvant
