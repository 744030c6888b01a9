#include "eval/evaluation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "model/text_chunk.h"

namespace kvant {
namespace {

// Rows whose logits are held at once: 12 MB of each side for a vocabulary of 100,000.
constexpr int64_t kLogitRows = 32;

}  // namespace

Evaluation::Evaluation(Inputs inputs)
    : inputs_{.ctx_tokens = inputs.ctx_tokens,
              .mode = inputs.mode,
              .max_scored_tokens = inputs.max_scored_tokens,
              .position_buckets = inputs.position_buckets,
              .base = std::nullopt,
              .file = inputs.file,
              .writer = inputs.writer,
              .tests = {}},
      vocab_(inputs.tests[0].model().vocab_size()),
      base_(std::move(inputs.base)) {
  const int64_t ctx = inputs_.ctx_tokens;
  for (Session& test : inputs.tests) {
    sides_.push_back({std::move(test), Summary(ctx / 2, ctx - 1, inputs_.position_buckets), {}});
  }
  const size_t values = static_cast<size_t>(kLogitRows * vocab_);
  test_logits_.resize(values);
  if (inputs_.file == nullptr) {
    base_logits_.resize(values);
  } else {
    base_codes_.resize(values);
    base_rows_.resize(static_cast<size_t>(kLogitRows));
  }
  scores_.resize(static_cast<size_t>(kLogitRows));
}

bool Evaluation::full() const {
  return inputs_.max_scored_tokens != 0 && sides_[0].summary.tokens() >= inputs_.max_scored_tokens;
}

Status Evaluation::Reset(std::span<const int32_t> text, int64_t index) {
  if (base_) KVANT_RETURN_IF_ERROR(base_->Reset());
  for (Side& side : sides_) KVANT_RETURN_IF_ERROR(side.session.Reset());
  chunk_ = index;
  tokens_ = ChunkOf(sides_[0].session.model().tokenizer(), text, index * inputs_.ctx_tokens,
                    inputs_.ctx_tokens);
  return sides_[0].session.impl().Check(tokens_);
}

Status Evaluation::RunChunk(std::span<const int32_t> text, int64_t index,
                            const std::atomic<bool>* cancel,
                            const std::function<void(int64_t)>& on_tokens) {
  KVANT_RETURN_IF_ERROR(Reset(text, index));
  const int64_t most = sides_[0].session.impl().engine->llama->max_rows();
  const int64_t step = inputs_.mode == EvalMode::kDecode ? 1 : most;
  for (int64_t done = 0; done < inputs_.ctx_tokens && !full();) {
    int64_t count = std::min(step, inputs_.ctx_tokens - done);
    if (base_) count = std::min(count, base_->impl().max_step_tokens());
    for (Side& side : sides_) {
      count = std::min(count, side.session.impl().max_step_tokens());
    }
    const std::span<const int32_t> part(tokens_.data() + done, static_cast<size_t>(count));
    if (base_) KVANT_RETURN_IF_ERROR(base_->impl().Step(part, cancel));
    for (Side& side : sides_) KVANT_RETURN_IF_ERROR(side.session.impl().Step(part, cancel));
    KVANT_RETURN_IF_ERROR(Score(done, count));
    done += count;
    if (on_tokens) on_tokens(count);
  }
  if (sides_[0].session.length() < longest_) return Status::Ok();
  longest_ = sides_[0].session.length();
  for (Side& side : sides_) side.ledger = side.session.ledger();
  if (base_) base_bits_ = base_->ledger().effective_bits;
  return Status::Ok();
}

EvalContext Evaluation::Finish(size_t test) const {
  EvalContext result;
  result.ctx_tokens = inputs_.ctx_tokens;
  result.mode = inputs_.mode;
  result.test = static_cast<int>(test);
  result.effective_bits = sides_[test].ledger.effective_bits;
  result.kv_bytes = sides_[test].ledger.kv_bytes;
  if (base_) result.effective_bits_base = base_bits_;
  sides_[test].summary.Finish(&result);
  return result;
}

Status Evaluation::Score(int64_t position, int64_t count) {
  const int64_t first = std::max(position, inputs_.ctx_tokens / 2);
  int64_t end = std::min(position + count, inputs_.ctx_tokens - 1);
  if (inputs_.max_scored_tokens != 0) {
    end = std::min(end, first + inputs_.max_scored_tokens - sides_[0].summary.tokens());
  }
  for (int64_t at = first; at < end; at += kLogitRows) {
    KVANT_RETURN_IF_ERROR(ScoreRows(at - position, at, std::min(kLogitRows, end - at)));
  }
  return Status::Ok();
}

Status Evaluation::ScoreRows(int64_t row, int64_t position, int64_t rows) {
  LoadBase(row, position, rows);
  for (Side& side : sides_) KVANT_RETURN_IF_ERROR(ScoreTest(side, row, position, rows));
  // Last: by now the base's logits are known to be finite.
  return inputs_.writer == nullptr ? Status::Ok() : inputs_.writer->Add(base_logits_.data(), rows);
}

void Evaluation::LoadBase(int64_t row, int64_t position, int64_t rows) {
  if (base_) return FillLogits(*base_, row, rows, base_logits_);
  const int64_t ctx = inputs_.ctx_tokens;
  const int64_t first = chunk_ * LogitRowsOf(ctx) + position - ctx / 2;
  for (int64_t r = 0; r < rows; ++r) {
    inputs_.file->ReadRow(first + r, base_codes_.data() + r * vocab_,
                          &base_rows_[static_cast<size_t>(r)]);
  }
}

Status Evaluation::ScoreTest(Side& side, int64_t row, int64_t position, int64_t rows) {
  FillLogits(side.session, row, rows, test_logits_);
  pool().ParallelFor(rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      scores_[static_cast<size_t>(r)] = Compare(r, tokens_[static_cast<size_t>(position + r + 1)]);
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    const RowScore& score = scores_[static_cast<size_t>(r)];
    if (!score.finite) {
      return Status::Corrupt(
          "the model or the base file gives a logit that is not finite at "
          "position " +
          std::to_string(position + r));
    }
    side.summary.Add(score, position + r, chunk_ * inputs_.ctx_tokens + position + r + 1);
  }
  return Status::Ok();
}

RowScore Evaluation::Compare(int64_t row, int32_t target) const {
  const float* test = test_logits_.data() + row * vocab_;
  if (inputs_.file != nullptr) {
    return CompareWithCoded(base_rows_[static_cast<size_t>(row)], test, vocab_, target);
  }
  return CompareRows(base_logits_.data() + row * vocab_, test, vocab_, target);
}

void Evaluation::FillLogits(Session& session, int64_t row, int64_t rows,
                            std::vector<float>& out) const {
  Llama& llama = *session.impl().engine->llama;
  const int64_t fit = llama.max_rows();
  for (int64_t r = 0; r < rows; r += fit) {
    llama.Logits(llama.hidden(row + r), std::min(fit, rows - r), out.data() + r * vocab_);
  }
}

}  // namespace kvant
