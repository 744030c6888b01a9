// The same source, compiled for the SIMT shim.
#include "cuda/decode_int4_int2.cu"
