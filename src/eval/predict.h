// What a session predicts along a given continuation.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>

#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

// visit(i, logits) gets the prediction that tokens[i] is to be compared with; logits [vocab_size]
// are valid until it returns, and false ends the walk. The tokens are run many at once, which gives
// the same bits as one after the other: the session is left with some of them appended, at most all
// but the last. The errors of Prefill.
Status Predict(Session& session, std::span<const int32_t> tokens, const std::atomic<bool>* cancel,
               const std::function<bool(size_t, std::span<const float>)>& visit);

}  // namespace kvant
