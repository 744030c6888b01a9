// Kernels that write pages: a token into an open one, an open one into a coded one.
#include "cuda/encode.h"
#include "cuda/kernel_table.h"

KVANT_KERNEL kvant_append(kvant::cuda::AppendArguments args) { kvant::cuda::AppendToken(args); }

#define KVANT_DEFINE_ENCODE_KERNEL(name, page, dim)            \
  KVANT_ROOMY_KERNEL name(kvant::cuda::EncodeArguments args) { \
    kvant::cuda::EncodePage<kvant::cuda::page, dim>(args);     \
  }
KVANT_ENCODE_KERNELS(KVANT_DEFINE_ENCODE_KERNEL)
