// KeyRope's tables, and keys taken back to what they were before RoPE.
//
// A pair (a, b) of channels at position p becomes (a cos - b sin, a sin + b cos) of p * frequency
// (RoPE, arXiv 2104.09864). Everything is computed in double and rounded to f32 once, so that a
// position of a million is as exact as position 1.
//
// Thread rules: Grow is for one thread at a time and invalidates views; all else is const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/view.h"
#include "kvant/status.h"

namespace kvant {

// How a layer's keys turn: pair i by frequencies[i] radians a position.
struct Rope {
  RopePairs pairs = RopePairs::kHalves;
  std::vector<double> frequencies;
  bool operator==(const Rope&) const = default;
};

// base^(-2i / dims) for pairs 0 .. dims / 2 - 1.
std::vector<double> RopeFrequencies(double base, int dims);
// Halves, base 10,000: for caches that are filled without a model.
Rope UsualRope(int head_dim);

class KeyRopeTable {
 public:
  explicit KeyRopeTable(const Rope& rope);

  // Makes the tables hold positions [0, tokens). kOutOfMemory leaves them as they were.
  Status Grow(int64_t tokens);
  const Rope& rope() const { return rope_; }
  KeyRope view() const;

 private:
  Rope rope_;
  std::vector<float> starts_, offsets_;
};

// Largest length of a pair of channels that pages before RoPE hold: with the rounding of either
// channel to f16, 2^-11, no turn makes a channel larger than f16 holds.
inline constexpr float kMaxPairLength = 65440.0f;

// K of a full open page, every token turned back by its position.
//   open   the K side of the page, in any float type
//   first_position  of the page, a multiple of 64 inside the tables
//   out    [open.bytes], the same layout
void TurnBack(const KeyRope& rope, const SideLayout& open, const std::byte* page,
              int64_t first_position, std::byte* out);

}  // namespace kvant
