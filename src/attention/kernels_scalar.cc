// The attention kernels at the scalar level. Standard headers come first: nothing shared with other
// files may be instantiated behind the anonymous namespace (see kvant_module.cmake).
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "attention/kernels.h"

namespace kvant {
namespace {

// The vectors come before what is built on them.
// clang-format off
#include "attention/vec_scalar-inl.h"
#include "attention/kernel_body-inl.h"
// clang-format on

}  // namespace

const AttentionKernels kAttentionScalar = {AttendSegment, MergeStates, FinishState,
                                           ScoresToProbabilities};

}  // namespace kvant
