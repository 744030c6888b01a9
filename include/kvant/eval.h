// What a cache format costs in quality: the same model on the same text with two caches, compared
// token by token.
//
// A text is cut into chunks of `ctx` tokens that start from nothing; the predictions of the second
// half of each chunk are scored. Both caches run side by side, so no logits are kept.
//
// Load the model with float_activations to see what the format alone costs. With 8-bit activations
// the smallest change of a cache flips roundings in every later matmul, which drowns formats that
// are nearly exact: on SmolLM2 int8 then measures 0.004 nats instead of 0.00006, int4 0.006 instead
// of 0.002.
// Thread rules: reentrant; a call uses its own sessions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvant/format.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

enum class EvalMode {
  kPrefill,  // chunk by chunk, as a prompt is read
  kDecode,   // one token at a time, as an answer is written
};
std::string_view EvalModeName(EvalMode mode);  // "prefill", "decode"

struct EvalOptions {
  std::vector<int64_t> contexts_tokens = {512};
  std::vector<EvalMode> modes = {EvalMode::kPrefill};
  KvSpec base;  // f16
  KvSpec test;
  int64_t max_scored_tokens = 0;  // of each context and mode; 0: the whole text
  int position_buckets = 8;       // parts that the scored half is reported in
  int threads = 0;                // 0: one a core
  int chunk_tokens = 512;
};

// Scores of the positions [first_position, end_position) of all chunks.
struct EvalBucket {
  int64_t first_position = 0;
  int64_t end_position = 0;
  int64_t tokens = 0;
  double mean_kl = 0;
  double mean_nll = 0;
  double mean_nll_base = 0;
};

// KL is KL(base || test) of the next token's distribution, in nats; nll is minus the logarithm of
// the probability of the token that came, in nats; standard errors treat tokens as independent.
struct EvalContext {
  int64_t ctx_tokens = 0;
  EvalMode mode = EvalMode::kPrefill;
  int64_t tokens = 0;  // scored
  double mean_kl = 0;
  double mean_kl_se = 0;
  double median_kl = 0;
  double p99_kl = 0;
  double max_kl = 0;
  int64_t max_kl_token = 0;  // index in the text of the token that follows the worst prediction
  double same_top1 = 0;      // share of positions where both find the same token likeliest
  double mean_nll = 0;
  double mean_nll_se = 0;
  double mean_nll_base = 0;
  double ppl = 0;  // exp(mean_nll)
  double ppl_base = 0;
  double ppl_ratio = 0;       // ppl / ppl_base
  double effective_bits = 0;  // of the test cache at its longest: whole pages, window and sinks
  double effective_bits_base = 0;
  std::vector<EvalBucket> by_position;
};

// One entry a context and mode, contexts the slower. kOutOfRange when the text is shorter than a
// context; kInvalidArgument for impossible options; kCancelled; kCorrupt when a logit is not a
// number; otherwise the errors of Session.
Result<std::vector<EvalContext>> Evaluate(const Model& model, std::span<const int32_t> text,
                                          const EvalOptions& options,
                                          const RunControl& control = {});

struct GreedyOptions {
  KvSpec base;  // f16
  KvSpec test;
  int64_t tokens = 64;  // of each answer
  int threads = 0;
  int chunk_tokens = 512;
};

struct GreedyAgreement {
  int64_t tokens = 0;                     // of each answer
  std::vector<int64_t> first_divergence;  // one a prompt: tokens that agree before the first that
                                          // does not; `tokens` where the answers are equal
  double share_equal = 0;                 // of the prompts
  double mean_equal_tokens = 0;           // mean of first_divergence
};

// The likeliest token, step by step, with both caches; end tokens are not heeded. kInvalidArgument
// for no prompts or an empty one; otherwise the errors of Session.
Result<GreedyAgreement> CompareGreedy(const Model& model,
                                      std::span<const std::vector<int32_t>> prompts,
                                      const GreedyOptions& options, const RunControl& control = {});

}  // namespace kvant
