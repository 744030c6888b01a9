// Calibrate: runs a model on a text and measures what calibrated formats read
// (kvant/calibration.h), and the file that holds it.
//
// A text is cut into sequences that start from nothing. Of every layer, first tokens left out (a
// cache keeps them as sinks):
//   levels    of K rotated, balanced and less its page mean, of V rotated; each vector divided by
//             its rms. The levels are the best 2^bits of weighted 1-D k-means: found exactly, by
//             dynamic programming, so that there is neither a first guess nor an empty cluster.
//             KVQuant (arXiv 2401.18079) weights by gradients; here a value counts by what its
//             error does to attention, from data alone: K by the mean square of its channel in the
//             queries, V by the mean square of its token's probability, both times the square of
//             the vector's length.
//   factors   sqrt of the largest |K| of a channel and of its partner in the rotation by position
//   rotations U H: U the eigenvectors of Q^T Q of the queries that read a KV head (K), or of V
//             weighted as above (V); H the transform of blocks of powers of two
// Thread rules: reentrant; a call uses its own session.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kvant/calibration.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "kvant/status.h"

namespace kvant {

struct CalibrateOptions {
  int64_t max_tokens = 16384;      // of the text, from its beginning; whole sequences
  int64_t sequence_tokens = 2048;  // 128 to 4096
  int threads = 0;                 // 0: one a core
};

// kInvalidArgument for impossible options; kOutOfRange when the text is shorter than a sequence;
// kCorrupt when a side of a layer has too few different values for its levels; kCancelled;
// otherwise the errors of Session. layer_formats stays empty.
Result<Calibration> Calibrate(const Model& model, std::span<const int32_t> text,
                              const CalibrateOptions& options, const RunControl& control = {});

struct LayerChoiceOptions {
  double budget_bits = 0;  // most bits a value, codes and metadata, over all layers and both sides
  int64_t context_tokens = 1024;  // of each sequence; its second half is scored
  int64_t scored_tokens = 1024;
  int threads = 0;
};

// Tokens of a text that ChooseLayerFormats reads with these options; nothing where it reads all.
std::optional<int64_t> TokensToChooseFrom(const LayerChoiceOptions& options);

// kInvalidArgument when 2 bits everywhere do not fit the budget.
Status CheckLayerChoice(const KvGeometry& geometry, const LayerChoiceOptions& options);

// Formats of each layer under a budget, by measured sensitivity (in the manner of KVTuner, arXiv
// 2502.04420, with a greedy choice instead of a search): the mean KL of a cache in which one side
// of one layer alone is coded, K as tq2:mean:bal:n8 or V as tq2:n8, all else f16. More bits divide
// that KL as they divide the mean square error of the levels. All sides begin at 2 bits; the bit
// that takes off most KL a byte is bought, until none fits. The errors of
// CheckLayerChoice and Evaluate.
Result<std::vector<FormatPair>> ChooseLayerFormats(const Model& model,
                                                   std::span<const int32_t> text,
                                                   const LayerChoiceOptions& options,
                                                   const RunControl& control = {});

// Replaces the file at once or not at all. kIo names the path.
Status WriteCalibration(const Calibration& calibration, const std::string& path);

// kNotFound, kIo; kUnsupported for a file of another version; kCorrupt for anything else that
// WriteCalibration did not write, a single changed byte included. The message begins with the path.
Result<Calibration> ReadCalibration(const std::string& path);

}  // namespace kvant
