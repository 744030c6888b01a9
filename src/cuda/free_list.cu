// Kernels of the pool's free pages.
#include "cuda/free_list.h"

KVANT_KERNEL kvant_take_pages(kvant::cuda::FreeListArguments args) {
  kvant::cuda::MovePages(args, true);
}
KVANT_KERNEL kvant_give_pages(kvant::cuda::FreeListArguments args) {
  kvant::cuda::MovePages(args, false);
}
