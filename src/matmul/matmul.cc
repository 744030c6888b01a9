#include "matmul/matmul.h"

#include <algorithm>
#include <cassert>

#include "kvant/isa.h"
#include "matmul/kernels.h"

namespace kvant {
namespace {

// Activations that one pass over the weights works on: they stay in the second-level cache while
// every row block meets them.
constexpr int64_t kTokenBlockBytes = 512 * 1024;
constexpr int64_t kTokenMultiple = 4;  // the tallest register tile

bool UsesInt8(const PackedMatrix& weights, const Activations& inputs) {
  return weights.is_grouped() && inputs.mode() == ActivationMode::kInt8;
}

MatMulJob MakeJob(const PackedMatrix& weights, const Activations& inputs) {
  MatMulJob job = {};
  job.block_bytes = weights.block_bytes();
  job.cols = weights.cols();
  if (weights.is_grouped()) {
    job.four_bits = weights.stored_bits() == 4;
    job.group16 = weights.spec().group == 16;
    job.has_offset = weights.spec().has_offset;
    job.half_scales = weights.half_scales();
    job.zero = weights.spec().zero;
  } else {
    job.storage = weights.float_storage();
  }
  job.groups_stride = inputs.groups_per_token();
  job.values_stride = inputs.values_stride();
  return job;
}

// The inputs that a matrix meets: every step-th from the first.
struct Tokens {
  int64_t first = 0, step = 1, count = 0;
};

// Tokens of one pass: as few passes as the cache allows, of about the same size.
int64_t TokenBlock(const PackedMatrix& weights, const Activations& inputs, int64_t tokens) {
  const int64_t token_bytes =
      UsesInt8(weights, inputs)
          ? inputs.groups_per_token() * static_cast<int64_t>(sizeof(ActivationGroup))
          : inputs.cols() * static_cast<int64_t>(sizeof(float));
  const int64_t fit = std::max(kTokenBlockBytes / token_bytes, kTokenMultiple);
  const int64_t passes = (tokens + fit - 1) / fit;
  const int64_t even = (tokens + passes - 1) / passes;
  return (even + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple;
}

// Row blocks [first, last) of one matrix.
void RunBlocks(const MatMulKernels& kernels, const PackedMatrix& weights, const Activations& inputs,
               const Tokens& tokens, const MatMulOutput& out, int64_t first, int64_t last) {
  const bool int8 = UsesInt8(weights, inputs);
  const auto kernel = int8                   ? kernels.int8_grouped
                      : weights.is_grouped() ? kernels.float_grouped
                                             : kernels.plain;
  MatMulJob job = MakeJob(weights, inputs);
  job.weights = weights.block(first);
  job.rows = std::min(last * kRowBlock, weights.rows()) - first * kRowBlock;
  job.out_stride = out.stride;
  job.groups_stride *= tokens.step;
  job.values_stride *= tokens.step;
  const int64_t token_block = TokenBlock(weights, inputs, tokens.count);
  for (int64_t t = 0; t < tokens.count; t += token_block) {
    job.tokens = std::min(token_block, tokens.count - t);
    const int64_t at = tokens.first + t * tokens.step;
    if (int8) job.groups = inputs.groups(at);
    job.values = inputs.values(at);
    job.out = out.data + t * out.stride + first * kRowBlock;
    kernel(job);
  }
}

// tokens_of(m): what matrix m meets.
template <typename TokensOf>
void RunMatrices(ThreadPool& pool, std::span<const PackedMatrix* const> weights,
                 const Activations& inputs, std::span<const MatMulOutput> outs,
                 const TokensOf& tokens_of) {
  assert(weights.size() == outs.size());
  int64_t total_bytes = 0;
  for (size_t m = 0; m < weights.size(); ++m) {
    assert(weights[m]->cols() == inputs.cols() && outs[m].stride >= weights[m]->rows());
    total_bytes += weights[m]->packed_bytes();
  }
  const MatMulKernels& kernels = ActiveMatMulKernels();
  const int threads = pool.threads();
  // Threads share the bytes of all matrices evenly, in whole row blocks: bytes are what decode
  // waits for, and within a matrix they are proportional to the arithmetic too.
  pool.Run([&](int index) {
    const int64_t begin = total_bytes / threads * index;
    const int64_t end = index + 1 == threads ? total_bytes : total_bytes / threads * (index + 1);
    int64_t start = 0;  // of matrix m in the bytes of all
    for (size_t m = 0; m < weights.size(); ++m) {
      const int64_t bytes = weights[m]->block_bytes(), blocks = weights[m]->blocks();
      const auto block_at = [&](int64_t at) {  // the first block that begins at or after `at`
        return at <= start ? 0 : std::min((at - start + bytes - 1) / bytes, blocks);
      };
      const int64_t first = block_at(begin), last = block_at(end);
      if (first < last) {
        RunBlocks(kernels, *weights[m], inputs, tokens_of(m), outs[m], first, last);
      }
      start += weights[m]->packed_bytes();
    }
  });
}

}  // namespace

const MatMulKernels& ActiveMatMulKernels() {
  switch (ActiveIsa()) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
    case Isa::kAvx512:
      return kMatMulAvx512;
    case Isa::kAvxVnni:
      return kMatMulAvxVnni;
    case Isa::kAvx2:
      return kMatMulAvx2;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
    case Isa::kNeon:
      return kMatMulNeon;
#endif
    default:
      return kMatMulScalar;
  }
}

void MatMul(ThreadPool& pool, const PackedMatrix& weights, const Activations& inputs, float* out,
            int64_t out_stride) {
  const PackedMatrix* const matrices[] = {&weights};
  const MatMulOutput outs[] = {{out, out_stride}};
  MatMulMany(pool, matrices, inputs, outs);
}

void MatMulMany(ThreadPool& pool, std::span<const PackedMatrix* const> weights,
                const Activations& inputs, std::span<const MatMulOutput> outs) {
  RunMatrices(pool, weights, inputs, outs,
              [&](size_t) { return Tokens{.count = inputs.tokens()}; });
}

void MatMulEach(ThreadPool& pool, std::span<const PackedMatrix* const> weights,
                const Activations& inputs, std::span<const MatMulOutput> outs) {
  const auto n = static_cast<int64_t>(weights.size());
  assert(inputs.tokens() % n == 0);
  RunMatrices(pool, weights, inputs, outs, [&](size_t m) {
    return Tokens{.first = static_cast<int64_t>(m), .step = n, .count = inputs.tokens() / n};
  });
}

}  // namespace kvant
