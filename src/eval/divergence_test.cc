#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "eval/summary.h"
#include "kvant/sampler.h"

namespace kvant {
namespace {

std::vector<float> RandomLogits(size_t n, double spread, uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> row(n);
  for (float& v : row) v = static_cast<float>(spread * (2 * random.NextUnit() - 1));
  return row;
}

// The textbook in long double.
struct Plain {
  long double kl = 0, nll_base = 0, nll_test = 0;
};
Plain PlainScore(const std::vector<float>& base, const std::vector<float>& test, size_t target) {
  const auto log_sum = [](const std::vector<float>& row) {
    long double sum = 0;
    const long double top = *std::max_element(row.begin(), row.end());
    for (const float v : row) sum += std::exp(v - top);
    return top + std::log(sum);
  };
  const long double b = log_sum(base), t = log_sum(test);
  Plain score;
  for (size_t i = 0; i < base.size(); ++i) {
    const long double log_p = base[i] - b, log_q = test[i] - t;
    score.kl += std::exp(log_p) * (log_p - log_q);
  }
  score.nll_base = b - base[target];
  score.nll_test = t - test[target];
  return score;
}

TEST(CompareRows, AgreesWithTheTextbookForNearAndFarRows) {
  for (const size_t n : {1u, 2u, 7u, 8u, 9u, 1000u, 49152u}) {
    for (const double change : {1e-4, 0.1, 3.0}) {
      const std::vector<float> base = RandomLogits(n, 20, n);
      std::vector<float> test = RandomLogits(n, change, n + 1);
      for (size_t i = 0; i < n; ++i) test[i] += base[i];
      const Plain plain = PlainScore(base, test, n / 2);
      const RowScore score = CompareRows(base.data(), test.data(), static_cast<int64_t>(n),
                                         static_cast<int32_t>(n / 2));
      EXPECT_TRUE(score.finite);
      EXPECT_NEAR(score.kl, static_cast<double>(plain.kl), 1e-13 + 1e-12 * score.kl) << n;
      EXPECT_NEAR(score.nll_base, static_cast<double>(plain.nll_base), 1e-12) << n;
      EXPECT_NEAR(score.nll_test, static_cast<double>(plain.nll_test), 1e-12) << n;
    }
  }
}

TEST(CompareRows, EqualRowsAreExactlyZeroApart) {
  const std::vector<float> row = RandomLogits(1000, 30, 1);
  const RowScore score = CompareRows(row.data(), row.data(), 1000, 3);
  EXPECT_EQ(score.kl, 0);
  EXPECT_EQ(score.nll_base, score.nll_test);
  EXPECT_TRUE(score.same_top1);
}

TEST(CompareRows, LogitsFarBelowTheTopCountForNothing) {
  const std::vector<float> base = {0, -1e5f, -2000}, test = {0, -2000, -1e5f};
  const RowScore score = CompareRows(base.data(), test.data(), 3, 1);
  EXPECT_LT(score.kl, 1e-290);
  EXPECT_DOUBLE_EQ(score.nll_base, 1e5);
  EXPECT_DOUBLE_EQ(score.nll_test, 2000);
}

TEST(CompareRows, ATieGoesToTheLowerToken) {
  const std::vector<float> base = {1, 5, 5, 0}, test = {1, 5, 4, 0}, other = {1, 4, 5, 0};
  EXPECT_EQ(Argmax(base), 1);
  EXPECT_TRUE(CompareRows(base.data(), test.data(), 4, 0).same_top1);
  EXPECT_FALSE(CompareRows(base.data(), other.data(), 4, 0).same_top1);
}

TEST(CompareRows, AFaultInEitherRowIsSeen) {
  for (const float fault : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> good(100, 1.0f);
    std::vector<float> bad = good;
    bad[77] = fault;
    EXPECT_FALSE(CompareRows(good.data(), bad.data(), 100, 0).finite);
    EXPECT_FALSE(CompareRows(bad.data(), good.data(), 100, 0).finite);
  }
}

// Codes of random probabilities, normalised; all tokens are told apart.
struct Coded {
  std::vector<uint16_t> codes;
  CodedRow row;
  std::vector<float> log_p;

  Coded(size_t n, double spread, uint64_t seed) {
    row.step = 16.0f / 65535;
    double sum = 0;
    for (const float v : RandomLogits(n, spread, seed)) {
      codes.push_back(static_cast<uint16_t>(1 + (static_cast<double>(v) + spread) / row.step));
      sum += std::exp(double{row.step} * codes.back());
    }
    row.least = static_cast<float>(-std::log(sum));
    row.codes = codes.data();
    for (const uint16_t code : codes) log_p.push_back(row.least + row.step * code);
  }
};

TEST(CompareWithCoded, AgreesWithTheComparisonOfWhatTheRowStandsFor) {
  for (const size_t n : {1u, 7u, 8u, 1000u}) {
    const Coded base(n, 5, n);
    std::vector<float> test = RandomLogits(n, 0.3, n + 1);
    for (size_t i = 0; i < n; ++i) test[i] += base.log_p[i];
    const auto target = static_cast<int32_t>(n / 2);
    const RowScore score = CompareWithCoded(base.row, test.data(), static_cast<int64_t>(n), target);
    const RowScore plain =
        CompareRows(base.log_p.data(), test.data(), static_cast<int64_t>(n), target);
    EXPECT_TRUE(score.finite);
    EXPECT_NEAR(score.kl, plain.kl, 1e-6) << n;
    EXPECT_NEAR(score.nll_base, plain.nll_base, 1e-5) << n;
    EXPECT_EQ(score.nll_test, plain.nll_test) << n;
    EXPECT_EQ(score.same_top1, plain.same_top1) << n;
  }
}

// Half a step on the likeliest tokens: p log(p/q) alone would measure about 1e-4.
TEST(CompareWithCoded, RoundingToSixteenBitsIsNotMistakenForALoss) {
  const Coded base(50, 3, 9);
  std::vector<float> test = base.log_p;
  for (float& v : test) v -= base.row.step * (v > base.log_p[7] ? 0.5f : 0.0f);
  const RowScore score = CompareWithCoded(base.row, test.data(), 50, 0);
  EXPECT_LT(score.kl, 1e-8);
}

// Two likely tokens, and 1,000 that the file only knows to be 16 nats below.
TEST(CompareWithCoded, ATestThatBelievesInTheTailIsSeen) {
  std::vector<uint16_t> codes(1002, 0);
  codes[0] = codes[1] = 65535;
  const CodedRow base{16.0f / 65535, -16 - std::log(2.0f), codes.data()};
  std::vector<float> test(1002, -40);
  test[0] = test[1] = 0;
  EXPECT_LT(CompareWithCoded(base, test.data(), 1002, 0).kl, 1e-4);
  for (size_t i = 2; i < test.size(); ++i) test[i] = -std::log(500.0f);  // half of all
  const double exact = std::log(2.0);
  EXPECT_NEAR(CompareWithCoded(base, test.data(), 1002, 0).kl, exact, 0.01);
}

TEST(CompareWithCoded, AFaultInEitherRowIsSeen) {
  Coded base(20, 2, 1);
  std::vector<float> test = base.log_p;
  EXPECT_TRUE(CompareWithCoded(base.row, test.data(), 20, 0).finite);
  test[3] = std::nanf("");
  EXPECT_FALSE(CompareWithCoded(base.row, test.data(), 20, 0).finite);
  base.row.least = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(CompareWithCoded(base.row, base.log_p.data(), 20, 0).finite);
}

TEST(Summary, FiguresAreThoseOfTheTextbook) {
  Summary summary(100, 200, 4);
  // KL 1, 2, ..., 100 at positions 100 .. 199; nll = KL / 10; base nll always 2.
  for (int i = 1; i <= 100; ++i) {
    summary.Add({.kl = double(i), .nll_base = 2, .nll_test = i / 10.0, .same_top1 = i % 4 != 0},
                99 + i, 1000 + i);
  }
  EvalContext out;
  summary.Finish(&out);
  EXPECT_EQ(out.tokens, 100);
  EXPECT_DOUBLE_EQ(out.mean_kl, 50.5);
  EXPECT_NEAR(out.mean_kl_se, std::sqrt(10100.0 / 12 / 100), 1e-12);
  EXPECT_EQ(out.median_kl, 50);
  EXPECT_EQ(out.p99_kl, 99);
  EXPECT_EQ(out.max_kl, 100);
  EXPECT_EQ(out.max_kl_token, 1100);
  EXPECT_DOUBLE_EQ(out.same_top1, 0.75);
  EXPECT_DOUBLE_EQ(out.mean_nll, 5.05);
  EXPECT_NEAR(out.mean_nll_se, std::sqrt(10100.0 / 12 / 100) / 10, 1e-12);
  EXPECT_DOUBLE_EQ(out.ppl, std::exp(5.05));
  EXPECT_DOUBLE_EQ(out.ppl_base, std::exp(2.0));
  EXPECT_DOUBLE_EQ(out.ppl_ratio, std::exp(3.05));
  ASSERT_EQ(out.by_position.size(), 4u);
  EXPECT_EQ(out.by_position[1].first_position, 125);
  EXPECT_EQ(out.by_position[1].end_position, 150);
  EXPECT_EQ(out.by_position[1].tokens, 25);
  EXPECT_DOUBLE_EQ(out.by_position[1].mean_kl, 38);
  EXPECT_DOUBLE_EQ(out.by_position[1].mean_nll, 3.8);
  EXPECT_DOUBLE_EQ(out.by_position[1].mean_nll_base, 2);
}

TEST(Summary, QuantilesAreNearestRanks) {
  Summary summary(0, 7, 1);
  for (const double kl : {7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0}) {
    summary.Add({.kl = kl, .nll_base = 1, .nll_test = 1, .same_top1 = true}, 0, 0);
  }
  EvalContext out;
  summary.Finish(&out);
  EXPECT_EQ(out.median_kl, 4);
  EXPECT_EQ(out.p99_kl, 7);
}

TEST(Summary, OneInAThousandIsTheLastQuantile) {
  Summary summary(0, 2000, 1);
  for (int i = 1; i <= 2000; ++i) {
    summary.Add({.kl = double(i), .nll_base = 1, .nll_test = 1, .same_top1 = true}, 0, 0);
  }
  EvalContext out;
  summary.Finish(&out);
  EXPECT_EQ(out.p99_kl, 1980);
  EXPECT_EQ(out.p999_kl, 1998);
  EXPECT_EQ(out.max_kl, 2000);
}

TEST(Summary, OneTokenHasNoError) {
  Summary summary(2, 3, 8);
  summary.Add({.kl = 0.5, .nll_base = 1, .nll_test = 1, .same_top1 = true}, 2, 3);
  EvalContext out;
  summary.Finish(&out);
  EXPECT_EQ(out.mean_kl_se, 0);
  EXPECT_EQ(out.p99_kl, 0.5);
  EXPECT_EQ(out.by_position.size(), 1u);
}

}  // namespace
}  // namespace kvant
