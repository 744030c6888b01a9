// kvant heads: which KV heads look far back, measured, ranked and written to a file.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "command.h"
#include "failure.h"
#include "kvant/head_classes.h"
#include "kvant/head_gates.h"
#include "model_options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant heads -m model.gguf -f text.txt -o heads.json\n"
    "  kvant heads -m model.gguf -f text.txt -c 4096 --depths 10,30,50,70,90 -o heads.json\n"
    "\n"
    "The file holds a gate for each KV head of each layer: the share of its attention that an "
    "answer's queries\n"
    "give to a number hidden in the text, which the answer copies.";

constexpr size_t kShownHeads = 12;

struct HeadsFlags {
  ModelFlags model;
  std::string file, output, depths = "10,25,40,55";
  HeadGateOptions options;
  double sparsity = 0.5;
};

HeadClasses ClassesOf(const HeadGates& gates, const HeadsFlags& o) {
  return {.model_hash = gates.model_hash,
          .layers = gates.geometry.layers,
          .kv_heads = gates.geometry.kv_heads,
          .first_tokens = static_cast<int>(o.options.sinks_tokens),
          .recent_tokens = static_cast<int>(o.options.recent_tokens),
          .sparsity = o.sparsity,
          .gates = std::vector<float>(gates.gates.begin(), gates.gates.end())};
}

void PrintRanking(const HeadGates& gates) {
  std::vector<int> heads(gates.gates.size());
  for (size_t i = 0; i < heads.size(); ++i) heads[i] = static_cast<int>(i);
  std::stable_sort(heads.begin(), heads.end(), [&](int a, int b) {
    return gates.gates[static_cast<size_t>(a)] > gates.gates[static_cast<size_t>(b)];
  });
  Table table({"rank", "layer", "KV head", "gate"});
  for (size_t i = 0; i < std::min(heads.size(), kShownHeads); ++i) {
    const int layer = heads[i] / gates.geometry.kv_heads, head = heads[i] % gates.geometry.kv_heads;
    table.Add({std::to_string(i + 1), std::to_string(layer), std::to_string(head),
               fmt::format("{:.3f}", gates.Of(layer, head))});
  }
  Print("{}", table.Text());
}

int RunHeads(const HeadsFlags& o) {
  CheckWritable(o.output);
  HeadGateOptions options = o.options;
  options.depths_percent = ParseIntList("--depths", o.depths, 0, 100);
  options.threads = o.model.threads;
  options.chunk_tokens = o.model.chunk_tokens;
  const std::string text = ReadTextFile(o.file);
  const Model model = o.model.Load();
  CatchInterrupt();
  Progress bar("heads");
  const HeadGates gates = Unwrap(MeasureHeadGates(model, text, options, ControlOf(&bar)));
  bar.Clear();
  const HeadClasses classes = ClassesOf(gates, o);
  Check(CheckHeadClasses(classes));
  WriteFile(o.output, PrintHeadClasses(classes));
  Print("{}: {} of {}, {}\n", o.output, Plural(static_cast<int64_t>(gates.gates.size()), "gate"),
        Plural(gates.geometry.layers, "layer"), Plural(gates.questions, "question"));
  PrintRanking(gates);
  return kExitDone;
}

}  // namespace

void AddHeads(CLI::App& root, Action* action) {
  const auto o = std::make_shared<HeadsFlags>();
  CLI::App* const command =
      root.add_subcommand("heads", "Find the KV heads that look far back, for formats by head");
  command->footer(kFooter);
  o->model.Add(*command);
  o->model.AddActivations(*command);
  AddTextFile(*command, "The text to hide numbers in", &o->file);
  command->add_option("-o,--output", o->output, "The file to write")->required()->type_name("FILE");
  command->add_option("-c,--ctx", o->options.prompt_tokens, "Tokens of a prompt, at most [1024]")
      ->type_name("N")
      ->check(Count(1));
  command->add_option("--depths", o->depths, "Where the number lies, in percent [10,25,40,55]")
      ->type_name("N,...");
  command->add_option("--questions", o->options.questions, "Questions at each depth [4]")
      ->type_name("N")
      ->check(Count(1, 10000));
  command
      ->add_option("--sinks", o->options.sinks_tokens,
                   "First tokens that streaming heads would keep [64]")
      ->type_name("N")
      ->check(Count(0));
  command
      ->add_option("--recent", o->options.recent_tokens,
                   "Newest tokens that streaming heads would keep [256]")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("--sparsity", o->sparsity, "Share of the heads that will stream, 0 to 1 [0.5]")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("-s,--seed", o->options.seed, "What the numbers are drawn from [1]")
      ->type_name("N");
  command->callback([o, action] { *action = [o] { return RunHeads(*o); }; });
}

}  // namespace kvant::cli
