#include "model/elementwise_kernels.h"

namespace kvant {
namespace {

#include "model/elementwise-inl.h"

}  // namespace

const ElementwiseKernels kElementwiseAvx2 = {AddTo, RmsNorm, SiluTimes, GeluTimes};

}  // namespace kvant
