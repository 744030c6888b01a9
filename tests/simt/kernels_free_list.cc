// The same source, compiled for the SIMT shim.
#include "cuda/free_list.cu"
