// What one ISA level offers to matmul.cc. Internal to the module.
//
// Plain data only: the per-ISA files must not instantiate inline functions that others share.
#pragma once

#include <cstdint>

#include "matmul/activations.h"
#include "matmul/packed_matrix.h"

namespace kvant {

// Consecutive row blocks of one matrix times consecutive tokens, done by one thread.
struct MatMulJob {
  const uint8_t* weights;  // first block
  int64_t block_bytes;
  int64_t rows;  // from the first block on; the last block may be partial
  int64_t cols;

  // Grouped matrices.
  bool four_bits;  // stored bits: 4 or 8
  bool group16;    // groups of 16 inputs, otherwise 32
  bool has_offset;
  bool half_scales;
  int32_t zero;
  // Float matrices.
  FloatStorage storage;

  const ActivationGroup* groups;  // [tokens][groups_stride]
  int64_t groups_stride;
  const float* values;  // [tokens][values_stride]
  int64_t values_stride;
  int64_t tokens;

  float* out;  // first row of the first token
  int64_t out_stride;
};

struct MatMulKernels {
  // One token: x[cols] to ceil(cols / 32) groups.
  void (*quantize)(const float* x, int64_t cols, ActivationGroup* out);
  void (*int8_grouped)(const MatMulJob& job);   // grouped weights, groups of activations
  void (*float_grouped)(const MatMulJob& job);  // grouped weights, float activations
  void (*plain)(const MatMulJob& job);          // float weights, float activations
};

extern const MatMulKernels kMatMulScalar;
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
extern const MatMulKernels kMatMulAvx2;
extern const MatMulKernels kMatMulAvxVnni;
extern const MatMulKernels kMatMulAvx512;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
extern const MatMulKernels kMatMulNeon;
#endif

// The table of ActiveIsa().
const MatMulKernels& ActiveMatMulKernels();

}  // namespace kvant
