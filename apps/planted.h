// kvant tasks --planted: keys planted in a cache without a model, and whether attention finds them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "options.h"

namespace kvant::cli {

struct PlantedFlags {
  std::string head_dims = "64", tokens = "2048", offsets = "0,200";
  float margin = 3;

  void Add(CLI::App& command, CLI::Option* planted);  // each needs the flag `planted`
};

// Prints one row a cache, head dimension, number of tokens and offset. Returns the exit code.
int RunPlantedTest(const PlantedFlags& flags, const KvFlags& kv, bool sweep, uint64_t seed,
                   const std::string& format);

}  // namespace kvant::cli
