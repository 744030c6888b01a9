#include "matmul/activations.h"

#include <cassert>
#include <string>

#include "kvant/isa.h"
#include "matmul/kernels.h"

namespace kvant {
namespace {

// Below this many inputs a fork costs more than it saves.
constexpr int64_t kParallelInputs = 16384;

}  // namespace

Result<Activations> Activations::Create(int64_t max_tokens, int64_t max_cols, ActivationMode mode) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  constexpr int64_t kMax = int64_t{1} << 30;
  if (max_tokens < 1 || max_cols < 1 || max_tokens > kMax || max_cols > kMax) {
    return Status::InvalidArgument("activations of " + std::to_string(max_tokens) + " tokens and " +
                                   std::to_string(max_cols) + " columns are outside 1..2^30");
  }
  Activations a;
  a.mode_ = mode;
  if (mode == ActivationMode::kInt8) {
    a.cols_ = max_cols;  // for groups_per_token()
    const int64_t groups = max_tokens * a.groups_per_token();
    a.cols_ = 0;
    KVANT_ASSIGN_OR_RETURN(a.groups_, AlignedBuffer::Create(sizeof(ActivationGroup) * groups));
  }
  return a;
}

void Activations::Set(ThreadPool& pool, const float* x, int64_t x_stride, int64_t tokens,
                      int64_t cols) {
  x_ = x;
  x_stride_ = x_stride;
  tokens_ = tokens;
  cols_ = cols;
  if (mode_ == ActivationMode::kFloat) return;
  assert(sizeof(ActivationGroup) * tokens * groups_per_token() <= groups_.bytes());
  const MatMulKernels& kernels = ActiveMatMulKernels();
  ActivationGroup* out = groups_.as<ActivationGroup>();
  const auto quantize = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernels.quantize(x + t * x_stride, cols, out + t * groups_per_token());
    }
  };
  if (tokens * cols < kParallelInputs) {
    quantize(0, tokens);
  } else {
    pool.ParallelFor(tokens, quantize);
  }
}

}  // namespace kvant
