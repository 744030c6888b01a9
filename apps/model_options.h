// -m and the flags that go with it: what run, eval and bench do before weights load.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "kvant/inspect.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {

struct ModelFlags {
  std::string path;
  int64_t context_tokens = 0;  // 0: what the model was trained for
  int chunk_tokens = 512;
  int threads = 0;
  std::string activations = "int8";  // how matrix products see them; eval can ask for f32

  void Add(CLI::App& command);             // -m -b -t
  void AddActivations(CLI::App& command);  // --activations

  // Reads the file's head only. Throws when the file is not one or a spec does not fit its
  // geometry, which is known long before its weights are packed.
  GgufSummary Inspect() const;
  void CheckFits(const GgufSummary& file, const KvSpec& spec) const;

  Model Load() const;
  // Of a JSON about the loaded model: report.h's Header and AddModel, and activations.
  Json Header(const Model& model) const;
  SessionOptions Session(const KvSpec& spec, int64_t budget_bytes) const;
};

// Set by the first Ctrl-C; the second one ends the program as usual.
const std::atomic<bool>& Interrupted();
void CatchInterrupt();

// Shows progress in the bar, which outlives it, and stops when interrupted.
RunControl ControlOf(Progress* bar);

}  // namespace kvant::cli
