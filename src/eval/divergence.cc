#include "eval/divergence.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvant {
namespace {

constexpr int kLanes = 8;  // partial sums, in a fixed order

// exp(x) for -700 <= x <= 0, branch-free so that the compiler can vectorise its caller's loop: the
// Taylor polynomial on |r| <= ln 2 / 2 (first dropped term 2e-16) times a power of two.
inline double ExpNegative(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 32 bits: n * kLn2High is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

double SumLanes(double* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

struct Sums {
  double base = 0;      // of exp(b - max b)
  double test = 0;      // of exp(t - max t)
  double weighted = 0;  // of exp(b - max b) * ((b - max b) - (t - max t))
};

Sums SumRows(const float* base, double base_max, const float* test, double test_max,
             int64_t vocab) {
  double b_lanes[kLanes] = {}, t_lanes[kLanes] = {}, w_lanes[kLanes] = {};
  const auto add = [&](int64_t i, int lane) {
    const double b = static_cast<double>(base[i]) - base_max;
    const double t = static_cast<double>(test[i]) - test_max;
    const double p = ExpNegative(b < -700.0 ? -700.0 : b);
    b_lanes[lane] += p;
    t_lanes[lane] += ExpNegative(t < -700.0 ? -700.0 : t);
    w_lanes[lane] += p * (b - t);
  };
  int64_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int lane = 0; i < vocab; ++i, ++lane) add(i, lane);
  return {SumLanes(b_lanes), SumLanes(t_lanes), SumLanes(w_lanes)};
}

// What a comparison with a coded row adds up. Tokens with code 0 of a row whose least probability
// is that small are its tail: the file does not say more of them than that they are no likelier.
constexpr double kTailLogP = -16;

struct CodedSums {
  double base = 0;      // of p outside the tail
  double test = 0;      // of exp(t - max t), all tokens
  double test_in = 0;   // the same outside the tail
  double weighted = 0;  // of p * (log p - (t - max t)) outside the tail
  int64_t tail_tokens = 0;
};

CodedSums SumCoded(const CodedRow& base, const float* test, double test_max, int64_t vocab) {
  double b_lanes[kLanes] = {}, t_lanes[kLanes] = {}, in_lanes[kLanes] = {}, w_lanes[kLanes] = {};
  double tail_lanes[kLanes] = {};
  const double step = base.step, least = base.least;
  const int first_code = least <= kTailLogP ? 1 : 0;  // below it lies the tail
  const auto add = [&](int64_t i, int lane) {
    const double log_p = least + step * base.codes[i];
    const double t = static_cast<double>(test[i]) - test_max;
    const double q = ExpNegative(t < -700.0 ? -700.0 : t);
    const double in = base.codes[i] >= first_code ? 1.0 : 0.0;
    const double p = in * ExpNegative(log_p < -700.0 ? -700.0 : log_p > 0.0 ? 0.0 : log_p);
    b_lanes[lane] += p;
    t_lanes[lane] += q;
    in_lanes[lane] += in * q;
    w_lanes[lane] += p * (log_p - t);
    tail_lanes[lane] += 1.0 - in;
  };
  int64_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int lane = 0; i < vocab; ++i, ++lane) add(i, lane);
  return {SumLanes(b_lanes), SumLanes(t_lanes), SumLanes(in_lanes), SumLanes(w_lanes),
          static_cast<int64_t>(SumLanes(tail_lanes))};
}

bool AllFinite(const float* row, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) finite &= std::abs(row[i]) <= 3.402823466e38f;
  return finite;
}

}  // namespace

int32_t Argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

RowScore CompareRows(const float* base, const float* test, int64_t vocab, int32_t target) {
  RowScore score;
  score.finite = AllFinite(base, vocab) && AllFinite(test, vocab);
  if (!score.finite) return score;
  const auto count = static_cast<size_t>(vocab);
  const int32_t base_top = Argmax({base, count}), test_top = Argmax({test, count});
  const double base_max = base[base_top], test_max = test[test_top];
  const Sums sums = SumRows(base, base_max, test, test_max, vocab);
  const double base_log = std::log(sums.base), test_log = std::log(sums.test);
  score.same_top1 = base_top == test_top;
  score.nll_base = base_log - (static_cast<double>(base[target]) - base_max);
  score.nll_test = test_log - (static_cast<double>(test[target]) - test_max);
  // sum p (log p - log q); rounding can leave it just below 0.
  score.kl = std::max(0.0, sums.weighted / sums.base - (base_log - test_log));
  return score;
}

RowScore CompareWithCoded(const CodedRow& base, const float* test, int64_t vocab, int32_t target) {
  RowScore score;
  const float edges[2] = {base.step, base.least};
  score.finite = AllFinite(edges, 2) && AllFinite(test, vocab);
  if (!score.finite) return score;
  const int32_t test_top = Argmax({test, static_cast<size_t>(vocab)});
  const double test_max = test[test_top];
  const CodedSums sums = SumCoded(base, test, test_max, vocab);
  const double test_log = std::log(sums.test);
  score.same_top1 = std::max_element(base.codes, base.codes + vocab) - base.codes == test_top;
  score.nll_base =
      -(static_cast<double>(base.least) + static_cast<double>(base.step) * base.codes[target]);
  score.nll_test = test_log - (static_cast<double>(test[target]) - test_max);
  const double inside = sums.weighted + sums.base * test_log - sums.base + sums.test_in / sums.test;
  // The tail's probability lies between 0 and this; the value nearest the test's is the one that
  // adds least.
  const double most = static_cast<double>(sums.tail_tokens) * std::exp(double{base.least});
  const double tail = (sums.test - sums.test_in) / sums.test;
  const double beyond = tail > most && most > 0 ? most * std::log(most / tail) - most + tail : 0;
  score.kl = std::max(0.0, inside + beyond);
  return score;
}

}  // namespace kvant
