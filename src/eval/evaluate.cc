#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "eval/evaluation.h"
#include "eval/logit_base.h"
#include "kvant/eval.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

Status CheckContexts(std::span<const int32_t> text, const EvalOptions& options) {
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

Status CheckOptions(std::span<const int32_t> text, const EvalOptions& options) {
  if (options.contexts_tokens.empty() || options.modes.empty() || options.tests.empty()) {
    return Status::InvalidArgument("there is no context, mode or cache to evaluate");
  }
  if (options.max_scored_tokens < 0 || options.position_buckets < 1) {
    return Status::InvalidArgument("cannot score " + std::to_string(options.max_scored_tokens) +
                                   " tokens in " + std::to_string(options.position_buckets) +
                                   " parts");
  }
  const bool reads = !options.read_base_path.empty(), writes = !options.write_base_path.empty();
  if (reads && writes) {
    return Status::InvalidArgument("base logits can be read or written, not both");
  }
  if ((reads || writes) && options.contexts_tokens.size() != 1) {
    return Status::InvalidArgument("a file of base logits holds one context, not " +
                                   std::to_string(options.contexts_tokens.size()));
  }
  return CheckContexts(text, options);
}

// Chunks that hold what is to be scored. REQUIRES: there is a limit.
int64_t ChunksToScore(const EvalOptions& options, int64_t ctx) {
  const int64_t scored = LogitRowsOf(ctx);
  return (options.max_scored_tokens + scored - 1) / scored;
}

// What stays the same over all contexts and modes of a call.
class Evaluator {
 public:
  static Result<Evaluator> Create(const Model& model, std::span<const int32_t> text,
                                  const EvalOptions& options, const RunControl& control) {
    Evaluator e(model, text, options, control);
    KVANT_ASSIGN_OR_RETURN(e.pool_, ThreadPool::Create(ThreadCount(options.threads)));
    if (!options.read_base_path.empty()) {
      KVANT_ASSIGN_OR_RETURN(LogitBaseReader file, LogitBaseReader::Open(options.read_base_path));
      KVANT_RETURN_IF_ERROR(file.CheckFits(text, options.contexts_tokens[0], model.vocab_size()));
      e.file_.emplace(std::move(file));
    }
    e.PlanFloor();
    for (const int64_t ctx : options.contexts_tokens) {
      e.total_ += e.ChunkCount(ctx) * ctx * static_cast<int64_t>(options.modes.size());
    }
    return e;
  }

  Result<std::vector<EvalContext>> Run() {
    std::vector<EvalContext> results;
    bool writes = !options_.write_base_path.empty();  // in the first mode
    for (const int64_t ctx : options_.contexts_tokens) {
      for (const EvalMode mode : options_.modes) {
        KVANT_RETURN_IF_ERROR(RunOne(ctx, mode, std::exchange(writes, false), &results));
      }
    }
    return results;
  }

 private:
  Evaluator(const Model& model, std::span<const int32_t> text, const EvalOptions& options,
            const RunControl& control)
      : model_(model), text_(text), options_(options), control_(control), specs_(options.tests) {}

  // The floor is measured by a test of its own, or by one of the caller's that has its formats.
  void PlanFloor() {
    if (!options_.noise_floor) return;
    KvSpec lossless = options_.base;
    if (!file_) {
      if (options_.base.k == kFormatF32 && options_.base.v == kFormatF32) return;
      lossless.k = lossless.v = kFormatF32;
      lossless.skip_layers.clear();
      lossless.layers.clear();
    }
    floor_ = std::find(specs_.begin(), specs_.end(), lossless) - specs_.begin();
    if (*floor_ == static_cast<int64_t>(specs_.size())) specs_.push_back(lossless);
  }

  bool whole_chunks() const {
    return !options_.read_base_path.empty() || !options_.write_base_path.empty();
  }

  // Chunks that a run needs: those of the text and the base file, or as many as hold what is
  // scored.
  int64_t ChunkCount(int64_t ctx) const {
    int64_t chunks = static_cast<int64_t>(text_.size()) / ctx;
    if (file_) chunks = std::min(chunks, file_->summary().chunks);
    if (options_.max_scored_tokens == 0) return chunks;
    return std::min(chunks, ChunksToScore(options_, ctx));
  }

  Result<Session> MakeSession(int64_t ctx, const KvSpec& spec) const {
    return SessionMaker::Create(model_,
                                {.kv = spec,
                                 .context_tokens = ctx,
                                 .threads = options_.threads,
                                 .chunk_tokens = options_.chunk_tokens},
                                pool_);
  }

  Status RunOne(int64_t ctx, EvalMode mode, bool write, std::vector<EvalContext>* results) {
    const int64_t chunks = ChunkCount(ctx);
    std::optional<LogitBaseWriter> writer;
    Evaluation::Inputs inputs{.ctx_tokens = ctx,
                              .mode = mode,
                              .max_scored_tokens = whole_chunks() ? 0 : options_.max_scored_tokens,
                              .position_buckets = options_.position_buckets,
                              .base = std::nullopt,
                              .file = file_ ? &*file_ : nullptr,
                              .writer = nullptr,
                              .tests = {}};
    if (write) {
      KVANT_ASSIGN_OR_RETURN(
          LogitBaseWriter made,
          LogitBaseWriter::Create(options_.write_base_path, ctx, model_.vocab_size(),
                                  text_.first(static_cast<size_t>(chunks * ctx))));
      inputs.writer = &writer.emplace(std::move(made));
    }
    if (!file_) {
      KVANT_ASSIGN_OR_RETURN(inputs.base, MakeSession(ctx, options_.base));
    }
    for (const KvSpec& spec : specs_) {
      KVANT_ASSIGN_OR_RETURN(Session test, MakeSession(ctx, spec));
      inputs.tests.push_back(std::move(test));
    }
    Evaluation evaluation(std::move(inputs));
    for (int64_t i = 0; i < chunks && !evaluation.full(); ++i) {
      KVANT_RETURN_IF_ERROR(
          evaluation.RunChunk(text_, i, control_.cancel, [&](int64_t tokens) { Tick(tokens); }));
    }
    AddResults(evaluation, results);
    return writer ? writer->Commit() : Status::Ok();
  }

  void AddResults(const Evaluation& evaluation, std::vector<EvalContext>* results) const {
    std::optional<EvalContext> floor;
    if (floor_) floor = evaluation.Finish(static_cast<size_t>(*floor_));
    for (size_t test = 0; test < options_.tests.size(); ++test) {
      EvalContext result = evaluation.Finish(test);
      if (floor) SetFloor(*floor, &result);
      results->push_back(std::move(result));
    }
  }

  static void SetFloor(const EvalContext& floor, EvalContext* result) {
    result->floor = {.mean_kl = floor.mean_kl,
                     .mean_kl_se = floor.mean_kl_se,
                     .p99_kl = floor.p99_kl,
                     .p999_kl = floor.p999_kl,
                     .same_top1 = floor.same_top1,
                     .ppl_ratio = floor.ppl_ratio};
    for (size_t i = 0; i < floor.by_position.size(); ++i) {
      result->by_position[i].floor_kl = floor.by_position[i].mean_kl;
    }
  }

  void Tick(int64_t tokens) {
    done_ += tokens;
    if (control_.progress) control_.progress(done_, total_);
  }

  const Model& model_;
  const std::span<const int32_t> text_;
  const EvalOptions& options_;
  const RunControl& control_;
  std::vector<KvSpec> specs_;  // the tests, and what the floor needs
  std::optional<int64_t> floor_;
  std::shared_ptr<ThreadPool> pool_;
  std::optional<LogitBaseReader> file_;
  int64_t total_ = 0, done_ = 0;
};

}  // namespace

std::string_view EvalModeName(EvalMode mode) {
  return mode == EvalMode::kPrefill ? "prefill" : "decode";
}

std::optional<int64_t> TokensToEvaluate(const EvalOptions& options) {
  if (options.max_scored_tokens == 0) return std::nullopt;
  int64_t tokens = 0;
  for (const int64_t ctx : options.contexts_tokens) {
    // A context too short to score is refused by Evaluate.
    if (LogitRowsOf(ctx) > 0) tokens = std::max(tokens, ChunksToScore(options, ctx) * ctx);
  }
  return tokens;
}

Result<std::vector<EvalContext>> Evaluate(const Model& model, std::span<const int32_t> text,
                                          const EvalOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(text, options));
  KVANT_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(model, text, options, control));
  return evaluator.Run();
}

}  // namespace kvant
