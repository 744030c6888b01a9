// The same source, compiled for the SIMT shim.
#include "cuda/encode.cu"
