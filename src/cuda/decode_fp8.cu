// The decode kernels of pages of E4M3.
#include "cuda/decode_kernels.h"

KVANT_DECODE_KERNELS_OF(KVANT_DEFINE_DECODE_KERNEL, fp8, kFp8Page)
