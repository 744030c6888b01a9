// kvant policies: every policy of mixed widths at several shares of the bytes, beside caches of one
// width: loss and needles against bytes, and the front of them.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cache_list.h"
#include "command.h"
#include "failure.h"
#include "kvant/explain.h"
#include "kvant/mixed_spec.h"
#include "kvant/policy.h"
#include "model_options.h"
#include "output.h"
#include "policy_rows.h"
#include "tasks_results.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant policies -m model.gguf -f text.txt --ctx 1024 -o md\n"
    "  kvant policies -m model.gguf -f text.txt --only mixed:4=tq4@h2o:all,0.1 "
    "--only mixed:4=tq4+2=tq2@mikv:all,4,2\n"
    "\n"
    "A share is one of the bytes that int4 stores of a text of that length, in the layers that see "
    "all tokens;\n"
    "window and sinks, which int4 keeps too, come on top. KV bytes are what the cache held in the "
    "end, pages\n"
    "that are not full included. Rows marked * are the front: none has both fewer bytes and less "
    "KL.";

// Methods that drop, over one width; and those that lower widths. Their own numbers of tokens are
// left out, so that the budget decides. Keys are balanced, as in the uniform presets: without it
// two bits a key cost Gemma 3 270M .2 to .6 nats, with it .01.
constexpr const char* kCandidates[] = {
    "mixed:4=tq4:bal/tq4@full",
    "mixed:4=tq4:bal/tq4@h2o:all,0.1",
    "mixed:4=tq4:bal/tq4@snapkv",
    "mixed:4=tq4:bal/tq4@keydiff",
    "mixed:4=tq4:bal/tq4@lagkv",
    "mixed:4=tq4:bal/tq4+2=tq2:bal/tq2@full:2,4",
    "mixed:4=tq4:bal/tq4+2=tq2:bal/tq2@mikv:all,4,2",
    "mixed:4=tq4:bal/tq4+3=tq3:bal/tq3@mikv:all,4,3",
    "mixed:4=tq4:bal/tq4+2=tq2:bal/tq2@diffkv:0.02,1,4,2",
    "mixed:4=tq4:bal/tq4+2=tq2:bal/tq2@qaq:0.02,2,4",
    "mixed:4=tq4:bal/tq4+3=tq3:bal/tq3+2=tq2:bal/tq2@variance:2,3,4",
};
constexpr char kUniformPresets[] = "int4,int3,int2";

struct PoliciesFlags {
  ModelFlags model;
  KvFlags kv;
  OutputFlags output;
  std::string file, shares = "25,50,75", depths = "20,50,80", uniform = kUniformPresets;
  std::vector<std::string> only;
  int64_t ctx_tokens = 1024, scored_tokens = 512, needle_tokens = 512;
  int questions = 2;
  uint64_t seed = 1;
};

// What int4 stores of `tokens` tokens, less window and sinks, in layers that see all tokens; and
// what window and sinks take there, which every cache has.
struct StoredBytes {
  double int4 = 0, kept = 0;

  int64_t Budget(int share_percent) const {
    return static_cast<int64_t>(kept + int4 * share_percent / 100);
  }
};

StoredBytes StoredBytesOf(const GgufSummary& file, const KvSpec& kept, int64_t tokens) {
  KvGeometry geometry = *file.geometry;
  const auto& windows = file.layer_windows;
  if (!windows.empty()) {
    geometry.layers = static_cast<int>(std::count(windows.begin(), windows.end(), 0));
  }
  const int64_t kept_tokens = std::min<int64_t>(tokens, kept.sinks_tokens + kept.window_tokens);
  return {.int4 = static_cast<double>(tokens - kept_tokens) *
                  PageBytesPerToken(geometry, UnwrapArgument(ParseKvPreset("int4"))),
          .kept = static_cast<double>(kept_tokens) * PageBytesPerToken(geometry, KvSpec())};
}

// POOLS@POLICY at a budget.
KvSpec CandidateSpec(KvFlags kv, const std::string& candidate, int64_t budget_bytes) {
  const size_t at = candidate.find('@');
  if (at == std::string::npos) {
    throw UsageError(
        fmt::format("--only '{}' is not POOLS@POLICY, as {}", candidate, kCandidates[0]));
  }
  kv.preset = candidate.substr(0, at);
  kv.policy = candidate.substr(at + 1);
  kv.budget = std::to_string(budget_bytes);
  return kv.Spec();
}

std::vector<PolicyCache> ListCandidates(const PoliciesFlags& o, const GgufSummary& file) {
  std::vector<PolicyCache> caches;
  for (const std::string& preset : SplitList(o.uniform)) {
    KvFlags kv = o.kv;
    kv.preset = preset;
    const KvSpec spec = kv.Spec();
    o.model.CheckFits(file, spec);
    caches.push_back({.name = preset, .policy = "", .spec = spec, .task_spec = spec});
  }
  const std::vector<std::string> candidates =
      o.only.empty() ? std::vector<std::string>(std::begin(kCandidates), std::end(kCandidates))
                     : o.only;
  const KvSpec base = BaseSpec(o.kv, "f16");
  const StoredBytes bytes = StoredBytesOf(file, base, o.ctx_tokens);
  const StoredBytes task_bytes = StoredBytesOf(file, base, o.needle_tokens);
  const std::vector<int> shares = ParseIntList("--shares", o.shares, 1, 400);
  for (const std::string& candidate : candidates) {
    for (const int share : shares) {
      const int64_t budget_bytes = bytes.Budget(share);
      PolicyCache cache{.name = candidate.substr(0, candidate.find('@')),
                        .policy = "",
                        .share_percent = share,
                        .spec = CandidateSpec(o.kv, candidate, budget_bytes),
                        .task_spec = CandidateSpec(o.kv, candidate, task_bytes.Budget(share)),
                        .budget_bytes = budget_bytes};
      cache.policy = cache.spec.mixed->policy->name();
      o.model.CheckFits(file, cache.spec);
      caches.push_back(std::move(cache));
    }
  }
  return caches;
}

void MeasureLoss(const PoliciesFlags& o, const Model& model, const std::string& text,
                 const RunControl& control, std::vector<PolicyRow>* rows) {
  EvalOptions options;
  options.contexts_tokens = {o.ctx_tokens};
  options.base = BaseSpec(o.kv, "f16");
  options.max_scored_tokens = o.scored_tokens;
  options.threads = o.model.threads;
  options.chunk_tokens = o.model.chunk_tokens;
  for (const PolicyRow& row : *rows) options.tests.push_back(row.cache.spec);
  const auto tokens = Unwrap(model.tokenizer().EncodeFirst(text, *TokensToEvaluate(options)));
  const std::vector<EvalContext> contexts = Unwrap(Evaluate(model, tokens, options, control));
  for (size_t i = 0; i < rows->size(); ++i) (*rows)[i].loss = contexts[i];
}

void AskNeedles(const PoliciesFlags& o, const std::vector<int>& depths_percent, const Model& model,
                const std::string& text, const RunControl& control, std::vector<PolicyRow>* rows) {
  TaskOptions options;
  options.lengths_tokens = {o.needle_tokens};
  options.depths_percent = depths_percent;
  options.sizes.digits = 2;  // what small models pass
  options.questions = o.questions;
  options.seed = o.seed;
  options.least_base_score = kPassingScore;
  options.base = BaseSpec(o.kv, "f16");
  options.threads = o.model.threads;
  options.chunk_tokens = o.model.chunk_tokens;
  for (const PolicyRow& row : *rows) options.tests.push_back(row.cache.task_spec);
  const TaskScores scores = Unwrap(RunTasks(model, text, options, control));
  for (const TaskCell& cell : OverDepths(scores.cells)) {
    (*rows)[static_cast<size_t>(cell.test)].needles = cell;
  }
}

int RunPolicies(const PoliciesFlags& o) {
  const std::string format = o.output.Format();
  const std::vector<int> depths_percent = ParseIntList("--depths", o.depths, 0, 100);
  const std::string text = ReadTextFile(o.file);
  const GgufSummary file = o.model.Inspect();
  std::vector<PolicyRow> rows;
  if (file.geometry) {  // else loading says what is wrong with the file
    for (PolicyCache& cache : ListCandidates(o, file)) rows.push_back({.cache = std::move(cache)});
  }
  const Model model = o.model.Load();
  CatchInterrupt();
  Progress bar("policies");
  const RunControl control = ControlOf(&bar);
  MeasureLoss(o, model, text, control, &rows);
  if (o.questions > 0) AskNeedles(o, depths_percent, model, text, control, &rows);
  bar.Clear();
  MarkFront(&rows);
  Json header = o.model.Header(model);
  header["text"] = o.file;
  PrintPolicyRows(rows, format, header);
  return kExitDone;
}

}  // namespace

void AddPolicies(CLI::App& root, Action* action) {
  const auto o = std::make_shared<PoliciesFlags>();
  CLI::App* const command = root.add_subcommand(
      "policies", "Which policy keeps most at the same bytes: KL and needles of mixed widths");
  command->footer(kFooter);
  o->model.Add(*command);
  o->model.AddActivations(*command);
  AddTextFile(*command, "The text", &o->file);
  command->add_option("-c,--ctx", o->ctx_tokens, "Tokens of a chunk [1024]")
      ->type_name("N")
      ->check(Count(4));
  command->add_option("--tokens", o->scored_tokens, "Score at most N tokens [512]")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("--shares", o->shares,
                   "Bytes of a policy, in percent of what int4 stores, a list [25,50,75]")
      ->type_name("PCT,...");
  command
      ->add_option("--only", o->only,
                   "Instead of all policies: POOLS@POLICY, for example mixed:4=tq4@snapkv; may be "
                   "given several times")
      ->type_name("SPEC");
  command->add_option("--uniform", o->uniform, "Caches of one width to compare with, a list")
      ->type_name("PRESET,...");
  command->add_option("--length", o->needle_tokens, "Tokens of a prompt with a needle [512]")
      ->type_name("N")
      ->check(Count(1));
  command->add_option("--depths", o->depths, "Where needles lie, in percent [20,50,80]")
      ->type_name("PCT,...");
  command->add_option("--questions", o->questions, "Needles at each depth, 0 for none [2]")
      ->type_name("N")
      ->check(Count(0, 10000));
  command->add_option("-s,--seed", o->seed, "What the needles are drawn from [1]")->type_name("N");
  o->kv.AddPolicy(*command);
  o->output.Add(*command);
  command->callback([o, action] { *action = [o] { return RunPolicies(*o); }; });
}

}  // namespace kvant::cli
