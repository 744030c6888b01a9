// kvant eval: what a cache format costs in quality, against the same engine with another cache.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "cache_list.h"
#include "command.h"
#include "eval_report.h"
#include "eval_results.h"
#include "failure.h"
#include "kvant/bench_attention.h"
#include "kvant/eval.h"
#include "kvant/explain.h"
#include "kvant/mixed_spec.h"
#include "kvant/tasks.h"
#include "model_options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant eval -m model.gguf -f text.txt --kv int4 --ctx 512,2048 --tokens 4096\n"
    "  kvant eval -m model.gguf -f text.txt -ctk q8_0 -ctv q4_0 --mode both --json\n"
    "  kvant eval -m model.gguf -f text.txt --sweep --ctx 4096 --activations f32 -o md\n"
    "  kvant eval -m model.gguf -f text.txt --kv int8,int4,int2 --report report.html\n"
    "\n"
    "The text is cut into chunks of --ctx tokens; the second half of each is scored. KL is taken "
    "from the\n"
    "base cache's prediction to the tested one's, in nats.";

constexpr int64_t kGreedyPromptTokens = 256;
constexpr int kGreedyPrompts = 4;
constexpr int64_t kMaxSpeedDepth = 4096;  // tokens

struct EvalFlags {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  OutputFlags output;
  std::string file, contexts, mode = "prefill", base = "f16";
  std::string write_base, read_base, report;
  int64_t tokens = 0;
  int greedy_prompts = -1;  // -1: some for one cache, none for a list
  int64_t greedy_tokens = 64;
  bool sweep = false, no_floor = false, no_speed = false;
};

std::vector<EvalMode> ParseModes(const std::string& mode) {
  if (mode == "prefill") return {EvalMode::kPrefill};
  if (mode == "decode") return {EvalMode::kDecode};
  if (mode == "both") return {EvalMode::kPrefill, EvalMode::kDecode};
  throw UsageError(fmt::format("--mode '{}' is unknown; possible: prefill decode both", mode));
}

std::vector<int64_t> ParseContexts(const std::string& text) {
  std::vector<int64_t> contexts = ParseCounts("--ctx", text);
  for (int64_t context : contexts) {
    if (context < 2)
      throw UsageError(fmt::format("--ctx {}: a chunk needs at least 2 tokens", context));
  }
  return contexts;
}

// How deep a cache is timed: as the longest context, or as much of it as a test of seconds allows.
int64_t SpeedDepth(const EvalOptions& options) {
  const auto& contexts = options.contexts_tokens;
  return std::min(kMaxSpeedDepth, *std::max_element(contexts.begin(), contexts.end()));
}

void MeasureSpeed(const EvalFlags& o, const KvGeometry& geometry, int64_t depth, Progress* bar,
                  EvalResults* results) {
  AttentionBenchOptions bench;
  bench.geometry = geometry;
  for (const EvalTest& test : results->tests) bench.specs.push_back(test.spec);
  bench.depths = {depth};
  bench.threads = o.model.threads;
  const std::vector<AttentionBenchRow> rows =
      Unwrap(BenchAttention(bench, [&](double done) { bar->Update(done, 1); }));
  for (size_t i = 0; i < rows.size(); ++i) {
    results->tests[i].ns_per_cached_token =
        static_cast<double>(rows[i].median_ns) / static_cast<double>(depth);
  }
}

int GreedyPrompts(const EvalFlags& o, size_t caches) {
  return o.greedy_prompts >= 0 ? o.greedy_prompts : caches > 1 ? 0 : kGreedyPrompts;
}

// The text's tokens, as many as anything here reads; without a text those of the base file.
std::vector<int32_t> EvalTokens(const EvalFlags& o, const EvalOptions& options,
                                const std::optional<std::string>& text, const Model& model,
                                const std::optional<LogitBaseSummary>& file) {
  if (!text) return file->tokens;
  const std::optional<int64_t> scored = TokensToEvaluate(options);
  if (!scored) return Unwrap(model.tokenizer().Encode(*text, false));
  const int64_t prompts = GreedyPrompts(o, options.tests.size()) * kGreedyPromptTokens;
  const int64_t keys = o.report.empty() ? 0 : KeyRangeOptions{}.max_tokens;
  return Unwrap(model.tokenizer().EncodeFirst(*text, std::max({*scored, prompts, keys})));
}

// Everything about the evaluation that can be refused before weights load.
EvalOptions PlanEval(const EvalFlags& o, const std::optional<LogitBaseSummary>& file) {
  if (o.file.empty() && o.read_base.empty()) {
    throw UsageError("a text is missing: give one with --file, or base logits with --read-base");
  }
  EvalOptions options;
  options.base = BaseSpec(o.kv, o.base);
  options.contexts_tokens = ParseContexts(
      o.contexts.empty() ? fmt::format("{}", file ? file->ctx_tokens : 512) : o.contexts);
  options.modes = ParseModes(o.mode);
  options.max_scored_tokens = o.tokens;
  options.noise_floor = !o.no_floor;
  options.write_base_path = o.write_base;
  options.read_base_path = o.read_base;
  options.threads = o.model.threads;
  options.chunk_tokens = o.model.chunk_tokens;
  if (!o.write_base.empty()) CheckWritable(o.write_base);
  if (!o.report.empty()) CheckWritable(o.report);
  return options;
}

void CompareAnswers(const EvalFlags& o, const EvalOptions& options, const Model& model,
                    const std::vector<int32_t>& tokens, const RunControl& control,
                    EvalResults* results) {
  const int count = GreedyPrompts(o, results->tests.size());
  if (count == 0) return;
  const auto size = static_cast<int64_t>(tokens.size());
  // From the beginning of the text, so that they do not depend on how much of it is evaluated.
  const auto read =
      std::span(tokens).first(static_cast<size_t>(std::min(size, count * kGreedyPromptTokens)));
  const auto prompts =
      Unwrap(CutPrompts(model.tokenizer(), read, count, std::min(size, kGreedyPromptTokens)));
  std::vector<GreedyAgreement> answers =
      Unwrap(CompareGreedy(model, prompts,
                           {.base = options.base,
                            .tests = options.tests,
                            .tokens = o.greedy_tokens,
                            .threads = o.model.threads,
                            .chunk_tokens = o.model.chunk_tokens},
                           control));
  for (size_t i = 0; i < answers.size(); ++i) results->tests[i].greedy = std::move(answers[i]);
}

void PrintEval(const EvalFlags& o, const std::string& format, const Model& model,
               const EvalResults& results) {
  if (format == "json") {
    Json json = o.model.Header(model);
    AddEvalResults(results, &json);
    Write(Dump(json, 2));
    return;
  }
  if (format == "table") {
    Print("Base    {}\nActivations in {}\n\n",
          results.base_file.empty() ? LayerFormatsText(results.base, results.layers)
                                    : results.base_file,
          o.model.activations);
  }
  PrintEvalRows(results, format);
  if (format != "table") return;
  if (results.tests.size() == 1) {
    for (const EvalContext& context : results.contexts) Write(PositionsText(results, context));
  }
  for (const EvalTest& test : results.tests) {
    if (test.greedy) Write(GreedyText(test));
  }
  for (const auto& [preset, why] : results.skipped) Print("\nLeft out {}: {}\n", preset, why);
}

void WriteReport(const EvalFlags& o, const Model& model, const std::vector<int32_t>& tokens,
                 const RunControl& control, const EvalResults& results) {
  EvalReport report;
  report.title = "KV cache formats on " + (model.name().empty() ? "this model" : model.name());
  const Json header = o.model.Header(model);
  for (const auto& [name, value] : header.items()) {
    report.facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  report.facts.emplace_back("text", o.file.empty() ? o.read_base : o.file);
  report.facts.emplace_back("base", results.base_file.empty()
                                        ? LayerFormatsText(results.base, results.layers)
                                        : results.base_file);
  report.results = results;
  report.keys = Unwrap(MeasureKeyRanges(
      model, tokens, {.threads = o.model.threads, .chunk_tokens = o.model.chunk_tokens}, control));
  WriteFile(o.report, EvalReportHtml(report));
}

void CheckMixedFlags(const KvFlags& kv) {
  kv.CheckPolicyActs();
  if (kv.budget.empty() || !kv.policy.empty()) return;
  throw UsageError(
      fmt::format("--kv-budget {} has nothing to act on: eval bounds caches of several widths, "
                  "--kv mixed:... with --policy",
                  kv.budget));
}

int RunEval(const EvalFlags& o) {
  o.compatibility.CheckPossible();
  const std::string format = o.output.Format();
  std::optional<LogitBaseSummary> base_file;
  if (!o.read_base.empty()) base_file = Unwrap(ReadLogitBase(o.read_base));
  EvalOptions options = PlanEval(o, base_file);
  std::optional<std::string> text;
  if (!o.file.empty()) text = ReadTextFile(o.file);
  const GgufSummary file = o.model.Inspect();
  CacheList list = ListCaches(o.kv, o.sweep, file.geometry);
  CheckMixedFlags(o.kv);
  EvalResults results;
  results.skipped = std::move(list.skipped);
  for (const NamedSpec& cache : list.caches) {
    results.tests.push_back({.name = cache.name, .spec = cache.spec});
    options.tests.push_back(cache.spec);
  }
  results.base = options.base;
  results.base_file = o.read_base;
  o.model.CheckFits(file, options.base);

  const Model model = o.model.Load();
  const std::vector<int32_t> tokens = EvalTokens(o, options, text, model, base_file);
  CatchInterrupt();
  Progress bar("eval");
  const RunControl control = ControlOf(&bar);
  results.layers = model.geometry().layers;
  for (EvalTest& test : results.tests) {
    test.spec = WithWindows(test.spec, model.layer_windows());
    // What a token of a mixed cache takes is its policy's to say.
    if (test.spec.mixed == nullptr) {
      test.bytes_per_token = PageBytesPerToken(model.geometry(), test.spec);
    }
  }
  results.contexts = Unwrap(Evaluate(model, tokens, options, control));
  CompareAnswers(o, options, model, tokens, control, &results);
  if (results.tests.size() > 1 && !o.no_speed) {
    MeasureSpeed(o, model.geometry(), SpeedDepth(options), &bar, &results);
  }
  if (!o.report.empty()) WriteReport(o, model, tokens, control, results);
  bar.Clear();
  PrintEval(o, format, model, results);
  return kExitDone;
}

}  // namespace

void AddEval(CLI::App& root, Action* action) {
  const auto o = std::make_shared<EvalFlags>();
  CLI::App* const command = root.add_subcommand(
      "eval", "What a cache format costs in quality: KL, same top-1, perplexity, greedy agreement");
  command->footer(kFooter);
  o->model.Add(*command);
  o->model.AddActivations(*command);
  command
      ->add_option("-f,--file", o->file,
                   "The text, - for standard input; may be left out with --read-base")
      ->type_name("FILE");
  command->add_option("-c,--ctx", o->contexts, "Tokens of a chunk, a list [512]")
      ->type_name("N,...");
  command
      ->add_option("--tokens", o->tokens, "Score at most N tokens of each context and mode [all]")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("--mode", o->mode,
                   "prefill: as a prompt is read; decode: one token at a time; both [prefill]")
      ->type_name("MODE");
  command->add_option("--base", o->base, "Cache to compare with, as --kv [f16]")
      ->type_name("PRESET");
  command
      ->add_option(
          "--greedy", o->greedy_prompts,
          "Prompts whose greedy answers are compared, 0 for none [4; 0 for several caches]")
      ->type_name("N")
      ->check(Count(0, 10000));
  command->add_option("--greedy-tokens", o->greedy_tokens, "Tokens of each greedy answer [64]")
      ->type_name("N")
      ->check(Count(1, 1 << 20));
  command->add_flag("--sweep", o->sweep,
                    "Test every preset in one run, as a table with bytes and speed; --kv takes a "
                    "list of one's own");
  command->add_flag("--no-speed", o->no_speed, "Leave out the time of several caches");
  command->add_flag("--no-floor", o->no_floor,
                    "Leave out the noise floor: an f32 cache against the base");
  command
      ->add_option("--write-base", o->write_base,
                   "Write the base's predictions, a file as llama.cpp's --kl-divergence-base")
      ->type_name("FILE");
  command
      ->add_option("--read-base", o->read_base,
                   "Compare with the predictions in such a file instead of a base cache")
      ->type_name("FILE");
  command->add_option("--report", o->report, "Also write a page with plots, HTML without scripts")
      ->type_name("FILE");
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->kv.AddTokenPolicy(*command);
  command
      ->add_option("--kv-budget", o->kv.budget,
                   "Most bytes that a sequence of a mixed cache keeps, for example 16M")
      ->type_name("BYTES");
  o->compatibility.Add(*command);
  o->output.Add(*command);
  command->callback([o, action] { *action = [o] { return RunEval(*o); }; });
}

}  // namespace kvant::cli
