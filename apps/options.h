// Flags that several commands share, under llama.cpp's names, and what they mean to the library.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/inspect.h"

namespace kvant::cli {

// How the KV cache is stored: --kv, -ctk, -ctv, --kv-sinks, …
struct KvFlags {
  std::string preset, k, v;
  int group = 0;
  std::string sinks, windows;  // counts of tokens; empty: as the preset or the library has it
  std::string skip_layers;
  std::string budget;
  std::string calibration;
  std::string policy, head_classes;  // of a mixed cache

  void AddFormat(CLI::App& command);       // --kv -ctk -ctv --kv-group --calibration
  void AddPolicy(CLI::App& command);       // --kv-sinks --kv-window --kv-skip-layers
  void AddBudget(CLI::App& command);       // --kv-budget
  void AddTokenPolicy(CLI::App& command);  // --policy --head-classes

  // Throws a usage error for what no model could take. What one model cannot take, CheckKvSpec
  // says.
  KvSpec Spec() const;
  // The same where the flags hold lists: every preset, or every K format with every V format.
  std::vector<KvSpec> Specs() const;
  // The same flags once for each pair of --kv-sinks and --kv-window, where these hold lists: item
  // by item, a single number with every item of the other.
  std::vector<KvFlags> Policies() const;
  // What the pools of a cache of that spec may allocate; 0: no bound. A mixed cache has its budget
  // in the spec.
  int64_t BudgetBytes(const KvSpec& spec) const;
  // Throws a usage error where --policy or --head-classes has no mixed cache to act on.
  void CheckPolicyActs() const;

 private:
  void ApplyPolicy(KvSpec* spec) const;
  KvSpec AutoSpec() const;
  KvSpec MixedCacheSpec() const;
  const std::shared_ptr<const Calibration>& LoadedCalibration() const;

  mutable std::shared_ptr<const Calibration> loaded_;  // null: not yet, or none is named
};

// -o table|json|jsonl|md|csv, and --json as -o json.
struct OutputFlags {
  std::string format = "table";
  bool json = false;

  void Add(CLI::App& command);
  std::string Format() const;  // throws a usage error for an unknown one
};

// -fa and -ngl: accepted where they ask for what kvant does anyway, refused otherwise.
struct CompatibilityFlags {
  std::string flash_attention = "auto";
  int gpu_layers = 0;

  void Add(CLI::App& command);
  void CheckPossible() const;
};

void AddThreads(CLI::App& command, int* threads);  // -t
// -f, which has to be given; what: "The text".
void AddTextFile(CLI::App& command, const std::string& what, std::string* path);
int DefaultThreads();

// For options that are numbers: refuses what is below `low` or above `high` with one short
// sentence.
CLI::Validator Count(int64_t low, int64_t high = int64_t{1} << 40);

// "0,2,5-7"
std::vector<int> ParseIntList(const std::string& flag, const std::string& text, int low, int high);
// "1073741824", "512M", "2GiB"
int64_t ParseBytes(const std::string& flag, const std::string& text);
// "LAYERS,KV_HEADS,HEAD_DIM[/LATENT][,Q_HEADS]"
KvGeometry ParseShape(const std::string& text);
// Of a file whose layers' windows are known. Failure names the file.
KvGeometry GeometryOf(const std::string& path, const GgufSummary& file);
// Counts, each between 0 and 2^24.
std::vector<int64_t> ParseCounts(const std::string& flag, const std::string& text);
std::vector<std::string> SplitList(const std::string& text, char separator = ',');

// The whole file, or standard input for "-".
std::string ReadTextFile(const std::string& path);

}  // namespace kvant::cli
