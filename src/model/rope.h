// Rotary position embedding: pair i of a head's channels (RopePairs) turns by
// position / scale * base^(-2i / dims) / factor_i.
//
// Thread rules: a RopeTable is written by one thread at a time (rows apart may be filled by
// several), and read by any number.
#pragma once

#include <cstdint>
#include <vector>

#include "kvant/status.h"
#include "model/config.h"

namespace kvant {

// cos and sin of every pair for the positions of one step, computed in double and rounded once.
class RopeTable {
 public:
  // factors: one a pair, or empty for all 1.
  RopeTable(const RopeSpec& spec, int dims, RopePairs pairs, const std::vector<float>& factors,
            int64_t max_rows);

  void Fill(int64_t row, int64_t position);

  // Rotates the first dims() channels of x[head_dim] in place.
  void Rotate(int64_t row, float* x) const;

  int dims() const { return 2 * static_cast<int>(frequencies_.size()); }

 private:
  const RopePairs pairs_;
  std::vector<double> frequencies_;  // radians a position
  std::vector<float> cos_sin_;       // [rows][pairs][2]
};

}  // namespace kvant
