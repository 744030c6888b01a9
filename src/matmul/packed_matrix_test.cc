#include "matmul/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "matmul/matmul_testing.h"

namespace kvant {
namespace {

using matmul_testing::GroupedTruth;
using matmul_testing::kSpecs;
using matmul_testing::MakePool;
using matmul_testing::NamedSpec;
using matmul_testing::RandomFloats;
using matmul_testing::RandomGrouped;

TEST(PackedMatrix, EveryCodeComesBackFromItsRowAndColumn) {
  for (const NamedSpec& named : kSpecs) {
    for (const bool half : {true, false}) {
      for (const int64_t rows : {1, 15, 16, 17, 40}) {
        SCOPED_TRACE(std::string(named.name) + " rows " + std::to_string(rows));
        const int64_t cols = named.spec.group * 3;
        const GroupedTruth truth = RandomGrouped(rows, cols, named.spec, half, 1);
        const auto m = PackedMatrix::CreateGrouped(rows, cols, named.spec, truth.Source());
        ASSERT_TRUE(m.ok()) << m.status().message();
        EXPECT_EQ(m->half_scales(), half);
        std::vector<float> decoded(cols);
        for (int64_t row = 0; row < rows; ++row) {
          m->DecodeRow(row, decoded.data());
          for (int64_t c = 0; c < cols; ++c) {
            // One rounding to f32 of a value that is exact in f64.
            ASSERT_EQ(decoded[c], static_cast<float>(truth.Value(row, c))) << row << "," << c;
          }
        }
      }
    }
  }
}

TEST(PackedMatrix, BytesAreCodesAndNumbersOfWholeRowBlocksAndNothingElse) {
  const GroupedTruth q4_1 = RandomGrouped(17, 64, {4, 32, 0, true}, true, 2);
  const auto half = PackedMatrix::CreateGrouped(17, 64, q4_1.spec, q4_1.Source());
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(half->packed_bytes(), 32 * (64 / 2 + 2 * 4));  // 32 padded rows, 2 groups
  const GroupedTruth q6 = RandomGrouped(17, 64, {6, 16, 32, false}, false, 2);
  const auto full = PackedMatrix::CreateGrouped(17, 64, q6.spec, q6.Source());
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->packed_bytes(), 32 * (64 + 4 * 4));
}

// The layout is a contract: these are the bytes that packed_matrix.h describes.
TEST(PackedMatrix, FourBitUnitHoldsTheEarlierQuadInTheLowNibbles) {
  GroupedTruth truth = RandomGrouped(16, 32, {4, 32, 0, true}, true, 3);
  const auto m = PackedMatrix::CreateGrouped(16, 32, truth.spec, truth.Source());
  ASSERT_TRUE(m.ok());
  const uint8_t* group = m->block(0);
  for (int lane = 0; lane < 16; ++lane) {
    uint16_t scale, offset;
    std::memcpy(&scale, group + 2 * lane, 2);
    std::memcpy(&offset, group + 32 + 2 * lane, 2);
    EXPECT_EQ(F16ToF32(scale), truth.scales[lane]);
    EXPECT_EQ(F16ToF32(offset), truth.offsets[lane]);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = group[64 + i / 8 * 64 + lane * 4 + i % 4];
      EXPECT_EQ(i % 8 < 4 ? byte & 15 : byte >> 4, truth.codes[lane * 32 + i]);
    }
  }
}

TEST(PackedMatrix, OneScaleOutsideF16MovesTheMatrixToF32WithoutLoss) {
  GroupedTruth truth = RandomGrouped(33, 64, {8, 32, 128, false}, true, 4);
  truth.scales.back() = 1.0f / 3.0f;
  const auto m = PackedMatrix::CreateGrouped(33, 64, truth.spec, truth.Source(), MakePool(3).get());
  ASSERT_TRUE(m.ok());
  EXPECT_FALSE(m->half_scales());
  std::vector<float> decoded(64);
  m->DecodeRow(32, decoded.data());
  EXPECT_EQ(decoded[63], static_cast<float>(truth.Value(32, 63)));
}

TEST(PackedMatrix, ThreadsDoNotChangeTheBytes) {
  const GroupedTruth truth = RandomGrouped(77, 96, {5, 32, 0, true}, false, 5);
  const auto one = PackedMatrix::CreateGrouped(77, 96, truth.spec, truth.Source());
  const auto three =
      PackedMatrix::CreateGrouped(77, 96, truth.spec, truth.Source(), MakePool(3).get());
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_TRUE(std::equal(one->block(0), one->block(0) + one->packed_bytes(), three->block(0)));
}

TEST(PackedMatrix, ColumnsThatAreNotWholeGroupsAreRefusedByNumber) {
  const auto m = PackedMatrix::CreateGrouped(16, 40, {4, 32, 8, false},
                                             [](int64_t, const GroupedRow&) { return Status(); });
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(m.status().message().find("40"), std::string::npos);
}

TEST(PackedMatrix, ImpossibleSpecsAndSizesAreRefused) {
  const auto source = [](int64_t, const GroupedRow&) { return Status(); };
  const auto code = [&](int64_t rows, int64_t cols, const GroupedSpec& spec) {
    return PackedMatrix::CreateGrouped(rows, cols, spec, source).status().code();
  };
  EXPECT_EQ(code(0, 32, {4, 32, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 0, {4, 32, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, -32, {4, 32, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 32, {0, 32, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 32, {9, 32, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 64, {4, 64, 0, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 32, {4, 32, 8, true}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 32, {4, 32, 256, false}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 32, {4, 32, -1, false}), StatusCode::kInvalidArgument);
}

TEST(PackedMatrix, CodesBeyondTheBitsAndNumbersThatAreNotFiniteAreCorrupt) {
  GroupedTruth truth = RandomGrouped(20, 32, {4, 32, 0, true}, true, 6);
  const auto status = [&] {
    return PackedMatrix::CreateGrouped(20, 32, truth.spec, truth.Source()).status();
  };
  truth.codes[18 * 32 + 7] = 16;
  EXPECT_EQ(status().code(), StatusCode::kCorrupt);
  EXPECT_NE(status().message().find("row 18"), std::string::npos) << status().message();
  truth.codes[18 * 32 + 7] = 0;
  truth.scales[19] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(status().code(), StatusCode::kCorrupt);
  truth.scales[19] = 1.0f;
  truth.offsets[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(status().code(), StatusCode::kCorrupt);
  truth.offsets[3] = 1.0f;
  EXPECT_TRUE(status().ok());
}

TEST(PackedMatrix, FailureOfTheSourceIsReturnedWhateverTheThreads) {
  const auto source = [](int64_t row, const GroupedRow& out) {
    if (row >= 40) return Status::Io("row " + std::to_string(row) + " is gone");
    std::fill(out.codes, out.codes + 32, uint8_t{1});
    out.scales[0] = 1.0f;
    return Status();
  };
  for (const int threads : {1, 3}) {
    const auto m =
        PackedMatrix::CreateGrouped(100, 32, {4, 32, 8, false}, source, MakePool(threads).get());
    ASSERT_FALSE(m.ok());
    EXPECT_EQ(m.status().code(), StatusCode::kIo);
    EXPECT_EQ(m.status().message(), "row 40 is gone");
  }
}

TEST(PackedMatrix, FloatsAreStoredInTheFewestBytesThatHoldThemExactly) {
  std::vector<float> values = RandomFloats(5 * 7, 7);
  const auto create = [&] {
    return PackedMatrix::CreateFloat(5, 7, [&](int64_t row, float* out) {
      std::copy_n(values.data() + row * 7, 7, out);
      return Status();
    });
  };
  const auto check = [&](FloatStorage storage, int64_t value_bytes) {
    const auto m = create();
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(m->float_storage(), storage);
    EXPECT_EQ(m->packed_bytes(), 16 * 7 * value_bytes);
    float decoded[7];
    for (int64_t row = 0; row < 5; ++row) {
      m->DecodeRow(row, decoded);
      for (int c = 0; c < 7; ++c) EXPECT_EQ(decoded[c], values[row * 7 + c]);
    }
  };
  check(FloatStorage::kF32, 4);
  for (float& v : values) v = Bf16ToF32(F32ToBf16(v * 1e-20f));
  check(FloatStorage::kBf16, 2);
  for (float& v : values) v = F16ToF32(F32ToF16(v * 1e20f));
  check(FloatStorage::kF16, 2);
  values[3] = std::nanf("");
  EXPECT_EQ(create().status().code(), StatusCode::kCorrupt);
}

int g_allocations_left = 0;

TEST(PackedMatrix, EveryFailedAllocationIsReported) {
  const GroupedTruth truth = RandomGrouped(20, 32, {4, 32, 0, true}, false, 8);
  const AllocateFn before = g_allocate;
  g_allocate = [](size_t alignment, size_t bytes) -> void* {
    return g_allocations_left-- > 0 ? std::aligned_alloc(alignment, bytes) : nullptr;
  };
  int failures = 0;
  for (int allowed = 0; allowed < 20; ++allowed) {
    g_allocations_left = allowed;
    const auto m = PackedMatrix::CreateGrouped(20, 32, truth.spec, truth.Source());
    if (m.ok()) break;
    EXPECT_EQ(m.status().code(), StatusCode::kOutOfMemory);
    ++failures;
  }
  g_allocate = before;
  EXPECT_EQ(failures, 6);  // block, row numbers, row codes; once for f16, once for f32
}

}  // namespace
}  // namespace kvant
