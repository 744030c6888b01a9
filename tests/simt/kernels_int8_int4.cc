// The same source, compiled for the SIMT shim.
#include "cuda/decode_int8_int4.cu"
