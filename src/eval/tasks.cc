#include "kvant/tasks.h"

#include <algorithm>
#include <utility>

#include "eval/divergence.h"
#include "eval/prompts.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

constexpr int64_t kSpareTokens = 8;  // an answer may be this much longer than the right one

// What one cache makes of one question.
struct Outcome {
  double score = 0;
  double nll = 0;  // nats a token
};

// The right answer, token by token, appended to the session.
Result<double> ForcedNll(Session& session, std::span<const int32_t> answer) {
  double sum = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
    sum += CompareRows(logits.data(), logits.data(), static_cast<int64_t>(logits.size()), answer[i])
               .nll_test;
    if (i + 1 < answer.size()) KVANT_RETURN_IF_ERROR(session.Decode(answer[i]));
  }
  return sum / static_cast<double>(answer.size());
}

Result<std::string> GreedyAnswer(Session& session, const TaskPrompt& prompt) {
  const Tokenizer& tokenizer = session.model().tokenizer();
  const int64_t longest = static_cast<int64_t>(prompt.answer.size()) + kSpareTokens;
  std::string answer;
  for (int64_t i = 0; i < longest; ++i) {
    KVANT_ASSIGN_OR_RETURN(const std::span<const float> logits, session.Logits());
    const int32_t token = Argmax(logits.data(), static_cast<int64_t>(logits.size()));
    if (tokenizer.IsEndOfGeneration(token)) break;
    answer += tokenizer.TokenBytes(token);
    if (prompt.separator != 0 && answer.find('\n') != answer.npos) break;
    if (i + 1 < longest) KVANT_RETURN_IF_ERROR(session.Decode(token));
  }
  return answer;
}

Result<Outcome> Ask(Session& session, const TaskPrompt& prompt, const std::atomic<bool>* cancel) {
  KVANT_RETURN_IF_ERROR(session.Reset());
  KVANT_RETURN_IF_ERROR(session.Prefill(prompt.tokens, {.progress = {}, .cancel = cancel}));
  Outcome outcome;
  {
    KVANT_ASSIGN_OR_RETURN(Session forced, session.Fork());
    KVANT_ASSIGN_OR_RETURN(outcome.nll, ForcedNll(forced, prompt.answer));
  }
  KVANT_ASSIGN_OR_RETURN(const std::string answer, GreedyAnswer(session, prompt));
  outcome.score = ScoreAnswer(prompt, answer);
  return outcome;
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

// The base first, then the tests.
Result<std::vector<Session>> MakeSessions(const Model& model, const TaskOptions& o) {
  KVANT_ASSIGN_OR_RETURN(std::shared_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(o.threads)));
  // Room for an answer of any kind beside the longest prompt.
  const int64_t longest = *std::max_element(o.lengths_tokens.begin(), o.lengths_tokens.end());
  SessionOptions options = {.kv = o.base,
                            .context_tokens = longest + 256,
                            .threads = o.threads,
                            .chunk_tokens = o.chunk_tokens};
  std::vector<KvSpec> specs = {o.base};
  specs.insert(specs.end(), o.tests.begin(), o.tests.end());
  std::vector<Session> sessions;
  for (const KvSpec& spec : specs) {
    options.kv = spec;
    KVANT_ASSIGN_OR_RETURN(Session session, SessionMaker::Create(model, options, pool));
    sessions.push_back(std::move(session));
  }
  return sessions;
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
      return "json-copy";
  }
  return "unknown";
}

Result<std::vector<TaskCell>> RunTasks(const Model& model, std::string_view haystack,
                                       const TaskOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(model, options));
  KVANT_ASSIGN_OR_RETURN(std::vector<Session> sessions, MakeSessions(model, options));
  const std::vector<std::string> sentences = SplitSentences(haystack);
  const std::vector<TaskCell> plan = PlanCells(options);
  const int64_t total = static_cast<int64_t>(plan.size()) * options.questions;
  std::vector<TaskCell> cells;
  int64_t done = 0;
  RandomStream random(options.seed);
  for (const TaskCell& planned : plan) {
    std::vector<Outcome> sums(sessions.size());
    for (int question = 0; question < options.questions; ++question) {
      KVANT_ASSIGN_OR_RETURN(const TaskText text, MakeQuestion(model, sentences, planned, random));
      KVANT_ASSIGN_OR_RETURN(const TaskPrompt prompt, EncodeTask(model, text));
      for (size_t i = 0; i < sessions.size(); ++i) {
        KVANT_ASSIGN_OR_RETURN(const Outcome outcome, Ask(sessions[i], prompt, control.cancel));
        sums[i].score += outcome.score / options.questions;
        sums[i].nll += outcome.nll / options.questions;
      }
      if (control.progress) control.progress(++done, total);
    }
    for (size_t i = 1; i < sessions.size(); ++i) {
      TaskCell cell = planned;
      cell.test = static_cast<int>(i) - 1;
      cell.score = sums[i].score;
      cell.nll = sums[i].nll;
      cell.base_score = sums[0].score;
      cell.nll_base = sums[0].nll;
      cells.push_back(cell);
    }
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
