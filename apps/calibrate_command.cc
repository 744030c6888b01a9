// kvant calibrate: measures what calibrated formats read, and writes it to a file.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "command.h"
#include "failure.h"
#include "kvant/calibrate.h"
#include "kvant/explain.h"
#include "model_options.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant calibrate -m model.gguf -f text.txt -o model.cal\n"
    "  kvant eval -m model.gguf -f other.txt --calibration model.cal --kv "
    "fit4:mean:bal:n8/fit4:n8\n"
    "  kvant run -m model.gguf -p \"Once\" --calibration model.cal -ctk int4:token:rzero:smooth "
    "-ctv int4:token:rzero\n"
    "\n"
    "Calibrate on another text than the one a format is judged by.";

struct CalibrateFlags {
  ModelFlags model;
  std::string file, output;
  int64_t tokens = 16384, sequence_tokens = 2048;
  double budget_bits = 0;  // 0: no formats are chosen, unless a number of bytes says so
  std::string budget;      // bytes of the pages of budget_tokens tokens
  int64_t budget_tokens = 8192;

  bool chooses() const { return budget_bits > 0 || !budget.empty(); }
  // Most bits a value.
  double BudgetBits(const KvGeometry& g) const {
    if (budget.empty()) return budget_bits;
    const auto values = static_cast<double>(g.values_per_token());
    return 8.0 * static_cast<double>(ParseBytes("--kv-budget", budget)) /
           (values * static_cast<double>(budget_tokens));
  }
};

void PrintChoice(const Calibration& calibration, int64_t tokens) {
  for (size_t layer = 0; layer < calibration.layer_formats.size(); ++layer) {
    const FormatPair& pair = calibration.layer_formats[layer];
    Print("  layer {}: K {}, V {}\n", layer, FormatSpec(pair.k), FormatSpec(pair.v));
  }
  if (calibration.layer_formats.empty()) return;
  KvSpec spec;
  spec.layers = calibration.layer_formats;
  const double token_bytes = PageBytesPerToken(calibration.geometry, spec);
  Print("  {:.0f} bytes a token, {} of pages for {}\n", token_bytes,
        HumanBytes(token_bytes * static_cast<double>(tokens)), Plural(tokens, "token"));
}

int RunCalibrate(const CalibrateFlags& o) {
  if (!o.budget.empty()) (void)ParseBytes("--kv-budget", o.budget);
  CheckWritable(o.output);
  const std::string text = ReadTextFile(o.file);
  const Model model = o.model.Load();
  const LayerChoiceOptions choice{.budget_bits = o.BudgetBits(model.geometry()),
                                  .threads = o.model.threads};
  if (o.chooses()) Check(CheckLayerChoice(model.geometry(), choice));
  const int64_t read = std::max(o.tokens, *TokensToChooseFrom(choice));
  const std::vector<int32_t> tokens = Unwrap(model.tokenizer().EncodeFirst(text, read));
  CatchInterrupt();
  Progress bar("calibrate");
  const RunControl control = ControlOf(&bar);
  Calibration calibration = Unwrap(Calibrate(
      model, tokens,
      {.max_tokens = o.tokens, .sequence_tokens = o.sequence_tokens, .threads = o.model.threads},
      control));
  if (o.chooses()) {
    calibration.layer_formats = Unwrap(ChooseLayerFormats(model, tokens, choice, control));
  }
  Check(WriteCalibration(calibration, o.output));
  bar.Clear();
  Print("{}: {} of {} layers\n", o.output, Plural(calibration.tokens, "token"),
        calibration.geometry.layers);
  PrintChoice(calibration, o.budget_tokens);
  return kExitDone;
}

}  // namespace

void AddCalibrate(CLI::App& root, Action* action) {
  const auto o = std::make_shared<CalibrateFlags>();
  CLI::App* const command = root.add_subcommand(
      "calibrate", "Measure a model's keys and values for formats that read a calibration");
  command->footer(kFooter);
  o->model.Add(*command);
  o->model.AddActivations(*command);
  AddTextFile(*command, "The text", &o->file);
  command->add_option("-o,--output", o->output, "The file to write")->required()->type_name("FILE");
  command->add_option("--tokens", o->tokens, "Tokens of the text, whole sequences [16384]")
      ->type_name("N")
      ->check(Count(128));
  command
      ->add_option("-c,--ctx", o->sequence_tokens,
                   "Tokens of a sequence, which starts from nothing, 128 to 4096 [2048]")
      ->type_name("N")
      ->check(Count(128, 4096));
  CLI::Option* const bits =
      command
          ->add_option(
              "--budget-bits", o->budget_bits,
              "Also choose each layer's formats for --kv auto: at most N bits a value; use "
              "--activations f32")
          ->type_name("N")
          ->check(CLI::Range(2.0, 16.0));
  CLI::Option* const bytes =
      command
          ->add_option("--kv-budget", o->budget,
                       "The same by bytes: what the pages of --budget-tokens tokens may take")
          ->type_name("BYTES")
          ->excludes(bits);
  command->add_option("--budget-tokens", o->budget_tokens, "Tokens of --kv-budget [8192]")
      ->type_name("N")
      ->check(Count(1))
      ->needs(bytes);
  command->callback([o, action] { *action = [o] { return RunCalibrate(*o); }; });
}

}  // namespace kvant::cli
