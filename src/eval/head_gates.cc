#include "kvant/head_gates.h"

#include <algorithm>
#include <string>
#include <utility>

#include "eval/prompts.h"

namespace kvant {
namespace {

// A question with the place of what its answer copies: tokens [first, end) of the prompt.
struct Question {
  TaskPrompt prompt;
  int64_t first = 0, end = 0;
};

Status CheckOptions(const Model& model, const HeadGateOptions& o) {
  if (o.depths_percent.empty() || o.questions < 1 || o.questions > 10000) {
    return Status::InvalidArgument(std::to_string(o.questions) + " questions at " +
                                   std::to_string(o.depths_percent.size()) +
                                   " depths are not between 1 and 10000 at one at least");
  }
  for (const int depth : o.depths_percent) {
    if (depth >= 0 && depth <= 100) continue;
    return Status::InvalidArgument("a depth of " + std::to_string(depth) +
                                   " is not between 0 and 100");
  }
  if (o.sinks_tokens < 0 || o.recent_tokens < 1) {
    return Status::InvalidArgument(std::to_string(o.sinks_tokens) + " sinks and " +
                                   std::to_string(o.recent_tokens) +
                                   " newest tokens cannot be left out");
  }
  if (o.prompt_tokens < 1 || o.prompt_tokens > model.context_tokens()) {
    return Status::OutOfRange("prompts of " + std::to_string(o.prompt_tokens) +
                              " tokens are not between 1 and the model's context of " +
                              std::to_string(model.context_tokens()));
  }
  return Status::Ok();
}

Result<Question> MakeQuestion(const Model& model, const std::vector<std::string>& sentences,
                              const HeadGateOptions& o, int depth, RandomStream& random) {
  const TaskCell cell = {
      .kind = TaskKind::kNeedle, .length_tokens = o.prompt_tokens, .depth_percent = depth};
  KVANT_ASSIGN_OR_RETURN(const TaskText text, MakeNeedle(model, sentences, cell, {}, random));
  Question question;
  KVANT_ASSIGN_OR_RETURN(question.prompt, EncodeTask(model, text));
  const std::vector<int32_t>&tokens = question.prompt.tokens, &answer = question.prompt.answer;
  const auto at = std::search(tokens.begin(), tokens.end(), answer.begin(), answer.end());
  if (at == tokens.end()) {
    return Status::Unsupported("the tokens of the answer '" + text.answer +
                               "' are not those of the prompt");
  }
  question.first = at - tokens.begin();
  question.end = question.first + static_cast<int64_t>(answer.size());
  const int64_t newest = static_cast<int64_t>(tokens.size()) - o.recent_tokens;
  if (question.first < o.sinks_tokens || question.end > newest) {
    return Status::OutOfRange(
        "a number at " + std::to_string(depth) + " % of " + std::to_string(tokens.size()) +
        " tokens lies at " + std::to_string(question.first) + ", not between the first " +
        std::to_string(o.sinks_tokens) + " and the newest " + std::to_string(o.recent_tokens));
  }
  return question;
}

Result<std::vector<Question>> MakeQuestions(const Model& model, std::string_view haystack,
                                            const HeadGateOptions& o) {
  const std::vector<std::string> sentences = SplitSentences(haystack);
  RandomStream random(o.seed);
  std::vector<Question> questions;
  for (const int depth : o.depths_percent) {
    for (int i = 0; i < o.questions; ++i) {
      KVANT_ASSIGN_OR_RETURN(Question question, MakeQuestion(model, sentences, o, depth, random));
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

// Adds what one query gives the tokens [first, end), to the gates of a layer.
void AddQuery(const LayerAttention& attention, const Question& question, double* gates) {
  const int ratio = attention.q_heads / attention.kv_heads;
  for (int kv_head = 0; kv_head < attention.kv_heads; ++kv_head) {
    double most = 0;
    for (int head = kv_head * ratio; head < (kv_head + 1) * ratio; ++head) {
      const std::span<const float> row = attention.Row(0, head);
      double mass = 0;
      for (int64_t t = question.first; t < question.end; ++t) {
        mass += static_cast<double>(row[static_cast<size_t>(t)]);
      }
      most = std::max(most, mass);
    }
    gates[kv_head] += most;
  }
}

// The queries that find the answer: the prompt's last token, and the answer's but for its last.
Status Ask(Session& session, const Question& question, const std::atomic<bool>* cancel,
           HeadGates* gates) {
  const std::vector<int32_t>&tokens = question.prompt.tokens, &answer = question.prompt.answer;
  KVANT_RETURN_IF_ERROR(session.Reset());
  session.ObserveAttention({});
  KVANT_RETURN_IF_ERROR(session.Prefill(std::span(tokens).first(tokens.size() - 1),
                                        {.progress = {}, .cancel = cancel}));
  session.ObserveAttention([&](const LayerAttention& attention) {
    AddQuery(attention, question,
             gates->gates.data() + int64_t{attention.layer} * attention.kv_heads);
  });
  KVANT_RETURN_IF_ERROR(session.Decode(tokens.back()));
  for (size_t i = 0; i + 1 < answer.size(); ++i) KVANT_RETURN_IF_ERROR(session.Decode(answer[i]));
  return Status::Ok();
}

}  // namespace

Result<HeadGates> MeasureHeadGates(const Model& model, std::string_view haystack,
                                   const HeadGateOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(model, options));
  KVANT_ASSIGN_OR_RETURN(const std::vector<Question> questions,
                         MakeQuestions(model, haystack, options));
  KVANT_ASSIGN_OR_RETURN(Session session,
                         Session::Create(model, {.kv = {},
                                                 .context_tokens = options.prompt_tokens + 256,
                                                 .threads = options.threads,
                                                 .chunk_tokens = options.chunk_tokens}));
  const KvGeometry geometry = model.geometry();
  HeadGates gates{
      .model_hash = model.file_hash(),
      .geometry = geometry,
      .questions = static_cast<int>(questions.size()),
      .gates = std::vector<double>(static_cast<size_t>(geometry.layers * geometry.kv_heads))};
  int64_t queries = 0, done = 0;
  for (const Question& question : questions) {
    KVANT_RETURN_IF_ERROR(Ask(session, question, control.cancel, &gates));
    queries += static_cast<int64_t>(question.prompt.answer.size());
    if (control.progress) control.progress(++done, static_cast<int64_t>(questions.size()));
  }
  // A row's probabilities are rounded, and may add up to a little more than 1.
  for (double& gate : gates.gates) gate = std::min(1.0, gate / static_cast<double>(queries));
  return gates;
}

}  // namespace kvant
