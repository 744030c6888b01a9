// Levels fitted to weighted values: 1-D k-means, solved exactly.
// Thread rules: pure functions and plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "kvant/calibration.h"
#include "kvant/status.h"

namespace kvant {

struct WeightedValue {
  double value = 0;
  double weight = 0;
};

// The `count` centres that make the sum of weight * (value - nearest centre)^2 least, ascending.
// Clusters of sorted values are intervals, so dynamic programming over their ends finds the best
// ones: count * n * log n steps. kCorrupt when fewer than `count` values have a weight.
//   values: ascending; equal ones are one
Result<std::vector<double>> FitCentres(const std::vector<WeightedValue>& values, int count);

// Centres as 8-bit levels, the one farthest from 0 at +-127. Centres that would fall on one level
// are moved apart. REQUIRES: ascending, at most 16, one of them not 0.
FittedLevels RoundLevels(const std::vector<double>& centres);

// Values by the place of a fine grid, in a fixed amount of memory: a cell keeps the sum of its
// weights and their mean value.
class ValueHistogram {
 public:
  void Add(float value, float weight);
  std::vector<WeightedValue> Values() const;

 private:
  // A cell is 1/128 of an rms, a level of 4 bits and unit rms about 1/46.
  static constexpr int kCellsPerUnit = 128, kLargest = 16;
  struct Cell {
    double weight = 0, sum = 0;
  };
  std::vector<Cell> cells_ = std::vector<Cell>(2 * kLargest * kCellsPerUnit);
};

}  // namespace kvant
