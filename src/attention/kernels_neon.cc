// The attention kernels at the neon level. Standard headers come first: nothing shared with other
// files may be instantiated behind the anonymous namespace (see kvant_module.cmake).
#include <arm_neon.h>

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
#include "attention/vec_neon-inl.h"
#include "attention/kernel_body-inl.h"
// clang-format on

}  // namespace

const AttentionKernels kAttentionNeon = {AttendSegment, MergeStates, FinishState,
                                         ScoresToProbabilities};

}  // namespace kvant
