// The file of a calibration: what is written comes back, and nothing else is read.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/xxh64.h"
#include "calibrate/toy_calibration_for_test.h"

namespace kvant {
namespace {

class CalibrationFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<Model> model = ToyModel({.layers = 1, .head_dim = 8, .rope_dims = 8}).Load("file");
    ASSERT_TRUE(model.ok()) << model.status().message();
    calibration_ = CalibrateToy(*model);
    calibration_.layer_formats.assign(1, {kFormatF16, *ParseFormat("tq4:n8", Side::kV)});
    ASSERT_TRUE(WriteCalibration(calibration_, path_).ok());
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  Status ReadOf(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return ReadCalibration(path_).status();
  }
  void ExpectRefused(const std::string& bytes, StatusCode code, const std::string& word) {
    const Status status = ReadOf(bytes);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_TRUE(status.message().starts_with(path_)) << status.message();
  }
  // With a checksum that fits again.
  static std::string Sealed(std::string bytes) {
    bytes.resize(bytes.size() - sizeof(uint64_t));
    const uint64_t hash = Xxh64(std::as_bytes(std::span<const char>(bytes)));
    bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    return bytes;
  }

  Calibration calibration_;
  // A name of its own for each test: they run side by side.
  const std::string path_ = testing::TempDir() + "kvant_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".cal";
  std::string bytes_;
};

TEST_F(CalibrationFile, ComesBackEqual) {
  const Result<Calibration> read = ReadCalibration(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, calibration_);
}

TEST_F(CalibrationFile, EveryFlippedByteIsRefused) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    std::string bad = bytes_;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const Status status = ReadOf(bad);
    ASSERT_FALSE(status.ok()) << "byte " << at;
    ASSERT_EQ(status.code(), at >= 8 && at < 12 ? StatusCode::kUnsupported : StatusCode::kCorrupt)
        << "byte " << at << ": " << status.message();
  }
}

TEST_F(CalibrationFile, EveryTruncationIsRefused) {
  for (size_t length = 1; length < bytes_.size(); ++length) {
    ASSERT_EQ(ReadOf(bytes_.substr(0, length)).code(), StatusCode::kCorrupt) << length;
  }
  EXPECT_FALSE(ReadOf("").ok());
  ExpectRefused(bytes_ + "x", StatusCode::kCorrupt, "checksum");
}

TEST_F(CalibrationFile, OtherFilesAndVersionsAreNamed) {
  ExpectRefused("GGUF" + bytes_, StatusCode::kCorrupt, "is no calibration file");
  std::string other = bytes_;
  other[8] = 9;
  ExpectRefused(Sealed(other), StatusCode::kUnsupported, "version 9");
  EXPECT_EQ(ReadCalibration("/nonexistent.cal").status().code(), StatusCode::kNotFound);
}

// Damage that a checksum does not see, because it was computed afterwards.
TEST_F(CalibrationFile, WhatDoesNotFitTogetherIsRefused) {
  constexpr size_t kHeader = 8 + 4 + 8, kLevels = kHeader + 4 * 4 + 8;
  std::string bad = bytes_;
  std::swap(bad[kLevels + 4], bad[kLevels + 5]);  // K's two lowest levels of 2 bits
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "do not ascend");
  bad = bytes_;
  std::memset(bad.data() + kLevels, 0, 4);  // their sigma
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "unit of 0");
  bad = bytes_;
  const float zero = 0;
  constexpr size_t kFactors = kLevels + 2 * (3 * 4 + 4 + 8 + 16);
  std::memcpy(bad.data() + kFactors, &zero, sizeof zero);
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "channel factor");
  bad = bytes_;
  const size_t rotation = kFactors + 4 * 2 * 8;
  const float two = 2;
  std::memcpy(bad.data() + rotation, &two, sizeof two);
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "not orthonormal");
  bad = bytes_;
  bad[kHeader] = 2;  // layers
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "");
  bad = bytes_;
  bad.insert(bad.size() - 8, "rest");
  ExpectRefused(Sealed(bad), StatusCode::kCorrupt, "left over");
}

TEST_F(CalibrationFile, CannotBeWrittenWhereItWouldNotBeRead) {
  calibration_.layers[0].k_levels[1].levels.pop_back();
  EXPECT_EQ(WriteCalibration(calibration_, path_ + ".bad").code(), StatusCode::kCorrupt);
  EXPECT_EQ(ReadCalibration(path_ + ".bad").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvant
