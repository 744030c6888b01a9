#include "kvant/generate.h"

#include <chrono>
#include <utility>

#include "kvant/utf8_stream.h"

namespace kvant {
namespace {

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The text of an answer on its way out: tokens to characters to what no stop text can swallow.
class TextSink {
 public:
  TextSink(StopMatcher stops, const std::function<void(std::string_view)>& on_text,
           std::string* text)
      : stops_(std::move(stops)), on_text_(on_text), text_(text) {}

  void Append(std::string_view bytes) { Emit(stops_.Append(characters_.Append(bytes))); }
  void Finish() {
    Emit(stops_.Append(characters_.Flush()));
    if (!stops_.stopped()) Emit(stops_.Flush());
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  void Emit(std::string_view piece) {
    if (piece.empty()) return;
    text_->append(piece);
    if (on_text_) on_text_(piece);
  }

  Utf8Stream characters_;
  StopMatcher stops_;
  const std::function<void(std::string_view)>& on_text_;
  std::string* text_;
};

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// Samples and decodes until there is a reason to stop.
Status DecodeLoop(Session& session, Sampler& sampler, const GenerateOptions& options,
                  const std::optional<ContextShift>& shift, const std::atomic<bool>* cancel,
                  TextSink& sink, GenerateResult& result) {
  const Tokenizer& tokenizer = session.model().tokenizer();
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      result.stop_reason = StopReason::kCancelled;
      return Status::Ok();
    }
    KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
    KVANT_ASSIGN_OR_RETURN(const int32_t token, sampler.Sample(logits));
    if (!options.ignore_end && tokenizer.IsEndOfGeneration(token)) {
      result.stop_reason = StopReason::kEndToken;
      return Status::Ok();
    }
    result.tokens.push_back(token);
    if (!tokenizer.IsControl(token)) sink.Append(tokenizer.TokenBytes(token));
    if (sink.stopped()) {
      result.stop_reason = StopReason::kStopText;
      return Status::Ok();
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) break;
    if (session.length() == session.context_tokens()) {
      if (!shift) {
        result.stop_reason = StopReason::kContext;
        return Status::Ok();
      }
      KVANT_RETURN_IF_ERROR(session.Shift(*shift));
      ++result.shifts;
    }
    KVANT_RETURN_IF_ERROR(session.Decode(token));
    ++result.decoded_tokens;
    result.decode_bytes_read +=
        session.kv_bytes_read_per_token() + result.weight_bytes_read_per_token;
  }
  result.stop_reason = StopReason::kLength;
  return Status::Ok();
}

}  // namespace

std::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEndToken:
      return "end";
    case StopReason::kStopText:
      return "stop";
    case StopReason::kContext:
      return "context";
    case StopReason::kCancelled:
      return "cancel";
  }
  return "unknown";
}

double GenerateResult::prefill_tokens_per_s() const {
  return Rate(static_cast<double>(prompt_tokens), prefill_seconds);
}
double GenerateResult::decode_tokens_per_s() const {
  return Rate(static_cast<double>(decoded_tokens), decode_seconds);
}
double GenerateResult::decode_gb_per_s() const {
  return Rate(static_cast<double>(decode_bytes_read) * 1e-9, decode_seconds);
}

Result<GenerateResult> Generate(Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options,
                                const std::function<void(std::string_view)>& on_text,
                                const RunControl& control) {
  if (options.max_tokens < 0) {
    return Status::InvalidArgument("an answer of " + std::to_string(options.max_tokens) +
                                   " tokens is impossible");
  }
  if (prompt.empty() && session.length() == 0) {
    return Status::InvalidArgument("the prompt is empty: there is nothing to continue");
  }
  KVANT_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(options.sampler));
  KVANT_ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::Create(options.stop));
  std::optional<ContextShift> shift;
  if (options.shift_keep_tokens) {
    KVANT_ASSIGN_OR_RETURN(shift, session.PlanShift(*options.shift_keep_tokens));
  }
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  result.weight_bytes_read_per_token = session.model().weight_bytes_read_per_token();
  const Stopwatch prefill;
  KVANT_RETURN_IF_ERROR(session.Prefill(prompt, control));
  result.prefill_seconds = prefill.Seconds();

  TextSink sink(std::move(stops), on_text, &result.text);
  const Stopwatch decode;
  KVANT_RETURN_IF_ERROR(DecodeLoop(session, sampler, options, shift, control.cancel, sink, result));
  result.decode_seconds = decode.Seconds();
  sink.Finish();
  result.ledger = session.ledger();
  result.kv_bytes_read_per_token = session.kv_bytes_read_per_token();
  return result;
}

}  // namespace kvant
