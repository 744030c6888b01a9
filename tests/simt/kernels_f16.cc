// The same source, compiled for the SIMT shim.
#include "cuda/decode_f16.cu"
