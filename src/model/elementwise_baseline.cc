// What every CPU of the architecture can do: SSE2 on x86-64, Advanced SIMD on aarch64.
#include "model/elementwise_kernels.h"

namespace kvant {
namespace {

#include "model/elementwise-inl.h"

}  // namespace

const ElementwiseKernels kElementwiseBaseline = {AddTo, RmsNorm, SiluTimes, GeluTimes};

}  // namespace kvant
