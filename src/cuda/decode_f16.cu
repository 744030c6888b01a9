// The decode kernels of pages of f16.
#include "cuda/decode_kernels.h"

KVANT_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, f16, kF16Page)
