#include "kvant/tasks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "eval/divergence.h"
#include "eval/predict.h"
#include "eval/prompts.h"
#include "eval/sessions.h"

namespace kvant {
namespace {

constexpr size_t kSpareTokens = 8;  // an answer may be this much longer than the right one

// What one cache makes of one question.
struct Outcome {
  double score = 0;
  double nll = 0;  // nats a token
};

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

Status CheckOptions(const Model& model, const TaskOptions& o) {
  if (o.kinds.empty() || o.lengths_tokens.empty() || o.depths_percent.empty() || o.tests.empty()) {
    return Status::InvalidArgument("tasks need at least one kind, length, depth and cache");
  }
  if (o.questions < 1 || o.questions > 10000) {
    return Status::InvalidArgument(std::to_string(o.questions) +
                                   " questions a cell are not between 1 and 10000");
  }
  for (const int depth : o.depths_percent) {
    if (depth < 0 || depth > 100) {
      return Status::InvalidArgument("a depth of " + std::to_string(depth) +
                                     " is not between 0 and 100");
    }
  }
  for (const int64_t length : o.lengths_tokens) {
    if (length < 1 || length > model.context_tokens()) {
      return Status::OutOfRange("a length of " + std::to_string(length) +
                                " tokens is not between 1 and the model's context of " +
                                std::to_string(model.context_tokens()));
    }
  }
  return Status::Ok();
}

Result<TaskText> MakeQuestion(const Model& model, const std::vector<std::string>& sentences,
                              const TaskCell& cell, RandomStream& random) {
  if (cell.kind == TaskKind::kSums) return MakeSums(model, cell.length_tokens, random);
  if (cell.kind == TaskKind::kJsonCopy) {
    return MakeJsonCopy(model, cell.length_tokens, cell.depth_percent, random);
  }
  return MakeNeedle(model, sentences, cell.kind, cell.length_tokens, cell.depth_percent, random);
}

// Adds one question to the sums of a cell.
void Count(const Outcome& base, const Outcome& test, TaskCell* cell) {
  cell->base_right += base.score == 1 ? 1 : 0;
  cell->kept += base.score == 1 && test.score == 1 ? 1 : 0;
  cell->score += test.score;
  cell->base_score += base.score;
  cell->nll += test.nll;
  cell->nll_base += base.nll;
}

// Sums become means.
void Finish(TaskCell* cell) {
  for (double* figure : {&cell->score, &cell->base_score, &cell->nll, &cell->nll_base}) {
    *figure /= cell->questions;
  }
}

// Cells without test and figures.
std::vector<TaskCell> PlanCells(const TaskOptions& o) {
  std::vector<TaskCell> cells;
  for (const TaskKind kind : o.kinds) {
    for (const int64_t length : o.lengths_tokens) {
      for (const int depth : o.depths_percent) {
        const bool sums = kind == TaskKind::kSums;
        cells.push_back({.kind = kind,
                         .length_tokens = length,
                         .depth_percent = sums ? 0 : depth,
                         .questions = o.questions});
        if (sums) break;
      }
    }
  }
  return cells;
}

// The questions of every cell, before the first is asked: a text that is too short for the last is
// better known at once than after minutes. [cells][questions]
Result<std::vector<std::vector<TaskPrompt>>> MakePrompts(const Model& model,
                                                         std::string_view haystack,
                                                         const TaskOptions& options,
                                                         const std::vector<TaskCell>& plan,
                                                         const std::atomic<bool>* cancel) {
  const std::vector<std::string> sentences = SplitSentences(haystack);
  std::vector<std::vector<TaskPrompt>> prompts;
  for (const TaskCell& cell : plan) {
    RandomStream random = CellStream(options.seed, cell);
    prompts.emplace_back();
    for (int i = 0; i < options.questions; ++i) {
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
        return Status::Cancelled("cancelled by the caller");
      }
      KVANT_ASSIGN_OR_RETURN(const TaskText text, MakeQuestion(model, sentences, cell, random));
      KVANT_ASSIGN_OR_RETURN(TaskPrompt prompt, EncodeTask(model, text));
      prompts.back().push_back(std::move(prompt));
    }
  }
  return prompts;
}

}  // namespace

std::string_view TaskKindName(TaskKind kind) {
  switch (kind) {
    case TaskKind::kNeedle:
      return "needle";
    case TaskKind::kMultiKey:
      return "multi-key";
    case TaskKind::kMultiValue:
      return "multi-value";
    case TaskKind::kSums:
      return "sums";
    case TaskKind::kJsonCopy:
      return "json";
  }
  return "unknown";
}

bool NeedsHaystack(TaskKind kind) { return kind != TaskKind::kSums && kind != TaskKind::kJsonCopy; }

Result<std::vector<TaskCell>> RunTasks(const Model& model, std::string_view haystack,
                                       const TaskOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(model, options));
  const std::vector<TaskCell> plan = PlanCells(options);
  KVANT_ASSIGN_OR_RETURN(const auto prompts,
                         MakePrompts(model, haystack, options, plan, control.cancel));
  // Room for an answer of any kind beside the longest prompt.
  const auto longest =
      std::max_element(options.lengths_tokens.begin(), options.lengths_tokens.end());
  const SessionOptions session = {.kv = options.base,
                                  .context_tokens = *longest + 256,
                                  .threads = options.threads,
                                  .chunk_tokens = options.chunk_tokens};
  KVANT_ASSIGN_OR_RETURN(std::vector<Session> sessions,
                         MakeSessions(model, options.base, options.tests, session));
  const int64_t total = static_cast<int64_t>(plan.size() * sessions.size()) * options.questions;
  std::vector<TaskCell> cells;
  int64_t done = 0;
  for (size_t c = 0; c < plan.size(); ++c) {
    std::vector<TaskCell> asked(options.tests.size(), plan[c]);
    for (const TaskPrompt& prompt : prompts[c]) {
      Outcome base;
      for (size_t i = 0; i < sessions.size(); ++i) {
        KVANT_ASSIGN_OR_RETURN(const Outcome outcome, Ask(sessions[i], prompt, control.cancel));
        if (control.progress) control.progress(++done, total);
        if (i == 0) base = outcome;
        if (i > 0) Count(base, outcome, &asked[i - 1]);
      }
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].test = static_cast<int>(i);
      Finish(&asked[i]);
    }
    cells.insert(cells.end(), asked.begin(), asked.end());
  }
  return cells;
}

Result<std::vector<std::vector<int32_t>>> CutPrompts(std::span<const int32_t> text, int count,
                                                     int64_t prompt_tokens) {
  if (count < 1 || prompt_tokens < 1) {
    return Status::InvalidArgument("cannot cut " + std::to_string(count) + " prompts of " +
                                   std::to_string(prompt_tokens) + " tokens");
  }
  const int64_t size = static_cast<int64_t>(text.size());
  if (size < prompt_tokens) {
    return Status::OutOfRange("a text of " + std::to_string(size) +
                              " tokens is shorter than a prompt of " +
                              std::to_string(prompt_tokens));
  }
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < count; ++i) {
    const auto first = text.begin() + (count == 1 ? 0 : (size - prompt_tokens) * i / (count - 1));
    prompts.emplace_back(first, first + prompt_tokens);
  }
  return prompts;
}

DivergenceSummary SummariseDivergence(const GreedyAgreement& agreement) {
  std::vector<int64_t> sorted = agreement.first_divergence;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return {};
  // The smallest value that at least `quarters` quarters of all do not exceed.
  const auto rank = [&](size_t quarters) { return sorted[(sorted.size() * quarters + 3) / 4 - 1]; };
  return {.prompts = static_cast<int64_t>(sorted.size()),
          .share_equal = agreement.share_equal,
          .mean_tokens = agreement.mean_equal_tokens,
          .first_quartile_tokens = rank(1),
          .median_tokens = rank(2),
          .third_quartile_tokens = rank(3)};
}

}  // namespace kvant
