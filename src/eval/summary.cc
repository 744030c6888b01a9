#include "eval/summary.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

double StandardError(double sum, double squares, double n) {
  if (n < 2) return 0;
  const double variance = (squares - sum * sum / n) / (n - 1);
  return std::sqrt(std::max(0.0, variance) / n);
}

// Nearest rank: the smallest value that at least this share of them does not exceed.
double Quantile(std::vector<double>& values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + std::max(0, static_cast<int>(rank) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

Summary::Summary(int64_t first, int64_t end, int buckets) {
  const int64_t count = std::min<int64_t>(buckets, end - first);
  for (int64_t i = 0; i < count; ++i) {
    buckets_.push_back({.first_position = first + (end - first) * i / count,
                        .end_position = first + (end - first) * (i + 1) / count});
  }
}

void Summary::Add(const RowScore& score, int64_t position, int64_t text_index) {
  kl_.push_back(score.kl);
  kl_sum_ += score.kl;
  kl_squares_ += score.kl * score.kl;
  nll_sum_ += score.nll_test;
  nll_squares_ += score.nll_test * score.nll_test;
  nll_base_sum_ += score.nll_base;
  same_top1_ += score.same_top1 ? 1 : 0;
  if (score.kl > max_kl_) {
    max_kl_ = score.kl;
    max_kl_token_ = text_index;
  }
  for (EvalBucket& bucket : buckets_) {
    if (position < bucket.first_position || position >= bucket.end_position) continue;
    ++bucket.tokens;
    bucket.mean_kl += score.kl;
    bucket.mean_nll += score.nll_test;
    bucket.mean_nll_base += score.nll_base;
  }
}

void Summary::Finish(EvalContext* out) const {
  const double n = static_cast<double>(tokens());
  std::vector<double> values = kl_;
  out->tokens = tokens();
  out->mean_kl = kl_sum_ / n;
  out->mean_kl_se = StandardError(kl_sum_, kl_squares_, n);
  out->median_kl = Quantile(values, 0.5);
  out->p99_kl = Quantile(values, 0.99);
  out->p999_kl = Quantile(values, 0.999);
  out->max_kl = max_kl_;
  out->max_kl_token = max_kl_token_;
  out->same_top1 = static_cast<double>(same_top1_) / n;
  out->mean_nll = nll_sum_ / n;
  out->mean_nll_se = StandardError(nll_sum_, nll_squares_, n);
  out->mean_nll_base = nll_base_sum_ / n;
  out->ppl = std::exp(out->mean_nll);
  out->ppl_base = std::exp(out->mean_nll_base);
  out->ppl_ratio = std::exp(out->mean_nll - out->mean_nll_base);
  for (EvalBucket bucket : buckets_) {
    if (bucket.tokens == 0) continue;
    const double tokens = static_cast<double>(bucket.tokens);
    bucket.mean_kl /= tokens;
    bucket.mean_nll /= tokens;
    bucket.mean_nll_base /= tokens;
    out->by_position.push_back(bucket);
  }
}

}  // namespace kvant
