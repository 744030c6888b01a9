// The decode kernels of pages of int2.
#include "cuda/decode_kernels.h"

KVANT_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, int2, kInt2Page)
