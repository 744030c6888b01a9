#include "calibrate/level_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace kvant {
namespace {

// Sums over the first i values.
struct Sums {
  std::vector<double> weight{0}, value{0}, square{0};

  explicit Sums(const std::vector<WeightedValue>& values) {
    for (const WeightedValue& v : values) {
      weight.push_back(weight.back() + v.weight);
      value.push_back(value.back() + v.weight * v.value);
      square.push_back(square.back() + v.weight * v.value * v.value);
    }
  }
  double Mean(size_t begin, size_t end) const {
    return (value[end] - value[begin]) / (weight[end] - weight[begin]);
  }
  // Least square error of one centre for values [begin, end).
  double Cost(size_t begin, size_t end) const {
    const double sum = value[end] - value[begin];
    return square[end] - square[begin] - sum * sum / (weight[end] - weight[begin]);
  }
};

// One more cluster: best[end] over where it begins, for ends [first, last]. The best beginning
// never moves back as the end moves on, which halves the search at every level.
struct Stage {
  const Sums& sums;
  const std::vector<double>& before;  // least cost of the clusters so far, by their end
  std::vector<double>& best;
  std::vector<size_t>& begins;

  void Fill(size_t first, size_t last, size_t low, size_t high) const {
    if (first > last) return;
    const size_t middle = (first + last) / 2;
    double least = std::numeric_limits<double>::infinity();
    size_t chosen = low;
    for (size_t begin = low; begin <= std::min(high, middle - 1); ++begin) {
      const double cost = before[begin] + sums.Cost(begin, middle);
      if (cost < least) {
        least = cost;
        chosen = begin;
      }
    }
    best[middle] = least;
    begins[middle] = chosen;
    if (middle > first) Fill(first, middle - 1, low, chosen);
    Fill(middle + 1, last, chosen, high);
  }
};

std::vector<WeightedValue> Distinct(const std::vector<WeightedValue>& values) {
  std::vector<WeightedValue> distinct;
  for (const WeightedValue& v : values) {
    if (!(v.weight > 0)) continue;
    if (distinct.empty() || distinct.back().value != v.value) {
      distinct.push_back(v);
    } else {
      distinct.back().weight += v.weight;
    }
  }
  return distinct;
}

}  // namespace

Result<std::vector<double>> FitCentres(const std::vector<WeightedValue>& values, int count) {
  const std::vector<WeightedValue> distinct = Distinct(values);
  const size_t n = distinct.size(), k = static_cast<size_t>(count);
  if (n < k) {
    return Status::Corrupt("there are only " + std::to_string(n) + " different values for " +
                           std::to_string(k) + " levels");
  }
  const Sums sums(distinct);
  std::vector<double> before(n + 1, std::numeric_limits<double>::infinity()), best = before;
  for (size_t end = 1; end <= n; ++end) before[end] = sums.Cost(0, end);
  std::vector<std::vector<size_t>> begins(k, std::vector<size_t>(n + 1, 0));
  for (size_t cluster = 1; cluster < k; ++cluster) {
    std::fill(best.begin(), best.end(), std::numeric_limits<double>::infinity());
    Stage{sums, before, best, begins[cluster]}.Fill(cluster + 1, n, cluster, n - 1);
    before.swap(best);
  }
  std::vector<double> centres(k);
  for (size_t cluster = k, end = n; cluster-- > 0;) {
    const size_t begin = begins[cluster][end];
    centres[cluster] = sums.Mean(begin, end);
    end = begin;
  }
  return centres;
}

FittedLevels RoundLevels(const std::vector<double>& centres) {
  constexpr int kTop = 127;
  double largest = 0;
  for (const double c : centres) largest = std::max(largest, std::fabs(c));
  const double sigma = kTop / largest;
  const int count = static_cast<int>(centres.size());
  std::vector<int> levels;
  for (int i = 0; i < count; ++i) {
    const int level = static_cast<int>(std::lrint(centres[static_cast<size_t>(i)] * sigma));
    levels.push_back(i == 0 ? level : std::max(level, levels.back() + 1));
  }
  for (int i = count - 1; i >= 0; --i) {  // room for those above
    levels[static_cast<size_t>(i)] =
        std::min(levels[static_cast<size_t>(i)], kTop - (count - 1 - i));
  }
  FittedLevels fitted{.sigma = static_cast<float>(sigma), .levels = {}};
  for (const int level : levels) fitted.levels.push_back(static_cast<int8_t>(level));
  return fitted;
}

void ValueHistogram::Add(float value, float weight) {
  const auto last = static_cast<float>(cells_.size() - 1);
  const float at = (value + kLargest) * kCellsPerUnit;
  Cell& cell = cells_[static_cast<size_t>(std::clamp(at, 0.0f, last))];
  cell.weight += static_cast<double>(weight);
  cell.sum += static_cast<double>(weight) * static_cast<double>(value);
}

std::vector<WeightedValue> ValueHistogram::Values() const {
  std::vector<WeightedValue> values;
  for (const Cell& cell : cells_) {
    if (cell.weight > 0) values.push_back({cell.sum / cell.weight, cell.weight});
  }
  return values;
}

}  // namespace kvant
