// What is done to the vectors of a head before they come to a cache, and to queries and outputs so
// that attention stays what it was:
//   k' = M B k,  q' = M B^-1 q  (q' . k' = q . k),  v' = M v,  out = M^T out'
// B: a factor a channel; M: orthonormal, or nothing.
//
// The rotation that the normed formats want, and uniform ones with `had`, is M = H S: random signs,
// then an orthonormal Walsh-Hadamard transform over blocks of powers of two, the largest that fit
// first (80 = 64 + 16). It spreads the outliers of single channels over all of them. The signs are
// the same for all heads and models; B is the balance of K's channels. A calibration may give M as
// a matrix instead
// (`rot`), and plain formats may have B alone (`smooth`).
//
// The rotated vectors are what a cache holds everywhere, in its window and sinks too: a query is
// rotated once a step and serves all pages, and the output is turned back once.
// Sums and differences in a fixed order: the same bits on every host.
// Thread rules: pure functions on the caller's memory.
#pragma once

namespace kvant {

// +1 or -1.
float RotationSign(int channel);

// Plain data that points into memory of its owner.
struct Rotation {
  const float* multiplier = nullptr;  // [head_dim], signs and factors; null: ones
  const float* matrix = nullptr;      // [head_dim in][head_dim out], orthonormal
  bool hadamard = false;              // H, where there is no matrix

  bool is_identity() const { return multiplier == nullptr && matrix == nullptr && !hadamard; }
};

// x := M (multiplier * x).   x: [head_dim]; head_dim a multiple of 4, at most 1024
void Rotate(const Rotation& rotation, int head_dim, float* x);

// x := multiplier * (M^T x).
void RotateBack(const Rotation& rotation, int head_dim, float* x);

}  // namespace kvant
