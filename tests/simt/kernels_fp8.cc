// The same source, compiled for the SIMT shim.
#include "cuda/decode_fp8.cu"
