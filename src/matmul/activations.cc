#include "matmul/activations.h"

#include <cassert>
#include <string>

#include "kvant/isa.h"
#include "matmul/kernels.h"

namespace kvant {

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

void Activations::SetView(const float* x, int64_t x_stride, int64_t tokens, int64_t cols) {
  x_ = x;
  x_stride_ = x_stride;
  tokens_ = tokens;
  cols_ = cols;
  assert(mode_ == ActivationMode::kFloat ||
         sizeof(ActivationGroup) * tokens * groups_per_token() <= groups_.bytes());
}

void Activations::Quantize(int64_t t) {
  ActiveMatMulKernels().quantize(values(t), cols_,
                                 groups_.as<ActivationGroup>() + t * groups_per_token());
}

}  // namespace kvant
