// What cache formats cost in quality: the same model on the same text with several caches, compared
// token by token with one of them, the base.
//
// A text is cut into chunks of `ctx` tokens that start from nothing; the predictions of the second
// half of each chunk are scored. All caches run side by side, so no logits are kept.
//
// Load the model with float_activations to see what the format alone costs. With 8-bit activations
// the smallest change of a cache flips roundings in every later matmul, which drowns formats that
// are nearly exact: on SmolLM2 int8 then measures 0.004 nats instead of 0.00001, int4 0.006 instead
// of 0.002. The noise floor shows it: what a cache measures that loses nothing.
// Thread rules: reentrant; a call uses its own sessions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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
  KvSpec base;                    // f16
  std::vector<KvSpec> tests;      // each compared with the base
  int64_t max_scored_tokens = 0;  // of each context and mode; 0: the whole text
  int position_buckets = 8;       // parts that the scored half is reported in
  // Also measures an f32 cache against the base; one session more.
  bool noise_floor = false;
  // Base files, as llama.cpp's perplexity tool writes and reads them with --kl-divergence-base.
  // They hold whole chunks of one context, so max_scored_tokens is rounded up to whole chunks.
  std::string write_base_path;  // empty: none. In the first mode, replaced once it is complete
  // Compares with the predictions in this file instead of a base session. Its context, vocabulary
  // and tokens must be those of the evaluation. The noise floor is then the `base` cache against
  // the file, and so has the difference of two engines in it.
  std::string read_base_path;
  int threads = 0;  // 0: one a core
  int chunk_tokens = 512;
};

// The figures that a difference must exceed to mean something: those of a cache without loss.
struct EvalFloor {
  double mean_kl = 0;
  double mean_kl_se = 0;
  double p99_kl = 0;
  double p999_kl = 0;
  double same_top1 = 0;
  double ppl_ratio = 0;
};

// Scores of the positions [first_position, end_position) of all chunks.
struct EvalBucket {
  int64_t first_position = 0;
  int64_t end_position = 0;
  int64_t tokens = 0;
  double mean_kl = 0;
  double mean_nll = 0;
  double mean_nll_base = 0;
  std::optional<double> floor_kl = std::nullopt;  // mean KL of the noise floor at these positions
};

// KL is KL(base || test) of the next token's distribution, in nats; nll is minus the logarithm of
// the probability of the token that came, in nats; standard errors treat tokens as independent.
// Quantiles are nearest ranks: p999_kl of fewer than 1,000 tokens is their maximum.
struct EvalContext {
  int64_t ctx_tokens = 0;
  EvalMode mode = EvalMode::kPrefill;
  int test = 0;        // index into EvalOptions::tests
  int64_t tokens = 0;  // scored
  double mean_kl = 0;
  double mean_kl_se = 0;
  double median_kl = 0;
  double p99_kl = 0;
  double p999_kl = 0;
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
  int64_t kv_bytes = 0;       // CacheLedger::kv_bytes of the same
  std::optional<double> effective_bits_base;  // absent where the base is a file
  std::optional<EvalFloor> floor;  // absent where it was not asked for, or the base is f32 itself
  std::vector<EvalBucket> by_position;
};

// Tokens of a text that Evaluate reads with these options; nothing where it reads all.
std::optional<int64_t> TokensToEvaluate(const EvalOptions& options);

// One entry a context, mode and test, contexts the slowest and tests the fastest. The numbers of a
// test do not depend on which others run beside it. kOutOfRange when the text is shorter than a
// context; kInvalidArgument for impossible options and for a base file of another context,
// vocabulary or text; kCancelled; kCorrupt when a logit is not a number; the errors of
// ReadLogitBase; otherwise the errors of Session.
Result<std::vector<EvalContext>> Evaluate(const Model& model, std::span<const int32_t> text,
                                          const EvalOptions& options,
                                          const RunControl& control = {});

// What a base file says of itself: chunks of ctx_tokens tokens each.
struct LogitBaseSummary {
  int64_t ctx_tokens = 0;
  int64_t vocab = 0;
  int64_t chunks = 0;
  std::vector<int32_t> tokens;  // [chunks * ctx_tokens]
};
// kNotFound, kIo, or kCorrupt with the path and what is wrong, a wrong length included.
Result<LogitBaseSummary> ReadLogitBase(const std::string& path);

struct KeyRangeOptions {
  int64_t max_tokens = 2048;  // of the text, from its beginning
  int64_t skip_tokens = 4;    // the first ones, which caches keep as sinks
  int threads = 0;
  int chunk_tokens = 512;
};

// How far the channels of K reach, as a cache gets them: after the rotation by position.
struct KeyRanges {
  KvGeometry geometry;
  int64_t tokens = 0;  // that were looked at
  // [layers][kv_heads][head_dim]
  std::vector<float> max_abs;
  std::vector<float> mean;
};

// Over one timeline of the text's first tokens in an f32 cache. kInvalidArgument when no token is
// left to look at; kCancelled; otherwise the errors of Session.
Result<KeyRanges> MeasureKeyRanges(const Model& model, std::span<const int32_t> text,
                                   const KeyRangeOptions& options, const RunControl& control = {});

struct GreedyOptions {
  KvSpec base;                // f16
  std::vector<KvSpec> tests;  // at least one
  int64_t tokens = 64;        // of each answer
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

// The likeliest token, step by step, with the base and each of the tests; end tokens are not
// heeded. One entry a test, each as if it were alone. kInvalidArgument for no prompts, no tests or
// an empty prompt; otherwise the errors of Session. Progress counts answers, those of the base
// included.
Result<std::vector<GreedyAgreement>> CompareGreedy(const Model& model,
                                                   std::span<const std::vector<int32_t>> prompts,
                                                   const GreedyOptions& options,
                                                   const RunControl& control = {});

}  // namespace kvant
