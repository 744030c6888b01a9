// The decode kernels of pages with K of int8, V of int4.
#include "cuda/decode_kernels.h"

KVANT_COMMON_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, int8_int4, kInt8Int4Page)
