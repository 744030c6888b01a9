#include "gguf/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"

namespace kvant {
namespace {

namespace fs = std::filesystem;

const std::vector<std::byte> kData(64, std::byte{1});
const std::vector<int64_t> kShape{8, 2};

GgufWriter SmallWriter() {
  GgufWriter writer;
  EXPECT_TRUE(writer.AddString("general.architecture", "toy").ok());
  EXPECT_TRUE(writer.AddTensor("w", WeightType::kF32, kShape, kData).ok());
  return writer;
}

void ExpectRefused(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

TEST(GgufWriter, RefusedCallsNameTheCauseAndChangeNothing) {
  GgufWriter writer = SmallWriter();
  const auto before = writer.ToBytes();
  const std::string long_key(70000, 'k'), long_name(65, 'n');
  const std::vector<int64_t> zero{8, 0}, part{8};
  const std::vector<std::byte> block(210);
  ExpectRefused(writer.AddU32("", 1), "a metadata key is empty");
  ExpectRefused(writer.AddU32("general.architecture", 1),
                "key 'general.architecture' is already there");
  ExpectRefused(
      writer.AddU32(long_key, 1),
      "key '" + std::string(64, 'k') + "...' is 70000 bytes long, more than the 65535 allowed");
  for (const uint32_t alignment : {0u, 4u, 33u}) {
    ExpectRefused(writer.AddU32("general.alignment", alignment),
                  "key 'general.alignment' must hold a power of two of at least 8");
  }
  ExpectRefused(writer.AddString("general.alignment", "32"),
                "key 'general.alignment' must hold a power of two of at least 8");
  ExpectRefused(writer.AddTensor("", WeightType::kF32, kShape, kData), "a tensor's name is empty");
  ExpectRefused(writer.AddTensor("w", WeightType::kF32, kShape, kData),
                "tensor 'w' is already there");
  ExpectRefused(writer.AddTensor("z", WeightType::kF32, zero, {}),
                "tensor 'z' has a dimension of 0");
  ExpectRefused(writer.AddTensor("z", WeightType::kQ6_K, part, block),
                "tensor 'z' has rows of 8 values, not whole Q6_K blocks of 256");
  ExpectRefused(writer.AddTensor("z", WeightType::kF16, kShape, kData),
                "tensor 'z' needs 32 bytes, but 64 were given");
  ExpectRefused(
      writer.AddTensor(long_name, WeightType::kF32, kShape, kData),
      "tensor '" + std::string(64, 'n') + "...' has a name of 65 bytes, more than the 64 allowed");
  EXPECT_EQ(writer.ToBytes(), before);
}

TEST(GgufWriter, EntriesOfAnotherFileAreCopiedAsTheyStand) {
  GgufWriter first = SmallWriter();
  const std::string_view tokens[] = {"x", "", "yz"};
  ASSERT_TRUE(first.AddStringArray("tokens", tokens).ok());
  ASSERT_TRUE(first.AddU32("general.alignment", 64).ok());
  const auto bytes = first.ToBytes();
  const GgufFile file = GgufFile::Parse(bytes).value();
  GgufWriter second;
  for (const GgufEntry& entry : file.metadata()) ASSERT_TRUE(second.AddEntry(entry).ok());
  for (const GgufTensor& tensor : file.tensors()) {
    ASSERT_TRUE(second
                    .AddTensor(tensor.name, tensor.type,
                               std::span(tensor.dims).first(tensor.n_dims), tensor.data)
                    .ok());
  }
  EXPECT_EQ(second.ToBytes(), bytes);
}

TEST(GgufWriter, TensorsStandAtMultiplesOfTheAlignment) {
  for (const uint32_t alignment : {8u, 32u, 256u}) {
    GgufWriter writer;
    const std::vector<int64_t> three{3};
    const std::vector<std::byte> first(12, std::byte{1}), second(12, std::byte{2});
    ASSERT_TRUE(writer.AddTensor("a", WeightType::kF32, three, first).ok());
    ASSERT_TRUE(writer.AddTensor("b", WeightType::kF32, three, second).ok());
    ASSERT_TRUE(writer.AddU32("general.alignment", alignment).ok());
    const auto bytes = writer.ToBytes();
    EXPECT_EQ(bytes.size() % alignment, 0u);
    const auto file = GgufFile::Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->alignment(), alignment);
    for (const GgufTensor& tensor : file->tensors()) {
      EXPECT_EQ((tensor.data.data() - bytes.data()) % alignment, 0u);
    }
    EXPECT_EQ(file->tensors()[0].data[11], std::byte{1});
    EXPECT_EQ(file->tensors()[1].data[0], std::byte{2});
  }
}

class GgufWriterFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ("kvant_writer_" +
            std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directory(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(dir_)) names.push_back(item.path().filename());
    return names;
  }

  static std::string Contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path dir_;
};

TEST_F(GgufWriterFileTest, FileHoldsTheBytesAndReplacesAnOldOne) {
  const GgufWriter writer = SmallWriter();
  const auto bytes = writer.ToBytes();
  const fs::path path = dir_ / "m.gguf";
  std::ofstream(path) << "old";
  const Status status = writer.WriteFile(path);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Contents(path), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  EXPECT_EQ(Names(), std::vector<std::string>{"m.gguf"});
}

TEST_F(GgufWriterFileTest, FailureInTheMiddleLeavesTheOldFileAlone) {
  GgufWriter writer = SmallWriter();
  const std::vector<std::byte> large(4096);
  const std::vector<int64_t> shape{1024};
  ASSERT_TRUE(writer.AddTensor("large", WeightType::kF32, shape, large).ok());
  const fs::path path = dir_ / "m.gguf";
  std::ofstream(path) << "old";
  // Files may not grow past 1,000 bytes: the head is written, the last tensor is not.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = writer.WriteFile(path);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message().find(path.string() + ": cannot be written"), 0u) << status.message();
  EXPECT_EQ(Contents(path), "old");
  EXPECT_EQ(Names(), std::vector<std::string>{"m.gguf"});
}

TEST_F(GgufWriterFileTest, FailureAtTheEndsLeavesNothingBehind) {
  const GgufWriter writer = SmallWriter();
  const Status missing = writer.WriteFile(dir_ / "missing" / "m.gguf");
  EXPECT_EQ(missing.code(), StatusCode::kIo);
  EXPECT_NE(missing.message().find("cannot be created"), std::string::npos);
  fs::create_directories(dir_ / "taken" / "inside");
  const Status taken = writer.WriteFile(dir_ / "taken");
  EXPECT_EQ(taken.code(), StatusCode::kIo);
  EXPECT_NE(taken.message().find("is not a regular file"), std::string::npos);
  EXPECT_EQ(Names(), std::vector<std::string>{"taken"});
}

}  // namespace
}  // namespace kvant
