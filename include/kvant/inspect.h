// Inspect: what a file holds: a GGUF file, whether or not kvant can run it, or a saved session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/mixed_spec.h"
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

// Whether the file begins as a saved session does. Fails where it cannot be read.
Result<bool> IsSnapshotFile(const std::string& path);

// The pages of all layers that share one pair of formats.
struct SnapshotFormatTotal {
  FormatPair formats;
  int layers = 0;
  int64_t pages = 0;  // of float formats all, else those that are stored
  int64_t bytes = 0;
};

// The tokens of one width of all layers that hold several.
struct SnapshotPoolTotal {
  MixedPool pool;
  int64_t head_tokens = 0;  // counted once a layer and KV head
  int64_t pages = 0;        // coded
  int64_t bytes = 0;        // of them
};

// What Session::Save wrote.
struct SnapshotSummary {
  int64_t file_bytes = 0;
  uint64_t model_hash = 0;        // of the model's file; 0: of none
  uint64_t calibration_hash = 0;  // 0: no format reads one
  KvGeometry geometry;
  int sinks_tokens = 0, window_tokens = 0, page_tokens = 0;
  int64_t length = 0;                       // tokens
  std::vector<int32_t> tokens;              // [length]
  bool has_logits = false;                  // it can go on without another token
  std::vector<FormatPair> formats;          // [geometry.layers]
  std::vector<SnapshotFormatTotal> totals;  // of layers of one width, in their order
  std::vector<SnapshotPoolTotal> pools;     // of layers of several widths; empty: there are none
  std::vector<int> mixed_layers;            // which these are
  std::string policy;                       // that gave the widths
  bool once = false;                        // as MixedSpec::once
  int64_t budget_bytes = 0;                 // as MixedSpec::budget_bytes
  int64_t dropped_head_tokens = 0;
  // Pages of the coded layers that are held as written, those of tokens that wait for their pool's
  // next page among them.
  int64_t window_bytes = 0;
  int64_t sink_bytes = 0;
  int64_t other_bytes = 0;  // header, tokens, hidden state, positions, checksums
};

// Checks all of the file. kNotFound, kIo, kCorrupt or kUnsupported, the message naming the file.
Result<SnapshotSummary> InspectSnapshot(const std::string& path);

}  // namespace kvant
