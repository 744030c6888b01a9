#include "kvant/tasks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "eval/ask.h"
#include "eval/prompts.h"
#include "eval/sessions.h"

namespace kvant {
namespace {

Status CheckSizes(const TaskSizes& sizes) {
  const struct {
    const char* what;
    int value, least, most;
  } limits[] = {{"needles", sizes.needles, 2, 16},
                {"digits", sizes.digits, 1, 9},
                {"terms", sizes.terms, 2, 16},
                {"fields", sizes.fields, 1, 16}};
  for (const auto& limit : limits) {
    if (limit.value >= limit.least && limit.value <= limit.most) continue;
    return Status::InvalidArgument(std::to_string(limit.value) + " " + limit.what +
                                   " are not between " + std::to_string(limit.least) + " and " +
                                   std::to_string(limit.most));
  }
  if (sizes.digits == 1 && sizes.needles > 9) {
    return Status::InvalidArgument("there are fewer than " + std::to_string(sizes.needles) +
                                   " different numbers of one digit");
  }
  return Status::Ok();
}

Status CheckOptions(const Model& model, const TaskOptions& o) {
  KVANT_RETURN_IF_ERROR(CheckSizes(o.sizes));
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

// One kind at one length: what is asked or left out as a whole.
struct Group {
  std::vector<TaskCell> cells;                   // one a depth, without test and figures
  std::vector<std::vector<TaskPrompt>> prompts;  // [cells][questions]
  std::vector<std::vector<Outcome>> base;        // [cells][questions]
  TaskLeftOut left_out = {};                     // where it is
};

// Without prompts; the lengths of a kind ascend.
std::vector<Group> PlanGroups(const TaskOptions& o) {
  std::vector<int64_t> lengths = o.lengths_tokens;
  std::sort(lengths.begin(), lengths.end());
  std::vector<Group> groups;
  for (const TaskKind kind : o.kinds) {
    for (const int64_t length : lengths) {
      Group group{.cells = {}, .prompts = {}, .base = {}, .left_out = {kind, length, {}}};
      for (const int depth : o.depths_percent) {
        const bool sums = kind == TaskKind::kSums;
        group.cells.push_back({.kind = kind,
                               .length_tokens = length,
                               .depth_percent = sums ? 0 : depth,
                               .questions = o.questions});
        if (sums) break;
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

// The questions of every group, before the first is asked: a text that is too short for the last is
// better known at once than after minutes.
Status AddPrompts(const Model& model, std::string_view haystack, const TaskOptions& options,
                  const std::atomic<bool>* cancel, std::vector<Group>* groups) {
  const std::vector<std::string> sentences = SplitSentences(haystack);
  for (Group& group : *groups) {
    for (const TaskCell& cell : group.cells) {
      RandomStream random = CellStream(options.seed, cell);
      group.prompts.emplace_back();
      for (int i = 0; i < options.questions; ++i) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
          return Status::Cancelled("cancelled by the caller");
        }
        KVANT_ASSIGN_OR_RETURN(const TaskText text,
                               MakeQuestion(model, sentences, cell, options.sizes, random));
        KVANT_ASSIGN_OR_RETURN(TaskPrompt prompt, EncodeTask(model, text));
        group.prompts.back().push_back(std::move(prompt));
      }
    }
  }
  return Status::Ok();
}

// Tokens of the longest prompt with its answer.
int64_t LongestTimeline(const std::vector<Group>& groups) {
  size_t longest = 0;
  for (const Group& group : groups) {
    for (const auto& prompts : group.prompts) {
      for (const TaskPrompt& prompt : prompts) {
        longest = std::max(longest, prompt.tokens.size() + prompt.answer.size() + kSpareTokens);
      }
    }
  }
  return static_cast<int64_t>(longest);
}

class TaskRun {
 public:
  TaskRun(const TaskOptions& options, const RunControl& control, std::vector<Session> sessions,
          std::vector<Group> groups)
      : options_(options),
        control_(control),
        sessions_(std::move(sessions)),
        groups_(std::move(groups)) {
    for (const Group& group : groups_) total_ += Answers(group) * session_count();
  }

  Result<TaskScores> Run() {
    TaskScores scores;
    std::optional<TaskKind> failed;
    for (Group& group : groups_) {
      const bool beyond = failed == group.left_out.kind;
      if (beyond) {
        Tick(Answers(group));
      } else {
        KVANT_RETURN_IF_ERROR(AskBase(group));
      }
      if (beyond || *group.left_out.base_score < options_.least_base_score) {
        failed = group.left_out.kind;
        scores.left_out.push_back(group.left_out);
        Tick(Answers(group) * (session_count() - 1));
      } else {
        KVANT_RETURN_IF_ERROR(AskTests(group, &scores.cells));
      }
    }
    return scores;
  }

 private:
  // Of one session.
  int64_t Answers(const Group& group) const {
    return static_cast<int64_t>(group.cells.size()) * options_.questions;
  }
  int64_t session_count() const { return static_cast<int64_t>(sessions_.size()); }

  void Tick(int64_t answers) {
    done_ += answers;
    if (control_.progress) control_.progress(done_, total_);
  }

  Status AskBase(Group& group) {
    double sum = 0;
    for (const auto& prompts : group.prompts) {
      group.base.emplace_back();
      for (const TaskPrompt& prompt : prompts) {
        KVANT_ASSIGN_OR_RETURN(const Outcome outcome, Ask(sessions_[0], prompt, control_.cancel));
        Tick(1);
        group.base.back().push_back(outcome);
        sum += outcome.score;
      }
    }
    group.left_out.base_score = sum / static_cast<double>(Answers(group));
    return Status::Ok();
  }

  Status AskTests(const Group& group, std::vector<TaskCell>* cells) {
    for (size_t c = 0; c < group.cells.size(); ++c) {
      std::vector<TaskCell> asked(options_.tests.size(), group.cells[c]);
      for (size_t q = 0; q < group.prompts[c].size(); ++q) {
        for (size_t i = 0; i < asked.size(); ++i) {
          KVANT_ASSIGN_OR_RETURN(const Outcome outcome,
                                 Ask(sessions_[i + 1], group.prompts[c][q], control_.cancel));
          Tick(1);
          Count(group.base[c][q], outcome, &asked[i]);
        }
      }
      for (size_t i = 0; i < asked.size(); ++i) {
        asked[i].test = static_cast<int>(i);
        Finish(&asked[i]);
      }
      cells->insert(cells->end(), asked.begin(), asked.end());
    }
    return Status::Ok();
  }

  const TaskOptions& options_;
  const RunControl& control_;
  std::vector<Session> sessions_;  // the base's first
  std::vector<Group> groups_;
  int64_t done_ = 0, total_ = 0;
};

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

bool NeedsHaystack(TaskKind kind) { return kind != TaskKind::kSums; }

Result<TaskScores> RunTasks(const Model& model, std::string_view haystack,
                            const TaskOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(model, options));
  std::vector<Group> groups = PlanGroups(options);
  KVANT_RETURN_IF_ERROR(AddPrompts(model, haystack, options, control.cancel, &groups));
  const SessionOptions session = {.kv = options.base,
                                  .context_tokens = LongestTimeline(groups),
                                  .threads = options.threads,
                                  .chunk_tokens = options.chunk_tokens};
  KVANT_ASSIGN_OR_RETURN(std::vector<Session> sessions,
                         MakeSessions(model, options.base, options.tests, session));
  return TaskRun(options, control, std::move(sessions), std::move(groups)).Run();
}

}  // namespace kvant
