// The same source, compiled for the SIMT shim.
#include "cuda/decode_tq4.cu"
