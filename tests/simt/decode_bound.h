// Attention over a DecodeWorld in double, and the bound on what a kernel may differ by.
//
// Units: u = 2^-11, half an ulp of a half; tiny = 2^-25, the same of a subnormal one; e = 2^-23, an
// ulp of a float: the shim rounds a matrix product once, by e / 2, tensor cores truncate.
//
// A score, before the scale kappa, is sum(q s c) + sum(q m). Its parts err by
//   q s rounded to half           u |q s| + tiny, times the code c (times 4: int2 weighs a pair)
//   half chains (no tensor cores) each of 8 terms rounds 8 times:  8 u sum|q s c|, 8 tiny a chain
//   fp32 sums                     D / 16 + 16 roundings of at most sum|q s c| + sum|q m|; with
//   tensor
//                                 cores also of 1024 sum|q s|, which the codes' magic adds and
//                                 takes
// so a weight exp2(score) errs relatively by rho = exp(2 ln2 max(delta)) - 1, twice for the
// maximum's own error, and Exp2 by 2^-22. An output is sum(w v) with weights w of sum 1; by parts:
//   w itself                      rho + u (rounded to half), above and below the fraction bar:
//   twice p rounded, times s, rounded   2 u |s c| and tiny (|s c| + 4 c) a token; the offset 2 u
//   |m| + tiny half chains                   8 u |s c|, 8 tiny a channel and page fp32 sums (tokens
//   + 64) e (|s c| + |m| + 1024 |s|)
// Sums of tiny are over tokens whose weights are not normalized: p is at most 1 and one p is 1, so
// dividing by their sum makes them no larger.
#pragma once

#include "simt/decode_world.h"

namespace kvant::simt {

struct Expected {
  std::vector<double> value, bound;  // [kRows][heads][dim]
};

class DecodeBound {
 public:
  DecodeBound(const DecodeWorld& world, bool tensor_cores)
      : world_(world), tensor_cores_(tensor_cores) {}

  Expected Make() {
    Expected expected;
    for (int row = 0; row < DecodeWorld::kRows; ++row) {
      for (int head = 0; head < world_.heads; ++head) {
        Score(row, head);
        for (int c = 0; c < world_.dim; ++c) Output(row, c, &expected);
      }
    }
    return expected;
  }

 private:
  static constexpr double kU = 0x1p-11, kTiny = 0x1p-25, kE = 0x1p-23;
  double chain() const { return tensor_cores_ ? 0 : 8; }
  double magic() const { return tensor_cores_ && world_.bits < 16 ? 1024 : 0; }

  void Score(int row, int head) {
    const double kappa = static_cast<double>(world_.score_scale);
    const int dim = world_.dim;
    tokens_.clear();
    weights_.clear();
    double worst = 0, top = -INFINITY;
    for (int t = 0; t < world_.pages * 64; ++t) {
      if (!world_.Visible(row, t)) continue;
      double score = 0, coded = 0, offset = 0, codes = 0, scaled_q = 0;
      for (int c = 0; c < dim; ++c) {
        const double q = static_cast<double>(
            world_.queries[static_cast<size_t>((row * world_.heads + head) * dim + c)]);
        const Parts& k = world_.At(world_.k, row, t, c);
        score += q * k.value;
        coded += std::fabs(q) * k.coded;
        offset += std::fabs(q) * k.offset;
        codes += k.code;
        scaled_q += std::fabs(q) * k.scale;
      }
      const double halves = (1 + chain()) * kU * coded + 4 * kTiny * codes + chain() * kTiny * dim;
      const double floats = (dim / 16 + 16) * kE * (coded + offset + magic() * scaled_q);
      worst = std::max(worst, kappa * (halves + floats));
      tokens_.push_back(t);
      weights_.push_back(kappa * score);
      top = std::max(top, kappa * score);
    }
    double sum = 0;
    for (double& w : weights_) sum += w = std::exp2(w - top);
    for (double& w : weights_) w /= sum;
    rho_ = std::expm1(2 * std::log(2) * worst) + 0x1p-22;
  }

  void Output(int row, int channel, Expected* expected) const {
    double out = 0, bound = 0;
    const double tokens = static_cast<double>(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const Parts& v = world_.At(world_.v, row, tokens_[i], channel);
      const double size = v.coded + v.offset;
      out += weights_[i] * v.value;
      bound += weights_[i] * (2 * (rho_ + kU) * size + (2 + chain()) * kU * v.coded +
                              2 * kU * v.offset + (tokens + 64) * kE * (size + magic() * v.scale)) +
               kTiny * (size + 4 * v.code + 1);
    }
    expected->value.push_back(out);
    expected->bound.push_back(bound + chain() * kTiny * world_.pages);
  }

  const DecodeWorld& world_;
  const bool tensor_cores_;
  std::vector<int> tokens_;      // the visible ones
  std::vector<double> weights_;  // theirs, of sum 1
  double rho_ = 0;
};

}  // namespace kvant::simt
