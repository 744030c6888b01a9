// kvant eval: what a cache format costs in quality, against the same engine with another cache.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "command.h"
#include "failure.h"
#include "kvant/eval.h"
#include "model_options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant eval -m model.gguf -f text.txt --kv int4 --ctx 512,2048 --tokens 4096\n"
    "  kvant eval -m model.gguf -f text.txt -ctk q8_0 -ctv q4_0 --mode both --json\n"
    "\n"
    "The text is cut into chunks of --ctx tokens; the second half of each is scored. KL is taken "
    "from the\n"
    "base cache's prediction to the tested one's, in nats.";

constexpr int64_t kGreedyPromptTokens = 256;

struct EvalFlags {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  std::string file, contexts = "512", mode = "prefill", base = "f16";
  int64_t tokens = 0;
  int greedy_prompts = 4;
  int64_t greedy_tokens = 64;
  bool json = false;
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

Json BucketJson(const EvalBucket& b) {
  return {{"first_position", b.first_position},
          {"end_position", b.end_position},
          {"tokens", b.tokens},
          {"mean_kl", b.mean_kl},
          {"mean_nll", b.mean_nll},
          {"mean_nll_base", b.mean_nll_base}};
}

Json ContextJson(const EvalContext& c) {
  Json json = {{"ctx", c.ctx_tokens},
               {"mode", EvalModeName(c.mode)},
               {"tokens", c.tokens},
               {"mean_kl", c.mean_kl},
               {"mean_kl_se", c.mean_kl_se},
               {"median_kl", c.median_kl},
               {"p99_kl", c.p99_kl},
               {"max_kl", c.max_kl},
               {"max_kl_token", c.max_kl_token},
               {"same_top1", c.same_top1},
               {"ppl", c.ppl},
               {"ppl_base", c.ppl_base},
               {"ppl_ratio", c.ppl_ratio},
               {"mean_nll", c.mean_nll},
               {"mean_nll_se", c.mean_nll_se},
               {"mean_nll_base", c.mean_nll_base},
               {"effective_bits", c.effective_bits},
               {"effective_bits_base", c.effective_bits_base}};
  json["by_position"] = Json::array();
  for (const EvalBucket& bucket : c.by_position) json["by_position"].push_back(BucketJson(bucket));
  return json;
}

Json GreedyJson(const GreedyAgreement& g) {
  return {{"prompts", g.first_divergence.size()},
          {"tokens", g.tokens},
          {"share_equal", g.share_equal},
          {"mean_equal_tokens", g.mean_equal_tokens},
          {"first_divergence", g.first_divergence}};
}

std::string ContextsText(const std::vector<EvalContext>& contexts) {
  Table table({"ctx", "mode", "tokens", "mean KL", "median", "99 %", "max", "same top-1",
               "perplexity", "base", "ratio", "bits"});
  for (const EvalContext& c : contexts) {
    table.Add({Grouped(c.ctx_tokens), std::string(EvalModeName(c.mode)), Grouped(c.tokens),
               fmt::format("{:.5f} ± {:.5f}", c.mean_kl, c.mean_kl_se),
               fmt::format("{:.5f}", c.median_kl), fmt::format("{:.4f}", c.p99_kl),
               fmt::format("{:.3f}", c.max_kl), fmt::format("{:.2f} %", 100 * c.same_top1),
               fmt::format("{:.4f} ± {:.3f}", c.ppl, c.ppl * c.mean_nll_se),
               fmt::format("{:.4f}", c.ppl_base), fmt::format("{:.5f}", c.ppl_ratio),
               fmt::format("{:.2f}", c.effective_bits)});
  }
  return table.Text("");
}

std::string PositionsText(const EvalContext& c) {
  Table table({"positions", "tokens", "mean KL", "perplexity", "base"});
  for (const EvalBucket& b : c.by_position) {
    table.Add({fmt::format("{}–{}", b.first_position, b.end_position - 1), Grouped(b.tokens),
               fmt::format("{:.5f}", b.mean_kl), fmt::format("{:.3f}", std::exp(b.mean_nll)),
               fmt::format("{:.3f}", std::exp(b.mean_nll_base))});
  }
  return fmt::format("\nBy position, context {}, {}\n", c.ctx_tokens, EvalModeName(c.mode)) +
         table.Text();
}

std::string GreedyText(const GreedyAgreement& g) {
  return fmt::format(
      "\nGreedy answers: {} of {} equal over {} tokens; on average the first {:.1f} agree.\n",
      std::count(g.first_divergence.begin(), g.first_divergence.end(), g.tokens),
      g.first_divergence.size(), g.tokens, g.mean_equal_tokens);
}

// Prompts from all over the text.
std::vector<std::vector<int32_t>> GreedyPrompts(const std::vector<int32_t>& text, int count) {
  std::vector<std::vector<int32_t>> prompts;
  const int64_t size = static_cast<int64_t>(text.size());
  const int64_t length = std::min(kGreedyPromptTokens, size);
  for (int64_t i = 0; i < count; ++i) {
    const auto first = text.begin() + (count == 1 ? 0 : (size - length) * i / (count - 1));
    prompts.emplace_back(first, first + length);
  }
  return prompts;
}

int RunEval(const EvalFlags& o) {
  o.compatibility.CheckPossible();
  EvalOptions options;
  options.test = o.kv.Spec();
  KvFlags base = o.kv;
  base.preset = o.base;
  base.k = base.v = "";
  base.group = 0;
  base.skip_layers = "";
  options.base = base.Spec();
  options.contexts_tokens = ParseContexts(o.contexts);
  options.modes = ParseModes(o.mode);
  options.max_scored_tokens = o.tokens;
  options.threads = o.model.threads;
  options.chunk_tokens = o.model.chunk_tokens;
  const std::string text = ReadTextFile(o.file);
  const GgufSummary file = o.model.Inspect();
  o.model.CheckFits(file, options.test);
  o.model.CheckFits(file, options.base);

  const Model model = o.model.Load();
  const std::vector<int32_t> tokens = Unwrap(model.tokenizer().Encode(text, false));
  CatchInterrupt();
  Progress bar("eval");
  const RunControl control{.progress =
                               [&](int64_t done, int64_t total) {
                                 bar.Update(static_cast<double>(done), static_cast<double>(total));
                               },
                           .cancel = &Interrupted()};
  const std::vector<EvalContext> contexts = Unwrap(Evaluate(model, tokens, options, control));
  std::optional<GreedyAgreement> greedy;
  if (o.greedy_prompts > 0) {
    greedy = Unwrap(CompareGreedy(model, GreedyPrompts(tokens, o.greedy_prompts),
                                  {.base = options.base,
                                   .test = options.test,
                                   .tokens = o.greedy_tokens,
                                   .threads = o.model.threads,
                                   .chunk_tokens = o.model.chunk_tokens},
                                  control));
  }
  bar.Clear();
  const int layers = model.geometry().layers;
  if (o.json) {
    Json json = Header(o.model.threads);
    AddModel(model.path(), model.file_bytes(), model.file_hash(), &json);
    json["formats"] = LayerFormatsJson(options.test, layers);
    json["formats_base"] = LayerFormatsJson(options.base, layers);
    json["activations"] = o.model.activations;
    json["kv_sinks_tokens"] = options.test.sinks_tokens;
    json["kv_window_tokens"] = options.test.window_tokens;
    json["contexts"] = Json::array();
    for (const EvalContext& context : contexts) json["contexts"].push_back(ContextJson(context));
    json["greedy"] = greedy ? GreedyJson(*greedy) : Json(nullptr);
    Write(Dump(json, 2));
    return kExitDone;
  }
  Print("Tested  {}\nBase    {}\nActivations in {}\n\n{}", LayerFormatsText(options.test, layers),
        LayerFormatsText(options.base, layers), o.model.activations, ContextsText(contexts));
  for (const EvalContext& context : contexts) Write(PositionsText(context));
  if (greedy) Write(GreedyText(*greedy));
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
  command->add_option("-f,--file", o->file, "The text, - for standard input")
      ->required()
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
      ->add_option("--greedy", o->greedy_prompts,
                   "Prompts whose greedy answers are compared, 0 for none [4]")
      ->type_name("N")
      ->check(Count(0, 10000));
  command->add_option("--greedy-tokens", o->greedy_tokens, "Tokens of each greedy answer [64]")
      ->type_name("N")
      ->check(Count(1, 1 << 20));
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->compatibility.Add(*command);
  command->add_flag("--json", o->json, "Print one JSON object");
  command->callback([o, action] { *action = [o] { return RunEval(*o); }; });
}

}  // namespace kvant::cli
