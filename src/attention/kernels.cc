#include "attention/kernels.h"

namespace kvant {

const AttentionKernels& AttentionKernelsFor(Isa isa) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
  switch (isa) {
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kAvxVnni:
      return kAttentionAvxVnni;
    case Isa::kAvx512:
      return kAttentionAvx512;
    case Isa::kScalar:
    case Isa::kNeon:
      break;
  }
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
  if (isa == Isa::kNeon) return kAttentionNeon;
#endif
  (void)isa;
  return kAttentionScalar;
}

}  // namespace kvant
