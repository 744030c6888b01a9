// What a model predicts along a text, and how far that is from golden figures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "eval/divergence.h"
#include "kvant/session.h"
#include "model/session_impl.h"

namespace kvant {

struct Distance {
  double mean = 0, largest = 0;

  // One of `count` pairs.
  void Add(double got, double expected, size_t count) {
    const double d = std::abs(got - expected);
    mean += d / static_cast<double>(count);
    largest = std::max(largest, d);
  }
};

// Calls visit(i, log-probability of next[i], logits) for every token of a text that is read in one
// chunk.   tokens, next: [count]
template <typename Visit>
void VisitPredictions(Session& session, std::span<const int32_t> tokens,
                      std::span<const int32_t> next, const Visit& visit) {
  ASSERT_TRUE(session.impl().Step(tokens, nullptr).ok());
  Llama& llama = *session.impl().engine->llama;
  const int64_t vocab = session.model().vocab_size();
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (size_t i = 0; i < tokens.size(); ++i) {
    llama.Logits(llama.hidden(static_cast<int64_t>(i)), 1, logits.data());
    visit(i, -CompareRows(logits.data(), logits.data(), vocab, next[i]).nll_base,
          std::span<const float>(logits));
  }
}

}  // namespace kvant
