// Attention over a DecodeWorld in double, and the bound on what a kernel may differ by.
//
// Units: u = 2^-11, half an ulp of a half; tiny = 2^-25, the same of a subnormal one; e = 2^-23, an
// ulp of a float: the shim rounds a matrix product once, by e / 2, tensor cores truncate.
//
// Roundings of halves are taken as independent and uniform in +-u |x|, of variance (u x)^2 / 3 (the
// probabilistic analysis of Higham and Mary, SIAM J. Sci. Comput. 41, 2019); standard deviations of
// what may be correlated are added, others by squares. The bound is kDeviations of them. All other
// errors are far smaller and enter by their largest value.
//
// A score, before the scale kappa, is sum(q s c) + sum(q m), where K has a scale a token
// s sum(q c):
//   q s rounded to half            (u q s c)^2 / 3 a channel; tiny c, 4 tiny c where int2 weighs
//                                  it; a token's scale multiplies in fp32
//   half chains (no tensor cores)  each of 8 terms, so 8 roundings of a partial sum no larger than
//                                  its terms together, then one a chain of the lane's sum; 8 tiny,
//                                  in units of a token's scale (and of the table's unit); of K
//                                  of 2 bits the token's 8 lane sums, 4 and 2 sums of those and
//                                  the last are halves too: at most 3 (u sum|q s c|)^2 / 3
//   fp32 sums                      D / 16 + 16 roundings, e each, of sum|q s c| + sum|q m|; with
//                                  tensor cores also of 1024 sum|q s|, the magic of int
// An output is sum(w v), the weights w = exp2(score) / sum of sum 1:
//   scores                         ln2 sum(w sd(score) |v - out|): tokens share the roundings of q
//   p rounded to half              (u w (v - out))^2 / 3 a token (its sum may hold unrounded ones:
//                                  (u w |out|)^2 / 3 more); p s rounded: (u w s c)^2 / 3
//   half chains                    as above, of w s c; 8 tokens a chain
//   fp32 sums                      (tokens + 64) e sum w (|s c| + |m| + 1024 |s|)
//   tiny                           |s c| + 4 c + 1 a token. The sum of p is at least 1, so dividing
//                                  by it makes these no larger.
//   Exp2                           2^-22, and e of the score's size, twice
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
        tokens_.clear();
        for (int t = 0; t < world_.pages * 64; ++t) {
          if (world_.Visible(row, t)) tokens_.push_back(ScoreOf(row, head, t));
        }
        Normalize();
        for (int c = 0; c < world_.dim; ++c) AddOutput(row, c, &expected);
      }
    }
    return expected;
  }

 private:
  static constexpr double kU = 0x1p-11, kTiny = 0x1p-25, kE = 0x1p-23, kDeviations = 8;
  static constexpr int kChain = 8;

  struct Token {
    int number;
    double weight;           // first the score, base 2
    double deviation, most;  // of the score: standard deviation, largest of the other errors
  };

  double Magic(cuda::SideCode code) const {
    return tensor_cores_ && cuda::HasOffsets(code) ? 1024 : 0;
  }
  static double VarianceOf(double rounded) { return kU * rounded * kU * rounded / 3; }
  // Sums of the terms of each chain: lane 4 g + t and half e add the elements 2 t + e of every 8,
  // of 64 a chain.
  class Chains {
   public:
    void Add(int element, double size) {
      const size_t chain = static_cast<size_t>(element / 64 * 8 + element % 8);
      if (chain >= sizes_.size()) sizes_.resize(chain / 8 * 8 + 8);
      sizes_[chain] += size;
    }
    double Variance() const {
      double sum = 0;
      for (const double size : sizes_) sum += kChain * VarianceOf(size);
      return sum;
    }
    // Of their own sums over the chains of a lane, a rounding a chain.
    double VarianceOfSums() const {
      double sum = 0;
      for (size_t lane = 0; lane < 8; ++lane) {
        double size = 0;
        for (size_t chain = lane; chain < sizes_.size(); chain += 8) size += sizes_[chain];
        sum += static_cast<double>(sizes_.size() / 8) * VarianceOf(size);
      }
      return sum;
    }

   private:
    std::vector<double> sizes_;
  };

  Token ScoreOf(int row, int head, int t) const {
    const int dim = world_.dim;
    const bool by_token = cuda::IsByToken(world_.page.k);
    double score = 0, coded = 0, offset = 0, codes = 0, scaled_q = 0, variance = 0;
    Chains chains;
    for (int c = 0; c < dim; ++c) {
      const double q = static_cast<double>(
          world_.queries[static_cast<size_t>((row * world_.heads + head) * dim + c)]);
      const Parts& k = world_.At(world_.k, row, t, c);
      score += q * k.value;
      coded += std::fabs(q) * k.coded;
      offset += std::fabs(q) * k.offset;
      codes += k.code;
      scaled_q += std::fabs(q) * k.scale;
      if (!by_token) variance += VarianceOf(q * k.coded);
      chains.Add(c, std::fabs(q) * k.coded);
    }
    const double kappa = static_cast<double>(world_.score_scale);
    const double unit = world_.Unit(world_.page.k);
    const double tiny = by_token
                            ? kTiny * kChain * dim * unit * world_.At(world_.k, row, t, 0).scale
                            : kTiny * (4 * codes + kChain * dim);
    const double floats = (dim / 16 + 16) * kE * (coded + offset + Magic(world_.page.k) * scaled_q);
    if (!tensor_cores_) variance += chains.Variance() + chains.VarianceOfSums();
    if (!tensor_cores_ && world_.page.k == cuda::SideCode::kInt2) variance += 3 * VarianceOf(coded);
    return {t, kappa * score, kappa * std::sqrt(variance), kappa * (tiny + floats)};
  }

  void Normalize() {
    double top = -INFINITY, sum = 0;
    for (const Token& t : tokens_) top = std::max(top, t.weight);
    for (Token& t : tokens_) {
      t.most += 2 * kE * std::fabs(top) + 0x1p-22;
      sum += t.weight = std::exp2(t.weight - top);
    }
    for (Token& t : tokens_) t.weight /= sum;
  }

  void AddOutput(int row, int channel, Expected* expected) const {
    double out = 0;
    Chains chains;
    for (const Token& t : tokens_) {
      const Parts& v = world_.At(world_.v, row, t.number, channel);
      out += t.weight * v.value;
      chains.Add(t.number, t.weight * v.coded);
    }
    const double count = static_cast<double>(tokens_.size());
    double from_scores = 0, variance = tensor_cores_ ? 0 : chains.Variance(), most = 0;
    for (const Token& t : tokens_) {
      const Parts& v = world_.At(world_.v, row, t.number, channel);
      const double away = t.weight * std::fabs(v.value - out), size = v.coded + v.offset;
      from_scores += std::log(2) * t.deviation * away;
      variance += VarianceOf(away) + VarianceOf(t.weight * out) + VarianceOf(t.weight * v.coded);
      most += t.most * away +
              t.weight * (count + 64) * kE * (size + Magic(world_.page.v) * v.scale) +
              kTiny * (size + 4 * v.code + 1);
    }
    expected->value.push_back(out);
    expected->bound.push_back(kDeviations * (from_scores + std::sqrt(variance)) + most +
                              kChain * kTiny * world_.pages * world_.Unit(world_.page.v));
  }

  const DecodeWorld& world_;
  const bool tensor_cores_;
  std::vector<Token> tokens_;  // the visible ones
};

// The largest error of outputs in units of its bound; infinite where a value is not finite.
inline double WorstOf(const std::vector<float>& out, const Expected& expected) {
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double error = std::fabs(static_cast<double>(out[i]) - expected.value[i]);
    worst = std::max(worst, std::isfinite(error) ? error / expected.bound[i] : INFINITY);
  }
  return worst;
}

}  // namespace kvant::simt
