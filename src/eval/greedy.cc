#include <algorithm>
#include <string>
#include <utility>

#include "eval/divergence.h"
#include "eval/predict.h"
#include "eval/sessions.h"
#include "kvant/eval.h"
#include "kvant/tasks.h"
#include "model/text_chunk.h"

namespace kvant {
namespace {

// The answer of `tokens` tokens that a session gives.
Result<std::vector<int32_t>> Answer(Session& session, std::span<const int32_t> prompt,
                                    int64_t tokens, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(session.Reset());
  KVANT_RETURN_IF_ERROR(session.Prefill(prompt, {.progress = {}, .cancel = cancel}));
  std::vector<int32_t> answer;
  for (;;) {
    KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
    answer.push_back(Argmax(logits));
    if (static_cast<int64_t>(answer.size()) == tokens) return answer;
    const std::span<const int32_t> token(&answer.back(), 1);
    KVANT_RETURN_IF_ERROR(session.Prefill(token, {.progress = {}, .cancel = cancel}));
  }
}

// Tokens of `answer` that a session gives too, before its first that differs. It need not be asked
// token by token: until then the tokens before each are those of the answer.
Result<int64_t> EqualTokens(Session& session, std::span<const int32_t> prompt,
                            std::span<const int32_t> answer, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(session.Reset());
  KVANT_RETURN_IF_ERROR(session.Prefill(prompt, {.progress = {}, .cancel = cancel}));
  int64_t equal = 0;
  KVANT_RETURN_IF_ERROR(
      Predict(session, answer, cancel, [&](size_t i, std::span<const float> logits) {
        if (Argmax(logits) != answer[i]) return false;
        ++equal;
        return true;
      }));
  return equal;
}

Status CheckOptions(std::span<const std::vector<int32_t>> prompts, const GreedyOptions& options) {
  if (prompts.empty() || options.tests.empty() || options.tokens < 1) {
    return Status::InvalidArgument("cannot compare answers of " + std::to_string(options.tokens) +
                                   " tokens to " + std::to_string(prompts.size()) +
                                   " prompts with " + std::to_string(options.tests.size()) +
                                   " caches");
  }
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) return Status::InvalidArgument("a prompt is empty");
  }
  return Status::Ok();
}

GreedyAgreement Agreement(int64_t tokens, std::vector<int64_t> first_divergence) {
  int64_t equal_prompts = 0, equal_tokens = 0;
  for (const int64_t equal : first_divergence) {
    equal_prompts += equal == tokens ? 1 : 0;
    equal_tokens += equal;
  }
  const double prompts = static_cast<double>(first_divergence.size());
  return {.tokens = tokens,
          .first_divergence = std::move(first_divergence),
          .share_equal = static_cast<double>(equal_prompts) / prompts,
          .mean_equal_tokens = static_cast<double>(equal_tokens) / prompts};
}

}  // namespace

Result<std::vector<GreedyAgreement>> CompareGreedy(const Model& model,
                                                   std::span<const std::vector<int32_t>> prompts,
                                                   const GreedyOptions& options,
                                                   const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(prompts, options));
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  const SessionOptions session = {.kv = options.base,
                                  .context_tokens = static_cast<int64_t>(longest) + options.tokens,
                                  .threads = options.threads,
                                  .chunk_tokens = options.chunk_tokens};
  KVANT_ASSIGN_OR_RETURN(std::vector<Session> sessions,
                         MakeSessions(model, options.base, options.tests, session));
  const int64_t total = static_cast<int64_t>(prompts.size() * sessions.size());
  int64_t done = 0;
  const auto tick = [&] {
    if (control.progress) control.progress(++done, total);
  };
  std::vector<std::vector<int64_t>> divergences(options.tests.size());  // [tests][prompts]
  for (const std::vector<int32_t>& prompt : prompts) {
    KVANT_ASSIGN_OR_RETURN(const std::vector<int32_t> answer,
                           Answer(sessions[0], prompt, options.tokens, control.cancel));
    tick();
    for (size_t i = 0; i < divergences.size(); ++i) {
      KVANT_ASSIGN_OR_RETURN(const int64_t equal,
                             EqualTokens(sessions[i + 1], prompt, answer, control.cancel));
      divergences[i].push_back(equal);
      tick();
    }
  }
  std::vector<GreedyAgreement> results;
  for (std::vector<int64_t>& divergence : divergences) {
    results.push_back(Agreement(options.tokens, std::move(divergence)));
  }
  return results;
}

Result<std::vector<std::vector<int32_t>>> CutPrompts(const Tokenizer& tokenizer,
                                                     std::span<const int32_t> text, int count,
                                                     int64_t prompt_tokens) {
  if (count < 1 || prompt_tokens < 1) {
    return Status::InvalidArgument("cannot cut " + std::to_string(count) + " prompts of " +
                                   std::to_string(prompt_tokens) + " tokens");
  }
  const int64_t size = static_cast<int64_t>(text.size());
  if (size < prompt_tokens) {
    return Status::OutOfRange("a text of " + std::to_string(size) +
                              " tokens is shorter than a prompt of " +
                              std::to_string(prompt_tokens));
  }
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = count == 1 ? 0 : (size - prompt_tokens) * i / (count - 1);
    prompts.push_back(ChunkOf(tokenizer, text, first, prompt_tokens));
  }
  return prompts;
}

DivergenceSummary SummariseDivergence(const GreedyAgreement& agreement) {
  std::vector<int64_t> sorted = agreement.first_divergence;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return {};
  // The smallest value that at least `quarters` quarters of all do not exceed.
  const auto rank = [&](size_t quarters) { return sorted[(sorted.size() * quarters + 3) / 4 - 1]; };
  return {.prompts = static_cast<int64_t>(sorted.size()),
          .share_equal = agreement.share_equal,
          .mean_tokens = agreement.mean_equal_tokens,
          .first_quartile_tokens = rank(1),
          .median_tokens = rank(2),
          .third_quartile_tokens = rank(3)};
}

}  // namespace kvant
