// Multi-head latent attention at the avx512 level. Standard headers come first: nothing shared with
// other files may be instantiated behind the anonymous namespace (see kvant_module.cmake).
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "attention/latent_kernels.h"

namespace kvant {
namespace {

// The vectors come before what is built on them.
// clang-format off
#include "attention/vec_avx512-inl.h"
#include "attention/latent-inl.h"
// clang-format on

}  // namespace

const LatentKernels kLatentAvx512 = {WidenSide, AttendLatents};

}  // namespace kvant
