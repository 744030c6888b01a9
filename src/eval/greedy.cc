#include <string>
#include <utility>

#include "eval/divergence.h"
#include "kvant/eval.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

Result<int32_t> LikeliestToken(Session& session) {
  KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
  return Argmax(logits.data(), static_cast<int64_t>(logits.size()));
}

// Tokens of an answer of `tokens` that both sessions give before the first that differs.
Result<int64_t> EqualTokens(Session& base, Session& test, std::span<const int32_t> prompt,
                            int64_t tokens, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(base.Reset());
  KVANT_RETURN_IF_ERROR(test.Reset());
  KVANT_RETURN_IF_ERROR(base.Prefill(prompt, {.progress = {}, .cancel = cancel}));
  KVANT_RETURN_IF_ERROR(test.Prefill(prompt, {.progress = {}, .cancel = cancel}));
  for (int64_t equal = 0;; ++equal) {
    KVANT_ASSIGN_OR_RETURN(const int32_t token, LikeliestToken(base));
    KVANT_ASSIGN_OR_RETURN(const int32_t other, LikeliestToken(test));
    if (token != other) return equal;
    if (equal + 1 == tokens) return tokens;
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return Status::Cancelled("cancelled by the caller");
    }
    KVANT_RETURN_IF_ERROR(base.Decode(token));
    KVANT_RETURN_IF_ERROR(test.Decode(token));
  }
}

}  // namespace

Result<GreedyAgreement> CompareGreedy(const Model& model,
                                      std::span<const std::vector<int32_t>> prompts,
                                      const GreedyOptions& options, const RunControl& control) {
  if (prompts.empty() || options.tokens < 1) {
    return Status::InvalidArgument("cannot compare answers of " + std::to_string(options.tokens) +
                                   " tokens to " + std::to_string(prompts.size()) + " prompts");
  }
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) return Status::InvalidArgument("a prompt is empty");
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  }
  KVANT_ASSIGN_OR_RETURN(std::shared_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(options.threads)));
  SessionOptions session = {.kv = options.base,
                            .context_tokens = longest + options.tokens,
                            .threads = options.threads,
                            .chunk_tokens = options.chunk_tokens};
  KVANT_ASSIGN_OR_RETURN(Session base, SessionMaker::Create(model, session, pool));
  session.kv = options.test;
  KVANT_ASSIGN_OR_RETURN(Session test, SessionMaker::Create(model, session, pool));

  const int64_t total = static_cast<int64_t>(prompts.size()) * options.tokens;
  GreedyAgreement result;
  result.tokens = options.tokens;
  int64_t equal_prompts = 0, equal_tokens = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    KVANT_ASSIGN_OR_RETURN(const int64_t equal,
                           EqualTokens(base, test, prompt, options.tokens, control.cancel));
    result.first_divergence.push_back(equal);
    equal_prompts += equal == options.tokens ? 1 : 0;
    equal_tokens += equal;
    const int64_t done = static_cast<int64_t>(result.first_divergence.size()) * options.tokens;
    if (control.progress) control.progress(done, total);
  }
  const double count = static_cast<double>(prompts.size());
  result.share_equal = static_cast<double>(equal_prompts) / count;
  result.mean_equal_tokens = static_cast<double>(equal_tokens) / count;
  return result;
}

}  // namespace kvant
