// Inspect: what a GGUF file holds, whether or not kvant can run it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

struct GgufEntryText {
  std::string key;
  std::string type;   // "u32", "string", "array of f32"
  std::string value;  // for people: strings quoted and cut, arrays cut
};

struct GgufTensorText {
  std::string name;           // control bytes escaped
  std::string type;           // "Q4_1"
  std::vector<int64_t> dims;  // [row length, rows, …]
  int64_t bytes = 0;
};

struct GgufTypeTotal {
  std::string type;
  int64_t tensors = 0;
  int64_t values = 0;
  int64_t bytes = 0;
};

struct GgufSummary {
  uint32_t version = 0;
  int64_t file_bytes = 0;
  uint64_t file_hash = 0;               // XXH64 with seed 0 of the whole file
  std::string architecture;             // empty where the file names none
  std::vector<GgufEntryText> metadata;  // in file order, as are the tensors
  std::vector<GgufTensorText> tensors;
  std::vector<GgufTypeTotal> types;  // most bytes first

  std::optional<KvGeometry> geometry;  // absent where the keys are missing or make no sense
  std::string geometry_problem;        // why it is absent
  int64_t context_tokens = 0;          // that the model was trained for; 0 if not said
  int64_t sliding_window_tokens = 0;   // some layers see only that many tokens; 0: none
  // [layers] tokens that each layer sees, 0: all. Empty where kvant does not know which layers of
  // the architecture have windows.
  std::vector<int64_t> layer_windows;
};

// Fails as a GGUF reader does: kNotFound, kIo, kCorrupt or kUnsupported, the message naming the
// file.
Result<GgufSummary> InspectGguf(const std::string& path);

}  // namespace kvant
