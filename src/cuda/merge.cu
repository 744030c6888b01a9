// The kernel that joins what the decode kernels leave.
#include "cuda/merge.h"

KVANT_KERNEL kvant_merge(kvant::cuda::MergeArguments args) { kvant::cuda::MergeHead(args); }
