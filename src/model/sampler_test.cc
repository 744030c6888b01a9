#include "kvant/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kvant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// All filters off.
SamplerOptions Plain(float temperature = 1.0f, uint64_t seed = 1) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}

Sampler Make(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return std::move(sampler).value();
}

int32_t Sample(Sampler& sampler, const std::vector<float>& logits) {
  const Result<int32_t> id = sampler.Sample(logits);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : -1;
}

std::vector<int> Draws(const SamplerOptions& options, const std::vector<float>& logits, int n) {
  Sampler sampler = Make(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < n; ++i) ++counts.at(static_cast<size_t>(Sample(sampler, logits)));
  return counts;
}

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Each count is binomial. Six standard deviations and one count fail by chance less often than once
// in 10^8 even over the dozens of counts below; the seeds are fixed besides.
void ExpectDistribution(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  ASSERT_EQ(counts.size(), probabilities.size());
  int n = 0;
  for (const int count : counts) n += count;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double p = probabilities[i];
    EXPECT_NEAR(counts[i], n * p, 6 * std::sqrt(n * p * (1 - p)) + (p > 0 ? 1 : 0)) << "id " << i;
  }
}

TEST(RandomStream, NumbersAreThePublishedOnes) {
  RandomStream zero(0), other(1234567);
  EXPECT_EQ(zero.Next(), 0xe220a8397b1dcdafu);
  EXPECT_EQ(zero.Next(), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(zero.Next(), 0x06c45d188009454fu);
  EXPECT_EQ(other.Next(), 6457827717110365317u);
  EXPECT_EQ(other.Next(), 3203168211198807973u);
}

TEST(RandomStream, UnitNumbersStayBelowOne) {
  RandomStream random(3);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = random.NextUnit();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 6 / std::sqrt(12.0 * 10000));
}

TEST(Sampler, GreedyTakesTheLowestOfTheLargest) {
  Sampler sampler = Make({.temperature = 0});
  EXPECT_EQ(Sample(sampler, {1, 3, 3, 2}), 1);
  EXPECT_EQ(Sample(sampler, {-kInfinity, -5, -kInfinity}), 1);
  EXPECT_EQ(Sample(sampler, {-0.0f, 0.0f}), 0);
  EXPECT_EQ(Sample(sampler, {7}), 0);
}

TEST(Sampler, FiltersThatKeepOneAreGreedyTiesIncluded) {
  std::mt19937 random(2);
  SamplerOptions one_k = Plain(), small_p = Plain(), cold = Plain(1e-30f);
  one_k.top_k = 1;
  small_p.top_p = 1e-6f;
  Sampler by_k = Make(one_k), by_p = Make(small_p), greedy = Make(Plain(0)), frozen = Make(cold);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(50);
    for (float& l : logits) l = static_cast<float>(random() % 20);
    const int32_t best = Sample(greedy, logits);
    ASSERT_EQ(Sample(by_k, logits), best);
    ASSERT_EQ(Sample(by_p, logits), best);
    ASSERT_EQ(logits[static_cast<size_t>(Sample(frozen, logits))],
              logits[static_cast<size_t>(best)]);
  }
}

TEST(Sampler, DrawsFollowTheSoftmaxAtEveryTemperature) {
  const std::vector<float> logits = {0.5f, -1, 2, 1.5f, -4, 0, 2, -0.25f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    std::vector<double> p;
    double total = 0;
    for (const float l : logits)
      total += p.emplace_back(std::exp(static_cast<double>(l / temperature)));
    for (double& value : p) value /= total;
    ExpectDistribution(Draws(Plain(temperature), logits, 20000), p);
  }
}

TEST(Sampler, TopKKeepsTheKLikeliestAndTheLowerIdsOfATie) {
  SamplerOptions options = Plain();
  options.top_k = 3;
  ExpectDistribution(Draws(options, LogitsOf({0.1, 0.3, 0.1, 0.4, 0.1}), 20000),
                     {0.125, 0.375, 0, 0.5, 0});
  options.top_k = 100;  // more than there are
  ExpectDistribution(Draws(options, LogitsOf({0.25, 0.75}), 20000), {0.25, 0.75});
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  SamplerOptions options = Plain();
  options.top_p = 0.75f;  // 0.5 + 0.2 is less, so the third is needed
  ExpectDistribution(Draws(options, LogitsOf({0.05, 0.2, 0.5, 0.1, 0.15}), 20000),
                     {0, 0.2 / 0.85, 0.5 / 0.85, 0, 0.15 / 0.85});
}

TEST(Sampler, MinPIsAFractionOfTheLikeliest) {
  SamplerOptions options = Plain();
  options.min_p = 0.3f;
  ExpectDistribution(Draws(options, LogitsOf({0.14, 0.5, 0.16, 0.2}), 20000),
                     {0, 0.5 / 0.86, 0.16 / 0.86, 0.2 / 0.86});
}

TEST(Sampler, TopPSeesTheDistributionThatTopKLeaves) {
  SamplerOptions options = Plain();
  options.top_k = 2;
  options.top_p = 0.6f;  // of all it would take the two; of what top-k leaves, 0.4 / 0.6 is enough
  ExpectDistribution(Draws(options, LogitsOf({0.4, 0.2, 0.2, 0.2}), 1000), {1, 0, 0, 0});
}

TEST(Sampler, TopPSeesWhatMinPWillTakeAway) {
  SamplerOptions options = Plain();
  options.top_p = 0.6f;  // of all it takes two; of what min-p leaves, 0.5 / 0.8 would be enough
  options.min_p = 0.5f;
  ExpectDistribution(Draws(options, LogitsOf({0.5, 0.3, 0.1, 0.1}), 20000), {0.625, 0.375, 0, 0});
}

TEST(Sampler, TemperatureComesAfterTheFilters) {
  SamplerOptions options = Plain(4.0f);
  options.top_p = 0.5f;
  options.min_p = 0.5f;
  ExpectDistribution(Draws(options, LogitsOf({0.6, 0.2, 0.2}), 1000), {1, 0, 0});
}

TEST(Sampler, SameSeedSameTokensAndCopiesContinueAlike) {
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7) * 0.1f;
  Sampler a = Make(Plain(1, 42)), b = Make(Plain(1, 42)), other = Make(Plain(1, 43));
  std::vector<int32_t> from_a, from_b, from_other;
  for (int i = 0; i < 50; ++i) {
    from_a.push_back(Sample(a, logits));
    from_b.push_back(Sample(b, logits));
    from_other.push_back(Sample(other, logits));
  }
  EXPECT_EQ(from_a, from_b);
  EXPECT_NE(from_a, from_other);
  Sampler copy = a;
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Sample(copy, logits), Sample(a, logits));
}

TEST(Sampler, LogitsThatAreNoNumbersAreNamedAndDrawNothing) {
  const std::vector<float> good = {0, 0, 0, 0, 0, 0, 0, 0};
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler = Make(Plain(temperature)), untouched = Make(Plain(temperature));
    const auto message = [&](const std::vector<float>& logits) {
      const Result<int32_t> id = sampler.Sample(logits);
      EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
      return id.status().message();
    };
    EXPECT_EQ(message({1, kNan, 2}), "the logit of token 1 is NaN");
    EXPECT_EQ(message({kNan}), "the logit of token 0 is NaN");
    EXPECT_EQ(message({1, 2, kInfinity}), "the logit of token 2 is +infinity");
    EXPECT_EQ(message({-kInfinity, -kInfinity}), "the logits of all 2 tokens are -infinity");
    EXPECT_EQ(message({}), "there are no logits to choose from");
    for (int i = 0; i < 20; ++i) ASSERT_EQ(Sample(sampler, good), Sample(untouched, good));
  }
}

TEST(Sampler, MaskedAndVanishingTokensAreNeverDrawn) {
  const std::vector<int> counts = Draws(Plain(), {-kInfinity, 0, -2000, -kInfinity, 0}, 2000);
  EXPECT_EQ(counts[0] + counts[2] + counts[3], 0);
}

TEST(Sampler, ImpossibleOptionsAreRefusedByName) {
  const auto message = [](auto change) {
    SamplerOptions options;
    EXPECT_TRUE(options.Validate().ok());
    change(options);
    const Result<Sampler> sampler = Sampler::Create(options);
    EXPECT_FALSE(sampler.ok());
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(sampler.status().message(), options.Validate().message());
    return sampler.status().message();
  };
  EXPECT_EQ(message([](auto& o) { o.top_k = -1; }), "top-k is -1 but must be 0 (off) or more");
  EXPECT_EQ(message([](auto& o) { o.min_p = 1.5f; }),
            "min-p is 1.500000 but must be from 0 (off) to 1");
  EXPECT_EQ(message([](auto& o) { o.top_p = 0; }),
            "top-p is 0.000000 but must be above 0 and at most 1 (off)");
  for (const float bad : {-0.1f, kInfinity, kNan}) {
    EXPECT_EQ(message([bad](auto& o) { o.temperature = bad; }).substr(0, 14), "temperature is");
  }
  for (const float bad : {-0.1f, 1.1f, kNan}) {
    message([bad](auto& o) { o.top_p = bad; });
    message([bad](auto& o) { o.min_p = bad; });
  }
}

}  // namespace
}  // namespace kvant
