// The rotation of a head that the normed formats want: random signs, then an orthonormal
// Walsh-Hadamard transform over blocks of powers of two, the largest that fit first (80 = 64 + 16).
// It spreads the outliers of single channels over all of them.
//
//   k' = H S B k,  q' = H S B^-1 q  (q' . k' = q . k),  v' = H S v,  out = S H out'
// S: a sign of each channel, the same for all heads and models; B: the balance of K's channels.
//
// The rotated vectors are what a cache holds everywhere, in its window and sinks too: a query is
// rotated once a step and serves all pages, and the output is turned back once.
// Sums and differences in a fixed order: the same bits on every host.
// Thread rules: pure functions on the caller's memory.
#pragma once

namespace kvant {

// +1 or -1.
float RotationSign(int channel);

// x := H (multiplier * x).   x, multiplier: [head_dim]; head_dim a multiple of 4
void Rotate(const float* multiplier, int head_dim, float* x);

// x := multiplier * (H x).
void RotateBack(const float* multiplier, int head_dim, float* x);

}  // namespace kvant
