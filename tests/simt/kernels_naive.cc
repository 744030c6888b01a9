// The same source, compiled for the SIMT shim.
#include "cuda/naive.cu"
