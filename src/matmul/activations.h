// The inputs of a matmul, [tokens][cols], in the form that the kernels read.
//
// Int8 mode rounds every group of 32 inputs of a token: scale = amax / 127 in f32, then up to the
// next 1.mmmm * 2^e, and code = round-half-even(x * (1 / scale)), so that codes lie within +-127. A
// group of zeros, or one whose scale is not a normal number, has scale 0 and codes 0. A group with
// a NaN or an infinity gets a NaN scale and codes 0, so that the fault shows in every output
// instead of vanishing. The bytes are the same on every ISA. Scales of 5 significant bits make the
// steps 3 % wider on average, and let kernels look scale products up (scale_table-inl.h).
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

inline constexpr int kScaleMantissaBits = 4;  // of the scale of such a group, below the leading 1
inline constexpr int kScaleMantissas = 1 << kScaleMantissaBits;

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
  void Set(ThreadPool& pool, const float* x, int64_t x_stride, int64_t tokens, int64_t cols) {
    Set(pool, x, x_stride, tokens, cols, [](int64_t) {});
  }

  // The same, and calls fill(t) for every token just before its inputs are read, on the thread that
  // reads them: what computes them needs no fork of its own, and leaves them in the cache.
  template <typename Fill>
  void Set(ThreadPool& pool, const float* x, int64_t x_stride, int64_t tokens, int64_t cols,
           const Fill& fill) {
    SetView(x, x_stride, tokens, cols);
    const auto take = [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        fill(t);
        if (mode_ == ActivationMode::kInt8) Quantize(t);
      }
    };
    if (tokens * cols < kParallelInputs) {
      take(0, tokens);
    } else {
      pool.ParallelFor(tokens, take);
    }
  }

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
  // Below this many inputs a fork costs more than it saves.
  static constexpr int64_t kParallelInputs = 8192;

  void SetView(const float* x, int64_t x_stride, int64_t tokens, int64_t cols);
  void Quantize(int64_t t);

  ActivationMode mode_ = ActivationMode::kInt8;
  int64_t tokens_ = 0, cols_ = 0;
  const float* x_ = nullptr;
  int64_t x_stride_ = 0;
  AlignedBuffer groups_;
};

}  // namespace kvant
