// The decode kernels of pages of int8.
#include "cuda/decode_kernels.h"

KVANT_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, int8, kInt8Page)
