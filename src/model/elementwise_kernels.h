// What one ISA level offers to elementwise.cc: the functions of elementwise.h.
#pragma once

#include <cstdint>

namespace kvant {

struct ElementwiseKernels {
  void (*add_to)(const float* delta, int64_t n, float* x);
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float epsilon, float* out);
  void (*silu_times)(const float* up, int64_t n, float* gate);
  void (*gelu_times)(const float* up, int64_t n, float* gate);
};

extern const ElementwiseKernels kElementwiseBaseline;
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
extern const ElementwiseKernels kElementwiseAvx2;
extern const ElementwiseKernels kElementwiseAvx512;
#endif

}  // namespace kvant
