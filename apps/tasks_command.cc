// kvant tasks: what a cache format costs in tasks: needles, sums, copies, greedy answers; and, with
// --planted, whether attention alone finds a key.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cache_list.h"
#include "command.h"
#include "failure.h"
#include "kvant/inspect.h"
#include "kvant/tasks.h"
#include "model_options.h"
#include "output.h"
#include "planted.h"
#include "tasks_report.h"
#include "tasks_results.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant tasks -m model.gguf -f text.txt --kv int4,int2 --lengths 512,1024 --report page.html\n"
    "  kvant tasks -m model.gguf -f text.txt --sweep --tasks greedy -o md\n"
    "  kvant tasks --planted --kv int4,turbo4,kivi4 --offset 0,200\n"
    "\n"
    "Every question is also asked with the base cache. A score says something of a cache only "
    "where the base\n"
    "passes (80 % or more): longer prompts are left out unless --all-lengths asks for them. Kept "
    "counts, of the\n"
    "questions that the base answers in full, those that the cache does too.";

struct TaskFlags {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  OutputFlags output;
  PlantedFlags planted;
  std::string file, base = "f16", report;
  std::string lengths, depths = "0,25,50,75,100";
  TaskSizes sizes;
  std::string tasks = "needle,multi-key,multi-value,sums,json,greedy";
  int questions = 4;
  uint64_t seed = 1;
  int greedy_prompts = 100;
  int64_t greedy_prompt_tokens = 256, greedy_tokens = 64;
  bool all_lengths = false, sweep = false, is_planted = false;
};

// What was asked for, before a model is read.
struct TaskPlan {
  TaskOptions options;  // no kinds: greedy answers only
  bool greedy = false;
  bool needs_text = false;
};

TaskPlan PlanTasks(const TaskFlags& o) {
  TaskPlan plan;
  plan.options.kinds.clear();
  plan.options.lengths_tokens.clear();  // those that the model can take
  for (const std::string& name : SplitList(o.tasks)) {
    const auto kind = std::find_if(std::begin(kTaskKinds), std::end(kTaskKinds),
                                   [&](TaskKind k) { return TaskKindName(k) == name; });
    if (kind != std::end(kTaskKinds)) {
      plan.options.kinds.push_back(*kind);
      plan.needs_text |= NeedsHaystack(*kind);
    } else if (name == "greedy") {
      plan.greedy = plan.needs_text = true;
    } else {
      throw UsageError(
          fmt::format("--tasks '{}' is unknown; possible: needle multi-key multi-value sums json "
                      "greedy",
                      name));
    }
  }
  if (plan.needs_text && o.file.empty()) {
    throw UsageError("all tasks but sums need a text: give one with --file");
  }
  if (!o.lengths.empty()) plan.options.lengths_tokens = ParseCounts("--lengths", o.lengths);
  plan.options.depths_percent = ParseIntList("--depths", o.depths, 0, 100);
  plan.options.sizes = o.sizes;
  plan.options.questions = o.questions;
  plan.options.least_base_score = o.all_lengths ? 0 : kPassingScore;
  plan.options.seed = o.seed;
  plan.options.base = BaseSpec(o.kv, o.base);
  plan.options.threads = o.model.threads;
  plan.options.chunk_tokens = o.model.chunk_tokens;
  return plan;
}

// What --lengths says, or what it says by default as far as the model goes.
void SetLengths(const GgufSummary& file, TaskOptions* plan) {
  if (plan->lengths_tokens.empty()) {
    for (const int64_t length : {256, 512, 1024, 2048}) {
      const bool first = plan->lengths_tokens.empty();
      if (first || length <= file.context_tokens) plan->lengths_tokens.push_back(length);
    }
  }
  for (const int64_t length : plan->lengths_tokens) {
    // Load says better what is wrong with a file that names no context.
    if (file.context_tokens == 0 || (length >= 1 && length <= file.context_tokens)) continue;
    throw UsageError(fmt::format("--lengths {} is not between 1 and the model's context of {}",
                                 length, file.context_tokens));
  }
}

void Run(const TaskFlags& o, const TaskPlan& plan, const Model& model, const std::string& text,
         const RunControl& control, TaskResults* results) {
  // Cut first: a text that is too short is better known before minutes of needles than after them.
  std::vector<std::vector<int32_t>> prompts;
  if (plan.greedy) {
    prompts = Unwrap(CutPrompts(model.tokenizer(), Unwrap(model.tokenizer().Encode(text, false)),
                                o.greedy_prompts, o.greedy_prompt_tokens));
  }
  if (!plan.options.kinds.empty()) {
    results->scores = Unwrap(RunTasks(model, text, plan.options, control));
  }
  if (!plan.greedy) return;
  const GreedyOptions options{.base = plan.options.base,
                              .tests = plan.options.tests,
                              .tokens = o.greedy_tokens,
                              .threads = o.model.threads,
                              .chunk_tokens = o.model.chunk_tokens};
  results->greedy_prompt_tokens = o.greedy_prompt_tokens;
  results->greedy = Unwrap(CompareGreedy(model, prompts, options, control));
}

void PrintTasks(const TaskFlags& o, const std::string& format, const Json& header,
                const TaskResults& results) {
  if (format == "json") {
    Json json = header;
    AddTaskResults(results, &json);
    Write(Dump(json, 2));
    return;
  }
  if (format == "table") {
    Print("Base    {}\nActivations in {}\nSeed    {}\n\n",
          LayerFormatsText(results.base, results.geometry.layers), o.model.activations,
          results.seed);
  }
  PrintTaskRows(results, format);
}

int RunTasksCommand(const TaskFlags& o) {
  o.compatibility.CheckPossible();
  const std::string format = o.output.Format();
  if (o.is_planted) return RunPlantedTest(o.planted, o.kv, o.sweep, o.seed, format);
  if (o.model.path.empty()) throw UsageError("a model is missing: give one with --model");
  TaskPlan plan = PlanTasks(o);
  if (!o.report.empty()) CheckWritable(o.report);
  const std::string text = plan.needs_text ? ReadTextFile(o.file) : "";
  const GgufSummary file = o.model.Inspect();
  SetLengths(file, &plan.options);
  TaskResults results{.base_name = o.base,
                      .base = plan.options.base,
                      .list = ListCaches(o.kv, o.sweep, file.geometry),
                      .seed = o.seed,
                      .sizes = o.sizes};
  o.model.CheckFits(file, plan.options.base);
  for (const NamedSpec& cache : results.list.caches) plan.options.tests.push_back(cache.spec);

  const Model model = o.model.Load();
  CatchInterrupt();
  Progress bar("tasks");
  const RunControl control = ControlOf(&bar);
  results.geometry = model.geometry();
  Run(o, plan, model, text, control, &results);
  Json header = o.model.Header(model);
  header["text"] = plan.needs_text ? Json(o.file) : Json(nullptr);
  if (!o.report.empty()) {
    WriteFile(o.report, TasksReportHtml(model.name(), header, results));
  }
  bar.Clear();
  PrintTasks(o, format, header, results);
  return kExitDone;
}

void AddTaskFlags(CLI::App& command, TaskFlags* o) {
  command.add_option("-f,--file", o->file, "The text of needles and prompts, - for standard input")
      ->type_name("FILE");
  command
      .add_option("--tasks", o->tasks,
                  "A list of needle, multi-key, multi-value, sums, json, greedy [all]")
      ->type_name("NAME,...");
  command
      .add_option("--lengths", o->lengths,
                  "Tokens of a prompt, a list; those at which the base passes are asked "
                  "[256,512,1024,2048]")
      ->type_name("N,...");
  command.add_flag("--all-lengths", o->all_lengths,
                   "Ask at every length, also where the base scores less than 80 %");
  command
      .add_option("--depths", o->depths,
                  "Where the answer lies, in percent of the prompt, a list [0,25,50,75,100]")
      ->type_name("PCT,...");
  command.add_option("--questions", o->questions, "Questions of each task, length and depth [4]")
      ->type_name("N")
      ->check(Count(1, 10000));
  command
      .add_option("--needles", o->sizes.needles, "Names of multi-key, numbers of multi-value [4]")
      ->type_name("N")
      ->check(Count(2, 16));
  command.add_option("--digits", o->sizes.digits, "Digits of the numbers in needles and json [4]")
      ->type_name("N")
      ->check(Count(1, 9));
  command.add_option("--terms", o->sizes.terms, "Numbers of a chain of sums [6]")
      ->type_name("N")
      ->check(Count(2, 16));
  command.add_option("--fields", o->sizes.fields, "Fields of an object of json [4]")
      ->type_name("N")
      ->check(Count(1, 16));
  command.add_option("-s,--seed", o->seed, "What the questions are drawn from [1]")->type_name("N");
  command.add_option("--base", o->base, "Cache to compare with, as --kv [f16]")
      ->type_name("PRESET");
  command.add_option("--greedy-prompts", o->greedy_prompts, "Prompts of greedy [100]")
      ->type_name("N")
      ->check(Count(1, 10000));
  command.add_option("--greedy-prompt-tokens", o->greedy_prompt_tokens, "Tokens of each [256]")
      ->type_name("N")
      ->check(Count(1, 1 << 20));
  command.add_option("--greedy-tokens", o->greedy_tokens, "Tokens of each greedy answer [64]")
      ->type_name("N")
      ->check(Count(1, 1 << 20));
  command.add_flag("--sweep", o->sweep, "Test every preset in one run");
  command.add_option("--report", o->report, "Also write a page with grids, HTML without scripts")
      ->type_name("FILE");
}

}  // namespace

void AddTasks(CLI::App& root, Action* action) {
  const auto o = std::make_shared<TaskFlags>();
  CLI::App* const command = root.add_subcommand(
      "tasks", "What a cache format costs in tasks: needles, sums, copies, greedy answers");
  command->footer(kFooter);
  o->model.Add(*command);
  command->get_option("--model")->required(false);
  o->model.AddActivations(*command);
  AddTaskFlags(*command, o.get());
  CLI::Option* const planted = command->add_flag(
      "--planted", o->is_planted,
      "Instead, without a model: whether attention over a cache finds a planted key");
  for (const char* flag :
       {"--model", "--file", "--tasks", "--lengths", "--all-lengths", "--depths", "--questions",
        "--needles", "--digits", "--terms", "--fields", "--base", "--report", "--activations"}) {
    planted->excludes(command->get_option(flag));
  }
  o->planted.Add(*command, planted);
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->compatibility.Add(*command);
  o->output.Add(*command);
  command->callback([o, action] { *action = [o] { return RunTasksCommand(*o); }; });
}

}  // namespace kvant::cli
