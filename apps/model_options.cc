#include "model_options.h"

#include <fmt/core.h>

#include <csignal>

#include "failure.h"
#include "kvant/calibration.h"
#include "kvant/mixed_spec.h"

namespace kvant::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // or a signal handler may not touch it

void OnInterrupt(int) {
  g_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& Interrupted() { return g_interrupted; }
void CatchInterrupt() { std::signal(SIGINT, OnInterrupt); }

RunControl ControlOf(Progress* bar) {
  return {.progress =
              [bar](int64_t done, int64_t total) {
                bar->Update(static_cast<double>(done), static_cast<double>(total));
              },
          .cancel = &Interrupted()};
}

void ModelFlags::Add(CLI::App& command) {
  command.add_option("-m,--model", path, "The model, a GGUF file")->required()->type_name("FILE");
  command
      .add_option("-b,--batch-size", chunk_tokens, "Prompt tokens run together, 1 to 4096 [512]")
      ->type_name("N")
      ->check(Count(1, 4096));
  AddThreads(command, &threads);
}

GgufSummary ModelFlags::Inspect() const { return Unwrap(InspectGguf(path)); }

void ModelFlags::CheckFits(const GgufSummary& file, const KvSpec& spec) const {
  if (!file.geometry) return;  // Load says better what is wrong with the file
  CheckArgument(CheckKvSpec(spec, *file.geometry));
  if (spec.calibration != nullptr) Check(CheckCalibratedModel(*spec.calibration, file.file_hash));
  Check(CheckMixedModel(spec, file.file_hash));
}

void ModelFlags::AddActivations(CLI::App& command) {
  command
      .add_option(
          "--activations", activations,
          "int8: as run computes; f32: without that rounding, so that only the cache's loss "
          "is seen, several times slower [int8]")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"int8", "f32"}));
}

Model ModelFlags::Load() const {
  return Unwrap(Model::Load(path, {.threads = threads, .float_activations = activations == "f32"}));
}

Json ModelFlags::Header(const Model& model) const {
  Json json = cli::Header(threads);
  AddModel(model.path(), model.file_bytes(), model.file_hash(), &json);
  json["activations"] = activations;
  return json;
}

SessionOptions ModelFlags::Session(const KvSpec& spec, int64_t budget_bytes) const {
  return {.kv = spec,
          .context_tokens = context_tokens,
          .threads = threads,
          .chunk_tokens = chunk_tokens,
          .kv_budget_bytes = budget_bytes};
}

}  // namespace kvant::cli
