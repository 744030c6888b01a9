// Mean, spread and middle of repeated measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvant::cli {

inline double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Of a sample: divided by n - 1, 0 for fewer than two values.
inline double StandardDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// The value below which `part` of the sorted values lie, between two of them if need be.
inline double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = part * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at), above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

inline double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

}  // namespace kvant::cli
