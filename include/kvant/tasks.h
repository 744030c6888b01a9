// What cache formats cost in tasks: needles in a haystack, chains of sums, copies of JSON objects,
// greedy answers, and a planted key that attention has to find without any model.
//
// Every question is made from a seed, with the same bytes on every platform, and asked with a base
// cache too: a score says something of a format only where the base passes.
// Thread rules: reentrant; a call uses its own sessions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/eval.h"
#include "kvant/format.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

enum class TaskKind {
  kNeedle,      // one number hidden in the text, asked for by its name
  kMultiKey,    // several names with a number each, one asked for
  kMultiValue,  // one name with several numbers, all asked for
  kSums,        // numbers added one after the other, after solved examples
  kJsonCopy,    // an object hidden in the text, word for word
};
inline constexpr TaskKind kTaskKinds[] = {TaskKind::kNeedle, TaskKind::kMultiKey,
                                          TaskKind::kMultiValue, TaskKind::kSums,
                                          TaskKind::kJsonCopy};
// "needle", "multi-key", "multi-value", "sums", "json"
std::string_view TaskKindName(TaskKind kind);
// Whether its questions are hidden in a text, and so need one.
bool NeedsHaystack(TaskKind kind);

// How much there is to a question; fewer are easier.
struct TaskSizes {
  int needles = 4;  // names of kMultiKey, numbers of kMultiValue; 2 to 16
  int digits = 4;   // of every number but those of sums; 1 to 9
  int terms = 6;    // of a chain of sums; 2 to 16
  int fields = 4;   // of an object; 1 to 16
};

// A base that scores so much passes: below it, a score beside its own says little of a cache.
inline constexpr double kPassingScore = 0.8;

struct TaskOptions {
  std::vector<TaskKind> kinds = {TaskKind::kNeedle};
  std::vector<int64_t> lengths_tokens = {512};  // a prompt is at most as long, and nearly
  // Where in the prompt the answer lies, 0 its beginning. Sums have none and are asked once.
  std::vector<int> depths_percent = {0, 25, 50, 75, 100};
  TaskSizes sizes;
  int questions = 4;  // of a cell
  uint64_t seed = 1;
  // Tests are asked only at lengths at which the base scores so much, a mean over all depths; of
  // each kind the shortest first, and none beyond one that is left out. 0: at every length.
  double least_base_score = 0;
  KvSpec base;                // f16
  std::vector<KvSpec> tests;  // at least one
  int threads = 0;            // 0: one a core
  int chunk_tokens = 512;
};

// Scores are means over the questions of the share of expected items in the greedy answer: numbers
// found anywhere (needles), items equal at their place (sums, JSON). nll: minus the logarithm of
// the right answer's probability, in nats a token.
struct TaskCell {
  TaskKind kind = TaskKind::kNeedle;
  int64_t length_tokens = 0;
  int depth_percent = 0;
  int test = 0;  // index into TaskOptions::tests
  int questions = 0;
  int base_right = 0;  // questions that the base answers in full
  int kept = 0;        // of these, the test does too
  double score = 0;
  double base_score = 0;
  double nll = 0;
  double nll_base = 0;
};

// A length of a kind at which no test was asked.
struct TaskLeftOut {
  TaskKind kind = TaskKind::kNeedle;
  int64_t length_tokens = 0;
  // Below TaskOptions::least_base_score; nothing where the base was not asked either, because it
  // failed at a shorter length.
  std::optional<double> base_score;
};

struct TaskScores {
  // One entry a kind, length, depth and test, kinds the slowest and tests the fastest.
  std::vector<TaskCell> cells;
  std::vector<TaskLeftOut> left_out;
};

// `haystack` is the text that needles are hidden in; other kinds do not read it. The figures of a
// cell depend neither on the other tests nor on what else is asked. kInvalidArgument for impossible
// options, kOutOfRange when the text is too short or a length too small for a question or beyond
// the model's context, kCancelled; otherwise the errors of Session. Progress counts answers, those
// of the base and those left out included.
Result<TaskScores> RunTasks(const Model& model, std::string_view haystack,
                            const TaskOptions& options, const RunControl& control = {});

// `count` prompts of `prompt_tokens` tokens each, evenly spread over the text; they overlap where
// it is short. Each begins with bos, in the place of its first token, where the vocabulary asks for
// it. kInvalidArgument unless both are positive, kOutOfRange when the text is shorter than one
// prompt.
Result<std::vector<std::vector<int32_t>>> CutPrompts(const Tokenizer& tokenizer,
                                                     std::span<const int32_t> text, int count,
                                                     int64_t prompt_tokens);

// Of the first divergences in tokens; quartiles are nearest ranks. Equal answers count with their
// full length.
struct DivergenceSummary {
  int64_t prompts = 0;
  double share_equal = 0;
  double mean_tokens = 0;
  int64_t first_quartile_tokens = 0;
  int64_t median_tokens = 0;
  int64_t third_quartile_tokens = 0;
};
DivergenceSummary SummariseDivergence(const GreedyAgreement& agreement);

struct PlantedOptions {
  int head_dim = 64;
  int64_t tokens = 2048;     // of the cache; at least 512
  float margin = 3;          // of the planted score over the logarithm of the number of tokens
  float channel_offset = 0;  // added to four channels of every key, which softmax does not see
  uint64_t seed = 1;
};

// Of 32 queries, each of which attends to one token of the stored part of the cache. The mass on
// the planted token is read off the output, by projection on that token's value.
struct PlantedResult {
  int queries = 0;
  double hit_rate = 0;    // the value nearest the output is the planted one
  double mean_mass = 0;   // on the planted token
  double exact_mass = 0;  // the same for attention in f64 over the keys and values as given
  double max_mass_error = 0;
};

// Through the cache and the attention kernels of the active level, without a model.
// kInvalidArgument for impossible options or a spec that cannot store such heads; the errors of the
// cache, such as a channel offset that a format refuses.
Result<PlantedResult> RunPlanted(const KvSpec& spec, const PlantedOptions& options = {});

}  // namespace kvant
