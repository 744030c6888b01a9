// The kernels as the SIMT shim runs them: functions of one thread.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "cuda/arguments.h"
#include "cuda/kernel_table.h"

#define KVANT_DECLARE_KERNEL(name, page, dim, heads, Way, count) \
  extern "C" void name(kvant::cuda::DecodeArguments args);
KVANT_DECODE_KERNELS(KVANT_DECLARE_KERNEL)
#undef KVANT_DECLARE_KERNEL
#define KVANT_DECLARE_KERNEL(name, page, dim) \
  extern "C" void name(kvant::cuda::EncodeArguments args);
KVANT_ENCODE_KERNELS(KVANT_DECLARE_KERNEL)
#undef KVANT_DECLARE_KERNEL
extern "C" void kvant_merge(kvant::cuda::MergeArguments args);
extern "C" void kvant_append(kvant::cuda::AppendArguments args);
extern "C" void kvant_take_pages(kvant::cuda::FreeListArguments args);
extern "C" void kvant_give_pages(kvant::cuda::FreeListArguments args);
extern "C" void kvant_naive_scores_int4_d128(kvant::cuda::ScoreArguments args);
extern "C" void kvant_scratch_scores_int4_d128(kvant::cuda::ScoreArguments args);

namespace kvant::simt {

struct DecodeKernel {
  cuda::KernelRow row;
  void (*thread)(cuda::DecodeArguments);
};

inline constexpr DecodeKernel kDecodeKernels[] = {
#define KVANT_ROW(name, page, dim, heads, Way, count) \
  {cuda::MakeKernelRow(#name, cuda::page, dim, heads), name},
    KVANT_DECODE_KERNELS(KVANT_ROW)
#undef KVANT_ROW
};

// REQUIRES: there is one.
inline const DecodeKernel& KernelNamed(std::string_view name) {
  return *std::find_if(std::begin(kDecodeKernels), std::end(kDecodeKernels),
                       [&](const DecodeKernel& kernel) { return kernel.row.name == name; });
}

struct EncodeKernel {
  const char* name;
  cuda::PageCode page;
  int head_dim;
  void (*thread)(cuda::EncodeArguments);
};

inline constexpr EncodeKernel kEncodeKernels[] = {
#define KVANT_ROW(name, page, dim) {#name, cuda::page, dim, name},
    KVANT_ENCODE_KERNELS(KVANT_ROW)
#undef KVANT_ROW
};

}  // namespace kvant::simt
