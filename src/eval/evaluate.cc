#include <algorithm>
#include <string>
#include <utility>

#include "eval/divergence.h"
#include "eval/summary.h"
#include "kvant/eval.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

// Rows whose logits of both caches are held at once: 25 MB for a vocabulary of 100,000.
constexpr int64_t kLogitRows = 32;

Status CheckOptions(std::span<const int32_t> text, const EvalOptions& options) {
  if (options.contexts_tokens.empty() || options.modes.empty()) {
    return Status::InvalidArgument("there is no context or no mode to evaluate");
  }
  if (options.max_scored_tokens < 0 || options.position_buckets < 1) {
    return Status::InvalidArgument("cannot score " + std::to_string(options.max_scored_tokens) +
                                   " tokens in " + std::to_string(options.position_buckets) +
                                   " parts");
  }
  for (const int64_t ctx : options.contexts_tokens) {
    if (ctx < 4) {
      return Status::InvalidArgument("a context of " + std::to_string(ctx) +
                                     " tokens is too short to score; the least is 4");
    }
    if (ctx > static_cast<int64_t>(text.size())) {
      return Status::OutOfRange("the text has " + std::to_string(text.size()) +
                                " tokens, fewer than the context of " + std::to_string(ctx));
    }
  }
  return Status::Ok();
}

// One context length in one mode: a base and a test session that read the same tokens.
class Evaluation {
 public:
  Evaluation(const EvalOptions& options, int64_t ctx, EvalMode mode, Session base, Session test)
      : options_(options),
        ctx_(ctx),
        mode_(mode),
        vocab_(base.model().vocab_size()),
        base_(std::move(base)),
        test_(std::move(test)),
        summary_(ctx / 2, ctx - 1, options.position_buckets) {
    base_logits_.resize(static_cast<size_t>(kLogitRows * vocab_));
    test_logits_.resize(static_cast<size_t>(kLogitRows * vocab_));
    scores_.resize(static_cast<size_t>(kLogitRows));
  }

  // Runs one chunk, whose first token is text[offset].
  template <typename Tick>
  Status RunChunk(std::span<const int32_t> text, int64_t offset, const std::atomic<bool>* cancel,
                  const Tick& tick) {
    KVANT_RETURN_IF_ERROR(base_.Reset());
    KVANT_RETURN_IF_ERROR(test_.Reset());
    offset_ = offset;
    const auto begin = text.begin() + offset;
    tokens_.assign(begin, begin + ctx_);
    const Tokenizer& tokenizer = base_.model().tokenizer();
    if (tokenizer.add_bos()) tokens_[0] = tokenizer.bos();
    KVANT_RETURN_IF_ERROR(base_.impl().Check(tokens_));
    const int64_t step = mode_ == EvalMode::kDecode ? 1 : base_.impl().engine->llama->max_rows();
    for (int64_t done = 0; done < ctx_ && !full();) {
      const int64_t count = std::min(step, ctx_ - done);
      const std::span<const int32_t> part(tokens_.data() + done, static_cast<size_t>(count));
      KVANT_RETURN_IF_ERROR(base_.impl().Step(part, cancel));
      KVANT_RETURN_IF_ERROR(test_.impl().Step(part, cancel));
      KVANT_RETURN_IF_ERROR(Score(done, count));
      done += count;
      tick(count);
    }
    longest_ = std::max(longest_, test_.length());
    if (test_.length() == longest_) {
      bits_ = test_.ledger().effective_bits;
      base_bits_ = base_.ledger().effective_bits;
    }
    return Status::Ok();
  }

  bool full() const {
    return options_.max_scored_tokens != 0 && summary_.tokens() >= options_.max_scored_tokens;
  }

  EvalContext Finish() const {
    EvalContext result;
    result.ctx_tokens = ctx_;
    result.mode = mode_;
    result.effective_bits = bits_;
    result.effective_bits_base = base_bits_;
    summary_.Finish(&result);
    return result;
  }

 private:
  // Scores what is to be scored of the `count` rows that begin at `position` of the chunk.
  Status Score(int64_t position, int64_t count) {
    const int64_t first = std::max(position, ctx_ / 2);
    int64_t end = std::min(position + count, ctx_ - 1);
    if (options_.max_scored_tokens != 0) {
      end = std::min(end, first + options_.max_scored_tokens - summary_.tokens());
    }
    for (int64_t at = first; at < end; at += kLogitRows) {
      KVANT_RETURN_IF_ERROR(ScoreRows(at - position, at, std::min(kLogitRows, end - at)));
    }
    return Status::Ok();
  }

  Status ScoreRows(int64_t row, int64_t position, int64_t rows) {
    FillLogits(base_, row, rows, base_logits_);
    FillLogits(test_, row, rows, test_logits_);
    base_.impl().engine->pool->ParallelFor(rows, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        scores_[static_cast<size_t>(r)] =
            CompareRows(base_logits_.data() + r * vocab_, test_logits_.data() + r * vocab_, vocab_,
                        tokens_[static_cast<size_t>(position + r + 1)]);
      }
    });
    for (int64_t r = 0; r < rows; ++r) {
      const RowScore& score = scores_[static_cast<size_t>(r)];
      if (!score.finite) {
        return Status::Corrupt("the model gives a logit that is not finite at position " +
                               std::to_string(position + r));
      }
      summary_.Add(score, position + r, offset_ + position + r + 1);
    }
    return Status::Ok();
  }

  void FillLogits(Session& session, int64_t row, int64_t rows, std::vector<float>& out) const {
    Llama& llama = *session.impl().engine->llama;
    const int64_t fit = llama.max_rows();
    for (int64_t r = 0; r < rows; r += fit) {
      llama.Logits(llama.hidden(row + r), std::min(fit, rows - r), out.data() + r * vocab_);
    }
  }

  const EvalOptions& options_;
  const int64_t ctx_;
  const EvalMode mode_;
  const int64_t vocab_;
  Session base_, test_;
  Summary summary_;
  int64_t offset_ = 0;  // of the chunk in the text
  std::vector<int32_t> tokens_;
  std::vector<float> base_logits_, test_logits_;  // [kLogitRows][vocab]
  std::vector<RowScore> scores_;
  int64_t longest_ = 0;
  double bits_ = 0, base_bits_ = 0;
};

// Chunks that a run of one context needs: those of the text, or as many as hold what is scored.
int64_t ChunkCount(std::span<const int32_t> text, int64_t ctx, int64_t max_scored_tokens) {
  const int64_t chunks = static_cast<int64_t>(text.size()) / ctx;
  if (max_scored_tokens == 0) return chunks;
  const int64_t scored = ctx - 1 - ctx / 2;
  return std::min(chunks, (max_scored_tokens + scored - 1) / scored);
}

}  // namespace

std::string_view EvalModeName(EvalMode mode) {
  return mode == EvalMode::kPrefill ? "prefill" : "decode";
}

Result<std::vector<EvalContext>> Evaluate(const Model& model, std::span<const int32_t> text,
                                          const EvalOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(text, options));
  KVANT_ASSIGN_OR_RETURN(std::shared_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(options.threads)));
  int64_t total = 0, done = 0;
  for (const int64_t ctx : options.contexts_tokens) {
    total += ChunkCount(text, ctx, options.max_scored_tokens) * ctx *
             static_cast<int64_t>(options.modes.size());
  }
  std::vector<EvalContext> results;
  for (const int64_t ctx : options.contexts_tokens) {
    for (const EvalMode mode : options.modes) {
      SessionOptions session = {.kv = options.base,
                                .context_tokens = ctx,
                                .threads = options.threads,
                                .chunk_tokens = options.chunk_tokens};
      KVANT_ASSIGN_OR_RETURN(Session base, SessionMaker::Create(model, session, pool));
      session.kv = options.test;
      KVANT_ASSIGN_OR_RETURN(Session test, SessionMaker::Create(model, session, pool));
      Evaluation evaluation(options, ctx, mode, std::move(base), std::move(test));
      const int64_t chunks = ChunkCount(text, ctx, options.max_scored_tokens);
      for (int64_t i = 0; i < chunks && !evaluation.full(); ++i) {
        KVANT_RETURN_IF_ERROR(
            evaluation.RunChunk(text, i * ctx, control.cancel, [&](int64_t tokens) {
              done += tokens;
              if (control.progress) control.progress(done, total);
            }));
      }
      results.push_back(evaluation.Finish());
    }
  }
  return results;
}

}  // namespace kvant
