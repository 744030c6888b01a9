#include "gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gguf/exercise_for_test.h"
#include "gguf/gguf_writer.h"

namespace kvant {
namespace {

class GgufFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string_view tokens[] = {"", "a", "\xc4\xa0t"};
    const int32_t types[] = {3, -1, 2};
    const float scores[] = {0.5f, -1e30f};
    const int64_t shape[] = {32, 2, 3};
    const int64_t row[] = {4};
    ASSERT_TRUE(writer_.AddString("general.architecture", "llama").ok());
    ASSERT_TRUE(writer_.AddU32("llama.block_count", 30).ok());
    ASSERT_TRUE(writer_.AddI32("negative", -1).ok());
    ASSERT_TRUE(writer_.AddU64("wide", uint64_t{1} << 40).ok());
    ASSERT_TRUE(writer_.AddU64("narrow", 7).ok());
    ASSERT_TRUE(writer_.AddF32("llama.rope.freq_base", 1e5f).ok());
    ASSERT_TRUE(writer_.AddBool("yes", true).ok());
    ASSERT_TRUE(writer_.AddBoolArray("pattern", {true, false, true}).ok());
    ASSERT_TRUE(writer_.AddStringArray("tokens", tokens).ok());
    ASSERT_TRUE(writer_.AddI32Array("types", types).ok());
    ASSERT_TRUE(writer_.AddF32Array("scores", scores).ok());
    ASSERT_TRUE(writer_.AddF32Array("none", {}).ok());
    quants_.assign(6 * 20, std::byte{0x5a});
    floats_.assign(16, std::byte{0});
    ASSERT_TRUE(writer_.AddTensor("blk.0.w", WeightType::kQ4_1, shape, quants_).ok());
    ASSERT_TRUE(writer_.AddTensor("a.norm", WeightType::kF32, row, floats_).ok());
    bytes_ = writer_.ToBytes();
  }

  // As a file holds it, with the double, i8 and u16 that the writer has no call for.
  static GgufEntry Entry(std::string_view key, GgufValueType type, const void* data, size_t bytes) {
    return {key, {type, type, 1, {static_cast<const std::byte*>(data), bytes}}};
  }

  GgufFile Parsed() { return std::move(GgufFile::Parse(bytes_)).value(); }

  GgufWriter writer_;
  std::vector<std::byte> quants_, floats_;
  std::vector<std::byte> bytes_;
};

template <typename T>
void ExpectError(const Result<T>& result, StatusCode code, const std::string& message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_EQ(result.status().message(), message);
}

TEST_F(GgufFileTest, ScalarsComeBackInTheirTypes) {
  const GgufFile file = Parsed();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.alignment(), 32u);
  EXPECT_EQ(file.GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file.GetU32("llama.block_count").value(), 30u);
  EXPECT_EQ(file.GetI32("negative").value(), -1);
  EXPECT_EQ(file.GetU64("wide").value(), uint64_t{1} << 40);
  EXPECT_EQ(file.GetF32("llama.rope.freq_base").value(), 1e5f);
  EXPECT_TRUE(file.GetBool("yes").value());
  EXPECT_GT(ExerciseGguf(file), 0u);
}

TEST_F(GgufFileTest, ArraysComeBackWhole) {
  const GgufFile file = Parsed();
  EXPECT_EQ(file.GetStringArray("tokens").value(),
            (std::vector<std::string_view>{"", "a", "\xc4\xa0t"}));
  EXPECT_EQ(file.GetI32Array("types").value(), (std::vector<int32_t>{3, -1, 2}));
  EXPECT_EQ(file.GetF32Array("scores").value(), (std::vector<float>{0.5f, -1e30f}));
  EXPECT_EQ(file.GetBoolArray("pattern").value(), (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(file.GetF32Array("none").value().empty());
}

TEST_F(GgufFileTest, IntegersOfAnotherWidthAreTakenWhenTheyFit) {
  const GgufFile file = Parsed();
  EXPECT_EQ(file.GetU32("narrow").value(), 7u);
  EXPECT_EQ(file.GetI64("llama.block_count").value(), 30);
  ExpectError(file.GetU32("wide"), StatusCode::kCorrupt,
              "key 'wide' holds 1099511627776, which is not in 0..4294967295");
  ExpectError(file.GetU32("negative"), StatusCode::kCorrupt,
              "key 'negative' holds -1, which is not in 0..4294967295");
  ExpectError(file.GetU32Array("types"), StatusCode::kCorrupt,
              "key 'types' holds -1, which is not in 0..4294967295");
}

TEST_F(GgufFileTest, SmallIntegersAndDoublesAreRead) {
  const int8_t small = -5;
  const uint16_t medium = 65535;
  const double pi = 3.14159265358979, huge = 1e300, infinite = HUGE_VAL;
  EXPECT_EQ(ReadInteger<int32_t>(Entry("k", GgufValueType::kI8, &small, 1)).value(), -5);
  EXPECT_EQ(ReadInteger<uint32_t>(Entry("k", GgufValueType::kU16, &medium, 2)).value(), 65535u);
  EXPECT_EQ(ReadFloat(Entry("k", GgufValueType::kF64, &pi, 8)).value(), 3.14159265f);
  EXPECT_EQ(ReadFloat(Entry("k", GgufValueType::kF64, &infinite, 8)).value(), HUGE_VALF);
  EXPECT_EQ(ReadFloat(Entry("k", GgufValueType::kF64, &huge, 8)).status().code(),
            StatusCode::kCorrupt);
}

TEST_F(GgufFileTest, MissingKeysAreNamedAndCanFallBack) {
  const GgufFile file = Parsed();
  ExpectError(file.GetU32("llama.head_count"), StatusCode::kNotFound,
              "key 'llama.head_count' is missing");
  ExpectError(file.GetTensor("blk.1.w"), StatusCode::kNotFound, "tensor 'blk.1.w' is missing");
  EXPECT_EQ(ValueOr(file.GetU32("llama.head_count"), 9u).value(), 9u);
  EXPECT_EQ(ValueOr(file.GetU32("llama.block_count"), 9u).value(), 30u);
  EXPECT_FALSE(ValueOr(file.GetU32("tokens"), 9u).ok());  // wrong type is no absence
}

TEST_F(GgufFileTest, WrongTypesNameBothTypes) {
  const GgufFile file = Parsed();
  const auto corrupt = StatusCode::kCorrupt;
  ExpectError(file.GetU32("yes"), corrupt, "key 'yes' holds bool where an integer is wanted");
  ExpectError(file.GetU32("types"), corrupt,
              "key 'types' holds array of i32 where an integer is wanted");
  ExpectError(file.GetF32("negative"), corrupt, "key 'negative' holds i32 where a float is wanted");
  ExpectError(file.GetF32("scores"), corrupt,
              "key 'scores' holds array of f32 where a float is wanted");
  ExpectError(file.GetBool("pattern"), corrupt,
              "key 'pattern' holds array of bool where a bool is wanted");
  ExpectError(file.GetString("tokens"), corrupt,
              "key 'tokens' holds array of string where a string is wanted");
  ExpectError(file.GetStringArray("types"), corrupt,
              "key 'types' holds array of i32 where an array of strings is wanted");
  ExpectError(file.GetI32Array("scores"), corrupt,
              "key 'scores' holds array of f32 where an array of integers is wanted");
  ExpectError(file.GetI32Array("narrow"), corrupt,
              "key 'narrow' holds u64 where an array of integers is wanted");
  ExpectError(file.GetF32Array("types"), corrupt,
              "key 'types' holds array of i32 where an array of floats is wanted");
  ExpectError(file.GetBoolArray("yes"), corrupt,
              "key 'yes' holds bool where an array of bools is wanted");
}

TEST_F(GgufFileTest, MetadataAndTensorsKeepTheOrderOfTheFile) {
  const GgufFile file = Parsed();
  ASSERT_EQ(file.metadata().size(), 12u);
  EXPECT_EQ(file.metadata()[0].key, "general.architecture");
  EXPECT_EQ(file.metadata()[11].key, "none");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "blk.0.w");
  EXPECT_EQ(file.tensors()[1].name, "a.norm");
}

TEST_F(GgufFileTest, TensorsHaveShapeAndExactBytes) {
  const GgufFile file = Parsed();
  const GgufTensor& tensor = *file.GetTensor("blk.0.w").value();
  EXPECT_EQ(tensor.type, WeightType::kQ4_1);
  EXPECT_EQ(tensor.n_dims, 3);
  EXPECT_EQ(tensor.row_values(), 32);
  EXPECT_EQ(tensor.rows(), 6);
  EXPECT_EQ(tensor.values(), 192);
  ASSERT_EQ(tensor.data.size(), quants_.size());
  EXPECT_EQ(std::memcmp(tensor.data.data(), quants_.data(), quants_.size()), 0);
  EXPECT_EQ(file.GetTensor("a.norm").value()->rows(), 1);
}

TEST_F(GgufFileTest, TextForPeopleCutsLongArraysAndEscapes) {
  const GgufFile file = Parsed();
  const auto text = [&](std::string_view key, size_t elements) {
    return ToText(file.FindEntry(key)->value, elements, 3);
  };
  EXPECT_EQ(text("types", 3), "[3, -1, 2]");
  EXPECT_EQ(text("types", 2), "[3, -1, ... 3 in all]");
  EXPECT_EQ(text("scores", 9), "[0.5, -1e+30]");
  EXPECT_EQ(text("none", 9), "[]");
  EXPECT_EQ(text("yes", 9), "true");
  EXPECT_EQ(text("general.architecture", 9), "'lla...'");
  EXPECT_EQ(QuoteUntrusted("a\n'\\\x1b"), "'a\\x0a\\'\\\\\\x1b'");
  EXPECT_EQ(QuoteUntrusted("ab\xc4\xa0", 3), "'ab...'");  // not half a character
}

TEST_F(GgufFileTest, ViewsSurviveMovesOfTheFile) {
  const std::string path = ::testing::TempDir() + "kvant_moved.gguf";
  ASSERT_TRUE(writer_.WriteFile(path).ok());
  auto opened = GgufFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::string_view name = opened->GetString("general.architecture").value();
  GgufFile moved = std::move(opened).value();
  GgufFile assigned = Parsed();
  assigned = std::move(moved);
  std::filesystem::remove(path);  // the mapping outlives the name
  EXPECT_EQ(name, "llama");
  EXPECT_EQ(assigned.GetString("general.architecture").value().data(), name.data());
  EXPECT_GT(ExerciseGguf(assigned), 0u);
}

TEST_F(GgufFileTest, FilesThatCannotBeMappedAreNamed) {
  const std::string dir = ::testing::TempDir();
  const std::string missing = dir + "kvant_missing.gguf", empty = dir + "kvant_empty.gguf";
  std::ofstream{empty};
  ExpectError(GgufFile::Open(missing), StatusCode::kNotFound, missing + ": no such file");
  ExpectError(GgufFile::Open(empty), StatusCode::kCorrupt, empty + ": is empty");
  ExpectError(GgufFile::Open(dir), StatusCode::kIo, dir + ": is not a regular file");
  std::ofstream(empty) << "not a model";
  ExpectError(GgufFile::Open(empty), StatusCode::kCorrupt,
              empty + ": the file does not start with 'GGUF'");
  std::filesystem::remove(empty);
}

TEST_F(GgufFileTest, CountsOutsideTheirRangeAreRefusedByKeyAndValue) {
  GgufWriter writer;
  ASSERT_TRUE(writer.AddU32("llama.attention.head_count", 0).ok());
  ASSERT_TRUE(writer.AddU32("llama.attention.head_count_kv", 3).ok());
  ASSERT_TRUE(writer.AddU32("llama.block_count", 100000).ok());
  const auto bytes = writer.ToBytes();
  const GgufFile file = GgufFile::Parse(bytes).value();
  ExpectError(file.GetU32InRange("llama.attention.head_count", 1, 1024), StatusCode::kCorrupt,
              "key 'llama.attention.head_count' holds 0, which is not in 1..1024");
  ExpectError(file.GetU32InRange("llama.block_count", 1, 4096), StatusCode::kCorrupt,
              "key 'llama.block_count' holds 100000, which is not in 1..4096");
  ExpectError(file.GetU32InRange("llama.context_length", 1, 4096), StatusCode::kNotFound,
              "key 'llama.context_length' is missing");
  EXPECT_EQ(file.GetU32InRange("llama.attention.head_count_kv", 3, 3).value(), 3u);
}

}  // namespace
}  // namespace kvant
