#include "eval/logit_base.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kvant {
namespace {

namespace fs = std::filesystem;

// One chunk of four tokens over a vocabulary of three: one row, of logits 0, -4 and -32.
const std::vector<int32_t> kTokens = {5, 1, 2, 0};
const std::vector<float> kLogits = {0, -4, -32};
constexpr unsigned char kGolden[] = {
    '_',  'l',  'o',  'g',  'i',  't',  's',  '_',   // magic
    4,    0,    0,    0,    3,    0,    0,    0,     // context, vocabulary
    1,    0,    0,    0,                             // chunks
    5,    0,    0,    0,    1,    0,    0,    0,     // tokens
    2,    0,    0,    0,    0,    0,    0,    0,     //
    0x80, 0x00, 0x80, 0x39, 0x2c, 0x25, 0x80, 0xc1,  // step 16 / 65535, least -16.018
    0xff, 0xff, 0xff, 0xbf, 0x00, 0x00, 0x00, 0x00,  // codes, the last one padding
};

std::string PathOf(const std::string& name) { return testing::TempDir() + "kvant_base_" + name; }

std::string WriteBytes(const std::string& name, std::string bytes) {
  const std::string path = PathOf(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string Golden() { return {reinterpret_cast<const char*>(kGolden), sizeof(kGolden)}; }

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogitBase, AFileIsWrittenAsTheOtherEngineWritesIt) {
  const std::string path = PathOf("golden");
  fs::remove(path);
  Result<LogitBaseWriter> writer = LogitBaseWriter::Create(path, 4, 3, kTokens);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->Add(kLogits.data(), 1).ok());
  EXPECT_FALSE(fs::exists(path)) << "nothing may appear before it is complete";
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadBytes(path), Golden());
}

TEST(LogitBase, AFileOfTheOtherEngineIsRead) {
  const Result<LogitBaseReader> reader = LogitBaseReader::Open(WriteBytes("read", Golden()));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->summary().ctx_tokens, 4);
  EXPECT_EQ(reader->summary().vocab, 3);
  EXPECT_EQ(reader->summary().chunks, 1);
  EXPECT_EQ(reader->summary().tokens, kTokens);
  uint16_t codes[3] = {};
  CodedRow row;
  reader->ReadRow(0, codes, &row);
  const double log_sum = std::log(1 + std::exp(-4.0) + std::exp(-32.0));
  EXPECT_NEAR(row.least + double{row.step} * row.codes[0], -log_sum, 1e-5);
  EXPECT_NEAR(row.least + double{row.step} * row.codes[1], -4 - log_sum, 1.3e-4);
  EXPECT_NEAR(row.least + double{row.step} * row.codes[2], -16 - log_sum, 1e-5);
}

TEST(LogitBase, AFileOfAnyOtherLengthIsRefusedByName) {
  const std::string whole = Golden();
  for (size_t length = 1; length <= whole.size() + 2; ++length) {
    if (length == whole.size()) continue;
    std::string bytes = whole;
    bytes.resize(length);
    const Status status = LogitBaseReader::Open(WriteBytes("cut", bytes)).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << length;
    EXPECT_NE(status.message().find("kvant_base_cut"), std::string::npos);
  }
  EXPECT_EQ(ReadLogitBase(PathOf("none")).status().code(), StatusCode::kNotFound);
}

TEST(LogitBase, NumbersThatLieAreRefusedBeforeTheyAreBelieved) {
  const auto status_with = [](size_t offset, int32_t number) {
    std::string bytes = Golden();
    std::memcpy(bytes.data() + offset, &number, sizeof(number));
    return ReadLogitBase(WriteBytes("lie", bytes)).status().code();
  };
  for (const size_t offset : {8u, 12u, 16u}) {
    for (const int32_t number : {0, -1, INT32_MIN, INT32_MAX, 1 << 24, 2}) {
      EXPECT_EQ(status_with(offset, number), StatusCode::kCorrupt) << offset << ' ' << number;
    }
  }
  EXPECT_EQ(status_with(0, 0), StatusCode::kCorrupt);
}

TEST(LogitBase, WhatWasMadeFromSomethingElseIsRefusedByWhatDiffers) {
  const LogitBaseReader reader = LogitBaseReader::Open(WriteBytes("fits", Golden())).value();
  EXPECT_TRUE(reader.CheckFits(kTokens, 4, 3).ok());
  std::vector<int32_t> other = kTokens;
  other[2] = 7;
  const auto expect = [](const Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  expect(reader.CheckFits(other, 4, 3), "token 2 is 2, here it is 7");
  expect(reader.CheckFits(kTokens, 8, 3), "a context of 4, here it is 8");
  expect(reader.CheckFits(kTokens, 4, 9), "a vocabulary of 3, here it is 9");
  EXPECT_TRUE(reader.CheckFits(std::vector<int32_t>{5, 1, 2, 0, 9, 9, 9, 9}, 4, 3).ok());
}

TEST(LogitBase, AFileWithoutAllRowsNeverAppears) {
  const std::string path = PathOf("missing");
  fs::remove(path);
  {
    LogitBaseWriter writer = LogitBaseWriter::Create(path, 4, 3, kTokens).value();
    EXPECT_EQ(writer.Commit().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(LogitBase, ARowOfEqualLogitsHasNoSteps) {
  const std::string path = PathOf("flat");
  LogitBaseWriter writer = LogitBaseWriter::Create(path, 4, 3, kTokens).value();
  const std::vector<float> flat = {7, 7, 7};
  ASSERT_TRUE(writer.Add(flat.data(), 1).ok());
  ASSERT_TRUE(writer.Commit().ok());
  uint16_t codes[3];
  CodedRow row;
  const LogitBaseReader reader = LogitBaseReader::Open(path).value();
  reader.ReadRow(0, codes, &row);
  EXPECT_EQ(row.step, 0);
  EXPECT_FLOAT_EQ(row.least, -std::log(3.0f));
}

}  // namespace
}  // namespace kvant
