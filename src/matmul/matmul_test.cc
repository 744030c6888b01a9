#include "matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kvant/isa.h"
#include "matmul/matmul_testing.h"

namespace kvant {
namespace {

using matmul_testing::GroupedTruth;
using matmul_testing::kSpecs;
using matmul_testing::MakePool;
using matmul_testing::NamedSpec;
using matmul_testing::RandomFloats;
using matmul_testing::RandomGrouped;

constexpr double kEpsilon = 0x1p-24;  // half an ulp of f32, relative

// Roundings that meet one product of the float kernels: cols / 4 in its sum, rounded up, two where
// the four sums join, one of the decoded weight.
constexpr double FloatTerms(int64_t cols) { return static_cast<double>(cols / 4 + 1 + 3); }

constexpr float kGuard = -12345.5f;

class MatMulTest : public testing::Test {
 protected:
  ~MatMulTest() override { EXPECT_TRUE(SetActiveIsa(before_).ok()); }

  // [tokens][rows], through an output with guard floats around every row.
  std::vector<float> Multiply(const PackedMatrix& w, const std::vector<float>& x, int64_t tokens,
                              ActivationMode mode, int threads = 1) {
    const auto pool = MakePool(threads);
    auto a = Activations::Create(tokens, w.cols(), mode);
    EXPECT_TRUE(a.ok());
    a->Set(*pool, x.data(), w.cols(), tokens, w.cols());
    const int64_t stride = w.rows() + 5;
    std::vector<float> guarded(tokens * stride + 5, kGuard);
    MatMul(*pool, w, *a, guarded.data() + 5, stride);
    std::vector<float> out;
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = guarded.data() + t * stride;
      EXPECT_TRUE(std::all_of(row, row + 5, [](float v) { return v == kGuard; })) << t;
      out.insert(out.end(), row + 5, row + stride);
    }
    EXPECT_TRUE(std::all_of(guarded.end() - 5, guarded.end(), [](float v) { return v == kGuard; }));
    return out;
  }

  const Isa before_ = ActiveIsa();
};

PackedMatrix Pack(const GroupedTruth& truth) {
  auto m = PackedMatrix::CreateGrouped(truth.rows, truth.cols, truth.spec, truth.Source());
  EXPECT_TRUE(m.ok()) << m.status().message();
  return std::move(m).value();
}

PackedMatrix PackFloats(int64_t rows, int64_t cols, const std::vector<float>& values) {
  auto m = PackedMatrix::CreateFloat(rows, cols, [&](int64_t row, float* out) {
    std::copy_n(values.data() + row * cols, cols, out);
    return Status();
  });
  EXPECT_TRUE(m.ok());
  return std::move(m).value();
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Against f64 sums over the stored codes. Each group adds one or two roundings of the running sum
// and at most two of its own term, so the error is below (terms + 3) * eps * sum of |terms|.
TEST_F(MatMulTest, Int8MatchesF64OverTheStoredCodes) {
  for (const NamedSpec& named : kSpecs) {
    for (const bool half : {true, false}) {
      SCOPED_TRACE(named.name);
      const int64_t rows = 19, cols = 192, tokens = 3;
      const GroupedTruth truth = RandomGrouped(rows, cols, named.spec, half, 1);
      const std::vector<float> x = RandomFloats(tokens * cols, 2);
      const auto pool = MakePool(1);
      auto a = Activations::Create(tokens, cols, ActivationMode::kInt8);
      ASSERT_TRUE(a.ok());
      a->Set(*pool, x.data(), cols, tokens, cols);
      const auto out = Multiply(Pack(truth), x, tokens, ActivationMode::kInt8);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) {
          double sum = 0, magnitude = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const ActivationGroup& g = a->groups(t)[c / 32];
            const int64_t at = row * truth.groups() + c / named.spec.group;
            const double input = static_cast<double>(g.scale) * g.codes[c % 32];
            sum += truth.Value(row, c) * input;
            // The offset and the scaled code are added apart, so their magnitudes count apart.
            const int code = truth.codes[row * cols + c] - named.spec.zero;
            magnitude += std::abs(static_cast<double>(truth.scales[at]) * code * input);
            if (named.spec.has_offset) magnitude += std::abs(truth.offsets[at] * input);
          }
          const double terms = static_cast<double>(2 * truth.groups() + 3);
          EXPECT_NEAR(out[t * rows + row], sum, terms * kEpsilon * magnitude);
        }
      }
    }
  }
}

// What rounding the inputs costs is bounded by half a step of each group, a step being at most
// 17/16 of amax / 127.
TEST_F(MatMulTest, Int8StaysWithinHalfAStepOfTheExactProduct) {
  const int64_t rows = 33, cols = 576;
  const GroupedTruth truth = RandomGrouped(rows, cols, {4, 32, 0, true}, true, 3);
  const std::vector<float> x = RandomFloats(cols, 4);
  const auto out = Multiply(Pack(truth), x, 1, ActivationMode::kInt8);
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, bound = 0;
    for (int64_t g = 0; g < cols / 32; ++g) {
      double amax = 0, weights = 0;
      for (int64_t c = g * 32; c < g * 32 + 32; ++c) {
        sum += truth.Value(row, c) * x[c];
        amax = std::max(amax, std::abs(static_cast<double>(x[c])));
        weights += std::abs(truth.Value(row, c));
      }
      bound += weights * amax / 127 * 17 / 16 * 0.5001;
    }
    EXPECT_NEAR(out[row], sum, bound + 1e-4);
  }
}

TEST_F(MatMulTest, FloatActivationsMatchF64OverTheDecodedValues) {
  for (const NamedSpec& named : kSpecs) {
    for (const bool half : {true, false}) {
      SCOPED_TRACE(named.name);
      const int64_t rows = 19, cols = 96, tokens = 6;
      const GroupedTruth truth = RandomGrouped(rows, cols, named.spec, half, 5);
      const std::vector<float> x = RandomFloats(tokens * cols, 6);
      const auto out = Multiply(Pack(truth), x, tokens, ActivationMode::kFloat);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) {
          double sum = 0, magnitude = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const double term = truth.Value(row, c) * x[t * cols + c];
            sum += term;
            magnitude += std::abs(term);
          }
          EXPECT_NEAR(out[t * rows + row], sum, FloatTerms(cols) * kEpsilon * magnitude);
        }
      }
    }
  }
}

TEST_F(MatMulTest, FloatWeightsMatchF64InEveryStorage) {
  for (const int64_t cols : {1, 2, 3, 4, 7, 64, 97}) {
    for (const FloatStorage storage :
         {FloatStorage::kF32, FloatStorage::kF16, FloatStorage::kBf16}) {
      const int64_t rows = 18, tokens = 5;
      std::vector<float> w = RandomFloats(rows * cols, 7);
      for (float& v : w) {
        if (storage == FloatStorage::kF16) v = F16ToF32(F32ToF16(v));
        if (storage == FloatStorage::kBf16) v = Bf16ToF32(F32ToBf16(v * 1e-12f));
      }
      const std::vector<float> x = RandomFloats(tokens * cols, 8);
      const PackedMatrix m = PackFloats(rows, cols, w);
      ASSERT_EQ(m.float_storage(), storage);
      // Plain weights read the float values in either mode.
      const auto out = Multiply(m, x, tokens, ActivationMode::kFloat);
      EXPECT_TRUE(SameBits(out, Multiply(m, x, tokens, ActivationMode::kInt8)));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) {
          double sum = 0, magnitude = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const double term = static_cast<double>(w[row * cols + c]) * x[t * cols + c];
            sum += term;
            magnitude += std::abs(term);
          }
          EXPECT_NEAR(out[t * rows + row], sum, FloatTerms(cols) * kEpsilon * magnitude);
        }
      }
    }
  }
}

// The promise of matmul.h. Scalar on one thread, one token at a time, is the truth.
class SameBitsTest : public MatMulTest {
 protected:
  void Check(const PackedMatrix& m, ActivationMode mode,
             const std::vector<int64_t>& batches = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
    const int64_t most = batches.back();
    const std::vector<float> x = RandomFloats(most * m.cols(), 9);
    ASSERT_TRUE(SetActiveIsa(Isa::kScalar).ok());
    std::vector<float> truth;
    for (int64_t t = 0; t < most; ++t) {
      const std::vector<float> one(x.begin() + t * m.cols(), x.begin() + (t + 1) * m.cols());
      const auto out = Multiply(m, one, 1, mode);
      truth.insert(truth.end(), out.begin(), out.end());
    }
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      for (const int64_t tokens : batches) {
        for (const int threads : {1, 2, 3}) {
          const std::vector<float> expected(truth.begin(), truth.begin() + tokens * m.rows());
          EXPECT_TRUE(SameBits(Multiply(m, x, tokens, mode, threads), expected))
              << IsaName(isa) << " tokens " << tokens << " threads " << threads;
        }
      }
    }
  }
};

TEST_F(SameBitsTest, GroupedWeightsForEveryIsaBatchAndThreadCount) {
  for (const NamedSpec& named : kSpecs) {
    for (const bool half : {true, false}) {
      SCOPED_TRACE(named.name);
      // An odd number of groups: with groups of 16, the last activation group is half empty.
      const int64_t cols = named.spec.group * 5;
      const PackedMatrix m = Pack(RandomGrouped(49, cols, named.spec, half, 10));
      Check(m, ActivationMode::kInt8);
      Check(m, ActivationMode::kFloat);
    }
  }
}

TEST_F(SameBitsTest, FloatWeightsForEveryIsaBatchAndThreadCount) {
  std::vector<float> w = RandomFloats(49 * 67, 11);
  Check(PackFloats(49, 67, w), ActivationMode::kFloat);
  for (float& v : w) v = F16ToF32(F32ToF16(v));
  Check(PackFloats(49, 67, w), ActivationMode::kFloat);
  for (float& v : w) v = Bf16ToF32(F32ToBf16(v * 1e-12f));
  Check(PackFloats(49, 67, w), ActivationMode::kFloat);
}

TEST_F(SameBitsTest, RowCountsAroundABlock) {
  for (const int64_t rows : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 192}) {
    SCOPED_TRACE(rows);
    Check(Pack(RandomGrouped(rows, 64, {4, 32, 0, true}, true, 12)), ActivationMode::kInt8);
  }
}

// Where products of scales are looked up: from 128 tokens on, 1,024 inputs at a time, two row
// blocks at a time. Sums go on across the seams, whole tiles or not.
TEST_F(SameBitsTest, TallBatchesOfLongRows) {
  for (const NamedSpec& named : kSpecs) {
    SCOPED_TRACE(named.name);
    Check(Pack(RandomGrouped(41, 1120, named.spec, true, 26)), ActivationMode::kInt8, {128, 131});
  }
}

// Scales so small that their products are not normal numbers, and the zero of an idle group.
TEST_F(SameBitsTest, TinyAndZeroScalesInTallBatches) {
  GroupedTruth truth = RandomGrouped(32, 64, {4, 32, 8, false}, true, 27);
  for (float& s : truth.scales) s = std::copysign(0x1p-24f, s);
  truth.scales[5] = 0.0f;
  const PackedMatrix m = Pack(truth);
  ASSERT_TRUE(m.half_scales());
  const int64_t tokens = 128;
  std::vector<float> x = RandomFloats(tokens * 64, 28);
  for (int64_t i = 0; i < tokens * 64; ++i)
    x[i] = std::ldexp(x[i], -static_cast<int>(i / 64) / 2 - 56);
  std::fill_n(x.begin() + 3 * 64, 32, 0.0f);
  x[9 * 64] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(SetActiveIsa(Isa::kScalar).ok());
  const auto expected = Multiply(m, x, tokens, ActivationMode::kInt8);
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    const auto out = Multiply(m, x, tokens, ActivationMode::kInt8);
    for (size_t i = 0; i < out.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(out[i])) continue;
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[i])) << i;
    }
  }
}

// More tokens than one pass of activations holds in the cache.
TEST_F(SameBitsTest, TokensBeyondOnePassOverTheWeights) {
  const int64_t cols = 4096, tokens = 180;
  const PackedMatrix m = Pack(RandomGrouped(17, cols, {8, 32, 128, false}, true, 13));
  const std::vector<float> x = RandomFloats(tokens * cols, 14);
  for (const ActivationMode mode : {ActivationMode::kInt8, ActivationMode::kFloat}) {
    const auto all = Multiply(m, x, tokens, mode, 2);
    for (const int64_t t : {int64_t{0}, int64_t{31}, int64_t{32}, int64_t{80}, tokens - 1}) {
      const std::vector<float> one(x.begin() + t * cols, x.begin() + (t + 1) * cols);
      const std::vector<float> row(all.begin() + t * 17, all.begin() + (t + 1) * 17);
      EXPECT_TRUE(SameBits(Multiply(m, one, 1, mode), row)) << t;
    }
  }
}

// 255 * 127 twice overflows the 16-bit pairs of AVX2, and 32 inputs of it 8 such pairs.
TEST_F(MatMulTest, LargestCodesDoNotSaturateOnAnyIsa) {
  for (const NamedSpec& named : kSpecs) {
    GroupedTruth truth = RandomGrouped(16, 64, named.spec, true, 15);
    const int top = (1 << named.spec.bits) - 1;
    std::fill(truth.codes.begin(), truth.codes.end(), static_cast<uint8_t>(top));
    std::fill(truth.scales.begin(), truth.scales.end(), 1.0f);
    std::fill(truth.offsets.begin(), truth.offsets.end(), 0.0f);
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(64, sign * 127.0f);
      for (const Isa isa : AvailableIsas()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        const auto out = Multiply(Pack(truth), x, 1, ActivationMode::kInt8);
        for (const float v : out) {
          EXPECT_EQ(v, sign * 64.0f * 127.0f * static_cast<float>(top - named.spec.zero))
              << named.name << " " << IsaName(isa);
        }
      }
    }
  }
}

TEST_F(MatMulTest, ZeroInputsGiveZeroAndHugeOnesStayFinite) {
  const GroupedTruth truth = RandomGrouped(17, 64, {4, 32, 0, true}, true, 16);
  const PackedMatrix m = Pack(truth);
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const ActivationMode mode : {ActivationMode::kInt8, ActivationMode::kFloat}) {
      for (const float v : Multiply(m, std::vector<float>(64, 0.0f), 1, mode)) EXPECT_EQ(v, 0.0f);
      for (const float v : Multiply(m, std::vector<float>(64, 1e35f), 1, mode)) {
        EXPECT_TRUE(std::isfinite(v)) << IsaName(isa);
        EXPECT_NE(v, 0.0f);
      }
    }
  }
}

TEST_F(MatMulTest, NanInOneTokenReachesEveryOutputOfThatTokenOnly) {
  const PackedMatrix m = Pack(RandomGrouped(17, 64, {8, 32, 128, false}, true, 17));
  std::vector<float> x = RandomFloats(3 * 64, 18);
  x[64 + 5] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const ActivationMode mode : {ActivationMode::kInt8, ActivationMode::kFloat}) {
      const auto out = Multiply(m, x, 3, mode);
      for (int64_t i = 0; i < 3 * 17; ++i) EXPECT_EQ(std::isnan(out[i]), i / 17 == 1) << i;
    }
  }
}

// Whatever memory held before, and whatever lies between the rows of x, reaches no output.
TEST_F(MatMulTest, PoisonInPaddingReachesNoOutput) {
  const int64_t rows = 17, tokens = 3;
  const auto pool = MakePool(1);
  const auto run = [&](const GroupedTruth& truth, ActivationMode mode, int64_t stride) {
    std::vector<float> x(tokens * stride, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> values = RandomFloats(tokens * truth.cols, 24);
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(values.data() + t * truth.cols, truth.cols, x.data() + t * stride);
    }
    const PackedMatrix m = Pack(truth);
    auto a = Activations::Create(tokens, truth.cols, mode);
    EXPECT_TRUE(a.ok());
    a->Set(*pool, x.data(), stride, tokens, truth.cols);
    std::vector<float> out(tokens * rows);
    MatMul(*pool, m, *a, out.data(), rows);
    return out;
  };
  for (const NamedSpec& named : kSpecs) {
    const GroupedTruth truth = RandomGrouped(rows, named.spec.group * 3, named.spec, true, 25);
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      for (const ActivationMode mode : {ActivationMode::kInt8, ActivationMode::kFloat}) {
        const auto expected = run(truth, mode, truth.cols);
        const AllocateFn before = g_allocate;
        g_allocate = [](size_t alignment, size_t bytes) -> void* {
          void* p = std::aligned_alloc(alignment, bytes);
          return p == nullptr ? p : std::memset(p, 0xff, bytes);
        };
        const auto poisoned = run(truth, mode, truth.cols + 32);
        g_allocate = before;
        EXPECT_TRUE(SameBits(poisoned, expected)) << named.name << " " << IsaName(isa);
      }
    }
  }
}

TEST_F(MatMulTest, ManyMatricesInOneCallMatchOneAtATime) {
  const int64_t cols = 96;
  const PackedMatrix matrices[] = {
      Pack(RandomGrouped(100, cols, {4, 32, 0, true}, true, 19)),
      Pack(RandomGrouped(3, cols, {6, 16, 32, false}, false, 20)),
      PackFloats(40, cols, RandomFloats(40 * cols, 21)),
      Pack(RandomGrouped(17, cols, {8, 32, 128, false}, true, 22)),
  };
  for (const int64_t tokens : {1, 5}) {
    const std::vector<float> x = RandomFloats(tokens * cols, 23);
    for (const int threads : {1, 2, 3, 7}) {
      const auto pool = MakePool(threads);
      auto a = Activations::Create(tokens, cols, ActivationMode::kInt8);
      ASSERT_TRUE(a.ok());
      a->Set(*pool, x.data(), cols, tokens, cols);
      std::vector<std::vector<float>> outs;
      std::vector<const PackedMatrix*> weights;
      std::vector<MatMulOutput> outputs;
      for (const PackedMatrix& m : matrices) outs.emplace_back(tokens * m.rows(), kGuard);
      for (size_t i = 0; i < outs.size(); ++i) {
        weights.push_back(&matrices[i]);
        outputs.push_back({outs[i].data(), matrices[i].rows()});
      }
      MatMulMany(*pool, weights, *a, outputs);
      for (size_t i = 0; i < outs.size(); ++i) {
        EXPECT_TRUE(SameBits(outs[i], Multiply(matrices[i], x, tokens, ActivationMode::kInt8)))
            << "matrix " << i << " threads " << threads;
      }
    }
  }
}

// 3 heads' inputs one after another, in every mode: head h meets matrix h alone.
TEST_F(MatMulTest, MatricesOfHeadsMeetTheirOwnInputs) {
  const int64_t cols = 64;
  const PackedMatrix matrices[] = {
      Pack(RandomGrouped(40, cols, {4, 32, 0, true}, true, 31)),
      PackFloats(40, cols, RandomFloats(40 * cols, 32)),
      Pack(RandomGrouped(40, cols, {8, 32, 128, false}, true, 33)),
  };
  const int64_t heads = std::ssize(matrices), rows = matrices[0].rows();
  for (const int64_t tokens : {1, 5, 600}) {  // the last: more than one pass
    const std::vector<float> x = RandomFloats(tokens * heads * cols, 34);
    for (const ActivationMode mode : {ActivationMode::kInt8, ActivationMode::kFloat}) {
      const auto pool = MakePool(3);
      auto a = Activations::Create(tokens * heads, cols, mode);
      ASSERT_TRUE(a.ok());
      a->Set(*pool, x.data(), cols, tokens * heads, cols);
      std::vector<float> out(tokens * heads * rows, kGuard);
      std::vector<const PackedMatrix*> weights;
      std::vector<MatMulOutput> outputs;
      for (int64_t h = 0; h < heads; ++h) {
        weights.push_back(&matrices[h]);
        outputs.push_back({out.data() + h * rows, heads * rows});
      }
      MatMulEach(*pool, weights, *a, outputs);
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<float> own, got;
        for (int64_t t = 0; t < tokens; ++t) {
          const auto at = x.begin() + (t * heads + h) * cols;
          own.insert(own.end(), at, at + cols);
          const auto result = out.begin() + (t * heads + h) * rows;
          got.insert(got.end(), result, result + rows);
        }
        EXPECT_TRUE(SameBits(got, Multiply(matrices[h], own, tokens, mode)))
            << "head " << h << " tokens " << tokens;
      }
    }
  }
}

TEST(MatMulIsa, AvxVnniRunsWhereTheCpuHasIt) {
  if (!IsaAvailable(Isa::kAvxVnni)) GTEST_SKIP() << "this CPU has no AVX-VNNI; compiled, not run";
  EXPECT_TRUE(SetActiveIsa(Isa::kAvxVnni).ok());
}

}  // namespace
}  // namespace kvant
