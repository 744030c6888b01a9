#include "eval/ask.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "eval/divergence.h"
#include "eval/predict.h"

namespace kvant {
namespace {

// What a session says when it is led along the right answer.
struct Forced {
  double nll = 0;    // nats a token
  size_t equal = 0;  // first tokens of the answer that it would have chosen itself
};

Result<Forced> ForceAnswer(Session& session, std::span<const int32_t> answer,
                           const std::atomic<bool>* cancel) {
  Forced forced;
  KVANT_RETURN_IF_ERROR(
      Predict(session, answer, cancel, [&](size_t i, std::span<const float> logits) {
        const int64_t vocab = static_cast<int64_t>(logits.size());
        forced.nll += CompareRows(logits.data(), logits.data(), vocab, answer[i]).nll_test;
        if (forced.equal == i && Argmax(logits) == answer[i]) ++forced.equal;
        return true;
      }));
  forced.nll /= static_cast<double>(answer.size());
  return forced;
}

// Whether what follows could no longer change the score. A number may stand anywhere, so it cannot
// be lost again; an item may still grow.
bool Answered(const TaskPrompt& prompt, std::string_view answer) {
  if (prompt.separator == 0) return ScoreAnswer(prompt, answer) == 1;
  return answer.find('\n') != answer.npos;
}

// The greedy answer, whose first `known` tokens are those of the right one.
Result<std::string> GreedyAnswer(Session& session, const TaskPrompt& prompt, size_t known,
                                 const std::atomic<bool>* cancel) {
  const Tokenizer& tokenizer = session.model().tokenizer();
  const auto beginning = std::span(prompt.answer).first(known);
  std::string answer;
  for (const int32_t token : beginning) answer += tokenizer.TokenBytes(token);
  if (Answered(prompt, answer)) return answer;
  KVANT_RETURN_IF_ERROR(session.Prefill(beginning, {.progress = {}, .cancel = cancel}));
  const size_t longest = prompt.answer.size() + kSpareTokens;
  for (size_t i = known; i < longest; ++i) {
    KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
    const int32_t token = Argmax(logits);
    if (tokenizer.IsEndOfGeneration(token)) break;
    answer += tokenizer.TokenBytes(token);
    if (Answered(prompt, answer)) break;
    if (i + 1 < longest) KVANT_RETURN_IF_ERROR(session.Decode(token));
  }
  return answer;
}

}  // namespace

Result<Outcome> Ask(Session& session, const TaskPrompt& prompt, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(session.Reset());
  KVANT_RETURN_IF_ERROR(session.Prefill(prompt.tokens, {.progress = {}, .cancel = cancel}));
  Forced forced;
  {
    KVANT_ASSIGN_OR_RETURN(Session fork, session.Fork());
    KVANT_ASSIGN_OR_RETURN(forced, ForceAnswer(fork, prompt.answer, cancel));
  }
  KVANT_ASSIGN_OR_RETURN(const std::string answer,
                         GreedyAnswer(session, prompt, forced.equal, cancel));
  return Outcome{.score = ScoreAnswer(prompt, answer), .nll = forced.nll};
}

}  // namespace kvant
