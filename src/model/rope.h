// Rotary position embedding: pair i of a head's channels (RopePairs) turns by
// position / scale * base^(-2i / dims) / factor_i.
//
// Thread rules: a RopeTable is written by one thread at a time (rows apart may be filled by
// several), and read by any number.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/key_rope.h"
#include "kvant/status.h"
#include "model/config.h"

namespace kvant {

// factors: one a pair, or empty for all 1.
Rope MakeRope(const RopeSpec& spec, int dims, RopePairs pairs, const std::vector<float>& factors);

// cos and sin of every pair for the positions of one step, computed in double and rounded once.
class RopeTable {
 public:
  RopeTable(Rope rope, int64_t max_rows);

  void Fill(int64_t row, int64_t position);

  // Rotates the first dims() channels of x[head_dim] in place.
  void Rotate(int64_t row, float* x) const;

  int dims() const { return 2 * static_cast<int>(rope_.frequencies.size()); }

 private:
  const Rope rope_;
  std::vector<float> cos_sin_;  // [rows][pairs][2]
};

}  // namespace kvant
