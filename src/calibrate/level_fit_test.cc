#include "calibrate/level_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/level_tables.h"

namespace kvant {
namespace {

std::vector<double> Centres(const std::vector<WeightedValue>& values, int count) {
  return FitCentres(values, count).value();
}

// Two clusters of 0, .1, .2, 1: the first three share a centre, which the weight of one draws.
TEST(FitCentres, WeightsDrawTheCentre) {
  const auto plain = Centres({{0, 1}, {.1, 1}, {.2, 1}, {1, 1}}, 2);
  EXPECT_NEAR(plain[0], .1, 1e-12);
  EXPECT_NEAR(plain[1], 1, 1e-12);
  const auto weighted = Centres({{0, 1}, {.1, 1}, {.2, 100}, {1, 1}}, 2);
  EXPECT_NEAR(weighted[0], .1970588, 5e-8);
  EXPECT_NEAR(weighted[1], 1, 1e-12);
}

double CostOf(const std::vector<WeightedValue>& values, const std::vector<double>& centres) {
  double cost = 0;
  for (const WeightedValue& v : values) {
    double least = INFINITY;
    for (const double c : centres) least = std::min(least, std::pow(v.value - c, 2));
    cost += v.weight * least;
  }
  return cost;
}

// Against every way to cut the values into intervals.
TEST(FitCentres, FindTheBestOfAllClusterings) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<WeightedValue> values;
    double at = 0;
    for (int i = 0; i < 9; ++i) values.push_back({at += uniform(random), uniform(random) + .01});
    double least = INFINITY;
    for (int a = 1; a < 8; ++a) {
      for (int b = a + 1; b < 9; ++b) {
        std::vector<double> centres;
        for (const auto& [begin, end] : {std::pair{0, a}, std::pair{a, b}, std::pair{b, 9}}) {
          double sum = 0, weight = 0;
          for (int i = begin; i < end; ++i) {
            sum += values[static_cast<size_t>(i)].weight * values[static_cast<size_t>(i)].value;
            weight += values[static_cast<size_t>(i)].weight;
          }
          centres.push_back(sum / weight);
        }
        least = std::min(least, CostOf(values, centres));
      }
    }
    EXPECT_NEAR(CostOf(values, Centres(values, 3)), least, 1e-9);
  }
}

TEST(FitCentres, RefuseFewerValuesThanLevels) {
  const auto fitted = FitCentres({{1, 1}, {2, 0}, {2, 1}, {2, 3}, {3, 1}}, 4);
  ASSERT_FALSE(fitted.ok());
  EXPECT_NE(fitted.status().message().find("only 3 different values for 4 levels"),
            std::string::npos);
}

// Of normal values they are the constant tables' levels: those are of the best tables of 8-bit
// numbers, these of a sample, hence 3 % of an rms.
TEST(FitCentres, OfNormalValuesAreLloydMax) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  ValueHistogram histogram;
  for (int i = 0; i < 400000; ++i) histogram.Add(normal(random), 1);
  for (const int bits : {2, 3, 4}) {
    const FittedLevels fitted = RoundLevels(Centres(histogram.Values(), 1 << bits));
    Format format{.levels = Levels::kLloydMax, .bits = bits};
    const LevelTable& table = LevelTableOf(format);
    for (size_t i = 0; i < fitted.levels.size(); ++i) {
      EXPECT_NEAR(static_cast<float>(fitted.levels[i]) / fitted.sigma,
                  static_cast<float>(table.levels[i]) / table.sigma,
                  i == 0 || i + 1 == fitted.levels.size() ? .06 : .03)
          << bits << " bits, level " << i;
    }
  }
}

TEST(RoundLevels, KeepCentresApart) {
  const FittedLevels close = RoundLevels({-.001, 0, .001, 10});
  EXPECT_EQ(close.levels, (std::vector<int8_t>{0, 1, 2, 127}));
  const FittedLevels top = RoundLevels({-10, 9.99, 9.995, 10});
  EXPECT_EQ(top.levels, (std::vector<int8_t>{-127, 125, 126, 127}));
  EXPECT_FLOAT_EQ(top.sigma, 12.7f);
}

}  // namespace
}  // namespace kvant
