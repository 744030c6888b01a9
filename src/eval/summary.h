// Summary: the figures of an EvalContext from its scored tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/divergence.h"
#include "kvant/eval.h"

namespace kvant {

class Summary {
 public:
  // Scored are positions [first, end) of each chunk, reported in `buckets` parts.
  Summary(int64_t first, int64_t end, int buckets);

  void Add(const RowScore& score, int64_t position, int64_t text_index);
  int64_t tokens() const { return static_cast<int64_t>(kl_.size()); }

  // Fills all figures that come from scores. REQUIRES: tokens() > 0.
  void Finish(EvalContext* out) const;

 private:
  std::vector<EvalBucket> buckets_;  // sums until Finish
  std::vector<double> kl_;           // in the order they came
  double kl_sum_ = 0, kl_squares_ = 0;
  double nll_sum_ = 0, nll_squares_ = 0, nll_base_sum_ = 0;
  int64_t same_top1_ = 0;
  double max_kl_ = -1;
  int64_t max_kl_token_ = 0;
};

}  // namespace kvant
