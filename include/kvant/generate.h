// Generate: a prompt through a session, then token after token of answer, with what it cost.
//
// Thread rules: those of the session.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/ledger.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

struct GenerateOptions {
  int64_t max_tokens = 128;  // of the answer
  SamplerOptions sampler;
  std::vector<std::string> stop;  // texts that end the answer and are not part of it
  bool ignore_end = false;        // go on after the model's end token
  // A full context is shifted (Session::PlanShift) with so many tokens kept, and the answer goes
  // on.
  std::optional<int64_t> shift_keep_tokens = std::nullopt;
};

enum class StopReason { kLength, kEndToken, kStopText, kContext, kCancelled };
std::string_view StopReasonName(StopReason reason);  // "length", "end", "stop", "context", "cancel"

struct GenerateResult {
  std::vector<int32_t> tokens;  // of the answer, the end token left out
  std::string text;
  StopReason stop_reason = StopReason::kLength;
  int64_t prompt_tokens = 0;
  int64_t decoded_tokens = 0;  // steps of one token: one less than were sampled
  int64_t shifts = 0;          // of the context
  double prefill_seconds = 0;
  double decode_seconds = 0;            // of these steps, with sampling
  CacheLedger ledger;                   // after the last step
  int64_t kv_bytes_read_per_token = 0;  // by a decode step at the last length
  int64_t weight_bytes_read_per_token = 0;
  int64_t decode_bytes_read = 0;  // cache and weights, by all the decode steps

  // 0 where nothing was run.
  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
  double decode_gb_per_s() const;  // 1e9 bytes, cache and weights
};

// Appends the prompt, then samples until a reason to stop. on_text gets the answer piece by piece,
// whole characters only; the pieces together are the result's text. The last sampled token is not
// appended to the session. kInvalidArgument for an empty prompt on an empty session or an
// impossible option; otherwise the errors of Session::PlanShift (before anything is run), Prefill,
// Decode and Shift. A cancel during the
// prompt is kCancelled; later it is a reason to stop, and the result holds what there is.
Result<GenerateResult> Generate(Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options,
                                const std::function<void(std::string_view)>& on_text = {},
                                const RunControl& control = {});

}  // namespace kvant
