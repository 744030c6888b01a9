// The decode kernels of pages with K of int4, V of int2.
#include "cuda/decode_kernels.h"

KVANT_COMMON_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, int4_int2, kInt4Int2Page)
