// The decode kernels of pages of a codebook of 16 levels.
#include "cuda/decode_kernels.h"

KVANT_COMMON_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, tq4, kTq4Page)
