// Calibration: what was measured of one model's keys and values, for formats that read it:
//   fit{2,3,4}   levels fitted to the normalised values of each layer
//   :smooth      factors of K's channels (SmoothAttention of QServe, arXiv 2405.04532)
//   :rot         rotations that diagonalise what the error of a side is weighed by, then spread it
//                evenly (after OSCAR, arXiv 2605.17757)
//   layers       formats chosen for each layer under a budget of bytes
// Made, written and read by kvant/calibrate.h; a KvSpec carries it to every cache.
// Thread rules: plain values; shared as const.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

// Levels of one side of one layer at one width, as 8-bit numbers.
struct FittedLevels {
  // Level units of a value that is 1 where the vector's rms is: such a value ~ level / sigma.
  float sigma = 0;
  std::vector<int8_t> levels;  // [2^bits], ascending, between -127 and 127

  bool operator==(const FittedLevels&) const = default;
};

inline constexpr int kLeastFittedBits = 2, kFittedWidths = 3;  // 2, 3 and 4 bits

struct LayerCalibration {
  std::array<FittedLevels, kFittedWidths> k_levels, v_levels;
  std::vector<float> k_factors;   // [kv_heads][head_dim], positive: K is divided by them
  std::vector<float> k_rotation;  // [kv_heads][head_dim in][head_dim out], orthonormal
  std::vector<float> v_rotation;  // the same

  bool operator==(const LayerCalibration&) const = default;
};

struct Calibration {
  uint64_t model_hash = 0;  // Model::file_hash()
  KvGeometry geometry;
  int64_t tokens = 0;                     // that it was measured on
  std::vector<LayerCalibration> layers;   // [geometry.layers]
  std::vector<FormatPair> layer_formats;  // [geometry.layers], or empty: no choice was made

  bool operator==(const Calibration&) const = default;
};

// kCorrupt with the layer and what is wrong unless every part has its shape, levels ascend, factors
// are positive and rotations orthonormal to 1e-3, and the formats are possible.
Status CheckCalibration(const Calibration& calibration);

// kInvalidArgument that names both hashes when it was made for another model.
Status CheckCalibratedModel(const Calibration& calibration, uint64_t model_hash);

}  // namespace kvant
