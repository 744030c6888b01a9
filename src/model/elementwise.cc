#include "model/elementwise.h"

#include "kvant/isa.h"
#include "model/elementwise_kernels.h"

namespace kvant {
namespace {

const ElementwiseKernels& Active() {
  switch (ActiveIsa()) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
    case Isa::kAvx512:
      return kElementwiseAvx512;
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return kElementwiseAvx2;
#endif
    default:
      return kElementwiseBaseline;
  }
}

}  // namespace

void AddTo(const float* delta, int64_t n, float* x) { Active().add_to(delta, n, x); }

void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  Active().rms_norm(x, weight, n, epsilon, out);
}

void SiluTimes(const float* up, int64_t n, float* gate) { Active().silu_times(up, n, gate); }

void GeluTimes(const float* up, int64_t n, float* gate) { Active().gelu_times(up, n, gate); }

void ScaleBy(float scale, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace kvant
