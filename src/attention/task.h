// AttentionTask: one KV head and the queries that read it, as Attend takes them.
#pragma once

#include <cstdint>

#include "cache/view.h"

namespace kvant {

// The queries of one page; what they read is in `view`.
struct AttentionTask {
  HeadView view;               // of the queries' page
  int64_t first_position = 0;  // absolute position of the first query; all lie in one page
  int queries = 0;
  int group_ratio = 1;         // query heads that share this KV head
  int64_t window_tokens = 0;   // a query sees this many tokens, its own included; 0: all
  const float* q = nullptr;    // [queries][group_ratio][head_dim]
  int64_t q_query_stride = 0;  // values from one query to the next
  float* out = nullptr;        // [queries][group_ratio][head_dim], or latent_dim; heads contiguous
  int64_t out_query_stride = 0;

  // Optional: each row's probabilities. [queries][group_ratio] rows of probability_stride floats,
  // of which [0, view.end_position()) are written, by position: 0 for what the row does not see.
  // A run that begins before the end of the last one, as pools do, stands right behind that one.
  float* probabilities = nullptr;
  int64_t probability_stride = 0;

  int rows() const { return queries * group_ratio; }
  int64_t PositionOf(int row) const {
    return first_position + (queries == 1 ? 0 : row / group_ratio);
  }
  // The first position that the query at `position` sees.
  int64_t VisibleBegin(int64_t position) const {
    return window_tokens == 0 || position < window_tokens ? 0 : position + 1 - window_tokens;
  }
};

}  // namespace kvant
