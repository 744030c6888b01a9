// Which KV heads look far back. DuoAttention (arXiv 2410.10819) gives every KV head a gate and
// trains it; those with the largest keep all tokens, the others live with sinks and the newest
// tokens. Here the gate is measured instead: how much of their attention an answer's queries give
// to what the answer copies, a number hidden in a text far outside sinks and window. Thread rules:
// reentrant; a call uses its own session.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvant/model.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

struct HeadGateOptions {
  int64_t prompt_tokens = 1024;                        // at most, and nearly
  std::vector<int> depths_percent = {10, 25, 40, 55};  // where in the prompt the number lies
  int questions = 4;                                   // at each depth
  int64_t sinks_tokens = 64;                           // the number lies behind the first tokens,
  int64_t recent_tokens = 256;  // and before the newest at the answer's beginning
  uint64_t seed = 1;
  int threads = 0;  // 0: one a core
  int chunk_tokens = 512;
};

struct HeadGates {
  uint64_t model_hash = 0;  // Model::file_hash()
  KvGeometry geometry;
  int questions = 0;  // that were asked in all
  // [layers][kv_heads], 0 to 1: the probability on the number's tokens, of the query head that
  // gives most of those that share the KV head, in the mean over the queries that each find the
  // next token of the right answer, and over the questions.
  std::vector<double> gates;

  double Of(int layer, int kv_head) const {
    return gates[static_cast<size_t>(layer * geometry.kv_heads + kv_head)];
  }
};

// With an f16 cache, along the right answers. kInvalidArgument for impossible options; kOutOfRange
// when the text or the prompt is too short, or a depth puts the number among sinks or newest
// tokens; kCancelled; otherwise the errors of Session. Progress counts questions.
Result<HeadGates> MeasureHeadGates(const Model& model, std::string_view haystack,
                                   const HeadGateOptions& options, const RunControl& control = {});

}  // namespace kvant
