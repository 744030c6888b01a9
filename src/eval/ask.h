// One question asked of one session.
#pragma once

#include <atomic>
#include <cstddef>

#include "eval/prompts.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

inline constexpr size_t kSpareTokens = 8;  // an answer may be this much longer than the right one

// What one cache makes of one question.
struct Outcome {
  double score = 0;
  double nll = 0;  // nats a token
};

// Forgets what the session held. `cancel` may be null. The errors of Session.
Result<Outcome> Ask(Session& session, const TaskPrompt& prompt, const std::atomic<bool>* cancel);

}  // namespace kvant
