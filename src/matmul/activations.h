// The inputs of a matmul, [tokens][cols], in the form that the kernels read.
//
// Int8 mode rounds every group of 32 inputs of a token: scale = amax / 127 in f32, code =
// round-half-even(x / scale) clamped to +-127; a group of zeros, or one whose scale underflows to
// 0, has scale 0 and codes 0. A group with a NaN or an infinity gets a NaN scale and codes 0, so
// that the fault shows in every output instead of vanishing. The bytes are the same on every ISA.
//
// Float mode rounds nothing: packed weights are decoded and multiplied in f32, to compare against
// engines that do so. Matrices of plain floats always read the float values, in either mode.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kvant/status.h"

namespace kvant {

inline constexpr int kActivationGroup = 32;  // inputs that share an activation scale

enum class ActivationMode { kInt8, kFloat };

// 32 rounded inputs of one token and what the kernels need to know about them.
struct ActivationGroup {
  int8_t codes[kActivationGroup];
  float scale;
  int32_t sum;       // of all codes
  float scaled_sum;  // scale * float(sum)
  int32_t low_sum;   // of codes[0..15], for weights in groups of 16
};
static_assert(sizeof(ActivationGroup) == 48);

// Reused from call to call. One writer; any number of threads may read between two Set calls.
class Activations {
 public:
  Activations() = default;

  // Room for max_tokens * max_cols inputs; kInvalidArgument when either is below 1, kOutOfMemory.
  static Result<Activations> Create(int64_t max_tokens, int64_t max_cols, ActivationMode mode);

  // Takes x[tokens][cols], rows x_stride floats apart. Keeps a view of x: it must stay as it is
  // until the last matmul with these activations.
  // REQUIRES: 1 <= tokens, 1 <= cols, tokens * RoundUp(cols, 32) fits the room, x_stride >= cols.
  void Set(ThreadPool& pool, const float* x, int64_t x_stride, int64_t tokens, int64_t cols);

  ActivationMode mode() const { return mode_; }
  int64_t tokens() const { return tokens_; }
  int64_t cols() const { return cols_; }

  // Groups of token t, groups_per_token() of them. REQUIRES: mode() == kInt8.
  const ActivationGroup* groups(int64_t t) const {
    return groups_.as<ActivationGroup>() + t * groups_per_token();
  }
  int64_t groups_per_token() const { return (cols_ + kActivationGroup - 1) / kActivationGroup; }

  const float* values(int64_t t) const { return x_ + t * x_stride_; }
  int64_t values_stride() const { return x_stride_; }

 private:
  ActivationMode mode_ = ActivationMode::kInt8;
  int64_t tokens_ = 0, cols_ = 0;
  const float* x_ = nullptr;
  int64_t x_stride_ = 0;
  AlignedBuffer groups_;
};

}  // namespace kvant
