// How far apart two distributions are that two rows of logits stand for.
#pragma once

#include <cstdint>
#include <span>

namespace kvant {

struct RowScore {
  double kl = 0;        // KL(base || test) in nats, at least 0
  double nll_base = 0;  // -log p(target)
  double nll_test = 0;
  bool same_top1 = false;  // equal logits: the lower token counts
  bool finite = false;     // false when a logit is NaN or infinite; the rest is then meaningless
};

// All in double; the same bits on every machine, since only log() of two numbers comes from libm.
// REQUIRES: 0 <= target < vocab. Thread rules: pure function.
RowScore CompareRows(const float* base, const float* test, int64_t vocab, int32_t target);

// A row of a base file (eval/logit_base.h): log p of token i is least + step * codes[i].
struct CodedRow {
  float step = 0;
  float least = 0;
  const uint16_t* codes = nullptr;  // [vocab]
};

// The same against a row whose logarithms were rounded to 16 bits. KL is summed as p log(p/q) - p +
// q, in which that rounding cancels to second order: summed as p log(p/q) alone it adds some 1e-4
// of either sign to every token. Tokens too unlikely to be told apart count as one.
RowScore CompareWithCoded(const CodedRow& base, const float* test, int64_t vocab, int32_t target);

// Index of the largest logit, the lowest of equals.
int32_t Argmax(std::span<const float> logits);

}  // namespace kvant
