// out = activations * weights^T for packed weights.
//
// The arithmetic of one output is fixed, so results are bit-identical for every batch size, thread
// count and ISA level (barring the payload of a NaN):
//   int8 activations, grouped weights: one f32 accumulator, groups of inputs ascending,
//       acc = fma(scale_w * scale_a, float(dot - zero * sum_a), acc)      the integers are exact
//       acc = fma(offset_w, scale_a * float(sum_a), acc)                  only with offsets
//   float activations, or float weights: four f32 accumulators, input i goes to number i mod 4,
//       acc[i mod 4] = fma(w_i, x_i, acc[i mod 4]), w_i as DecodeRow gives it,
//       out = (acc[0] + acc[1]) + (acc[2] + acc[3])
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "matmul/activations.h"
#include "matmul/packed_matrix.h"

namespace kvant {

// Where the outputs of one matrix go: data[tokens][rows], rows of it stride floats apart. Nothing
// between rows and stride is touched.
struct MatMulOutput {
  float* data;
  int64_t stride;  // >= rows of the matrix
};

// REQUIRES: weights.cols() == inputs.cols(); out does not overlap the inputs; no other call is
// using the pool.
void MatMul(ThreadPool& pool, const PackedMatrix& weights, const Activations& inputs, float* out,
            int64_t out_stride);

// Several matrices that read the same inputs (query, key, value; gate, up) in one fork-join.
// REQUIRES: weights.size() == outs.size(), each pair as for MatMul.
void MatMulMany(ThreadPool& pool, std::span<const PackedMatrix* const> weights,
                const Activations& inputs, std::span<const MatMulOutput> outs);

// Heads with a matrix each, in one fork-join: input t meets weights[t % n] alone, and gives row
// t / n of its output. The inputs are [rows][n] vectors.
// REQUIRES: n = weights.size() = outs.size() divides inputs.tokens(), each pair as for MatMul.
void MatMulEach(ThreadPool& pool, std::span<const PackedMatrix* const> weights,
                const Activations& inputs, std::span<const MatMulOutput> outs);

}  // namespace kvant
