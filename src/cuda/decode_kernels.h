// Defines the decode kernels of one format, as kernel_table.h lists them.
#pragma once

#include "cuda/decode.h"
#include "cuda/decode_core.h"
#include "cuda/decode_mma.h"
#include "cuda/kernel_table.h"

#define KVANT_DEFINE_DECODE_KERNEL(name, page, dim, heads, Way, count) \
  KVANT_KERNEL name(kvant::cuda::DecodeArguments args) {               \
    using Codes = kvant::cuda::CodesOf<kvant::cuda::page>;             \
    kvant::cuda::DecodeRow<kvant::cuda::Way, Codes, dim, count>(args); \
  }
