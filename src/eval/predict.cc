#include "eval/predict.h"

#include <algorithm>
#include <vector>

#include "model/session_impl.h"

namespace kvant {
namespace {

// Tokens of a pass: enough to read the weights seldom, few enough that a walk that ends early has
// not computed much for nothing.
constexpr int64_t kRows = 32;

}  // namespace

Status Predict(Session& session, std::span<const int32_t> tokens, const std::atomic<bool>* cancel,
               const std::function<bool(size_t, std::span<const float>)>& visit) {
  if (tokens.empty()) return Status::Ok();
  KVANT_RETURN_IF_ERROR(session.impl().Check(tokens.first(tokens.size() - 1)));
  KVANT_ASSIGN_OR_RETURN(const std::span<const float> first, session.Logits());
  if (!visit(0, first)) return Status::Ok();
  Llama& llama = *session.impl().engine->llama;
  const size_t vocab = first.size();
  const size_t step = static_cast<size_t>(std::min(kRows, llama.max_rows()));
  std::vector<float> logits(step * vocab);
  for (size_t done = 1, rows = 0; done < tokens.size(); done += rows) {
    rows = std::min(
        {step, tokens.size() - done, static_cast<size_t>(session.impl().max_step_tokens())});
    KVANT_RETURN_IF_ERROR(session.impl().Step(tokens.subspan(done - 1, rows), cancel));
    llama.Logits(llama.hidden(0), static_cast<int64_t>(rows), logits.data());
    for (size_t row = 0; row < rows; ++row) {
      if (!visit(done + row, {logits.data() + row * vocab, vocab})) return Status::Ok();
    }
  }
  return Status::Ok();
}

}  // namespace kvant
