// Flags of run that say where a timeline comes from, where it goes and what a full context does.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "kvant/generate.h"
#include "kvant/session.h"

namespace kvant::cli {

struct TimelineFlags {
  std::string load_path, save_path;
  bool context_shift = false;
  int64_t keep = 0;  // tokens of the prompt that a shift keeps; -1: all

  void Add(CLI::App& command);
  // What can be known before a model is loaded.
  void CheckPossible() const;
  // Refuses what a cache of several widths cannot do.
  void CheckSpec(const KvSpec& spec) const;

  // Nothing to do where no file is named.
  void Load(Session& session) const;
  // Appends the token that was shown last, which is sampled and not yet cached; the result's ledger
  // and shifts are then those of the timeline that was saved.
  void Save(Session& session, const GenerateOptions& generate, GenerateResult* result) const;

  std::optional<int64_t> ShiftKeep(int64_t prompt_tokens) const;  // for GenerateOptions
  // Answer tokens that fit behind `tokens`: the last one is shown and needs no room, unless it is
  // saved. Without end where the context is shifted.
  int64_t Room(int64_t tokens, int64_t context_tokens) const;
};

}  // namespace kvant::cli
