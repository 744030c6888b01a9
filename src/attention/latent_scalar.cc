// Multi-head latent attention at the scalar level. Standard headers come first: nothing shared with
// other files may be instantiated behind the anonymous namespace (see kvant_module.cmake).
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
#include "attention/vec_scalar-inl.h"
#include "attention/latent-inl.h"
// clang-format on

}  // namespace

const LatentKernels kLatentScalar = {WidenSide, AttendLatents};

}  // namespace kvant
