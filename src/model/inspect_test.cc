#include "kvant/inspect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "gguf/gguf_writer.h"

namespace kvant {
namespace {

class InspectTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("kvant_inspect_" + std::to_string(::getpid()) + ".gguf"))
                .string();
    Must(writer_.AddString("general.architecture", "abacus"));
    Must(writer_.AddU32("abacus.block_count", 6));
    Must(writer_.AddU32("abacus.embedding_length", 256));
    Must(writer_.AddU32("abacus.attention.head_count", 4));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static void Must(const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); }

  GgufSummary Inspect() {
    Must(writer_.WriteFile(path_));
    return InspectGguf(path_).value();
  }

  GgufWriter writer_;
  std::string path_;
};

TEST_F(InspectTest, UnknownArchitectureStillHasAGeometry) {
  const GgufSummary s = Inspect();
  EXPECT_EQ(s.architecture, "abacus");
  ASSERT_TRUE(s.geometry.has_value()) << s.geometry_problem;
  EXPECT_EQ(*s.geometry, (KvGeometry{6, 4, 64, 4}));  // as many KV heads as heads, 256 / 4 channels
  EXPECT_EQ(s.context_tokens, 0);
  EXPECT_NE(s.file_hash, 0u);
}

TEST_F(InspectTest, KeysWinOverQuotients) {
  Must(writer_.AddU32("abacus.attention.head_count_kv", 2));
  Must(writer_.AddU32("abacus.attention.key_length", 128));
  Must(writer_.AddU32("abacus.attention.value_length", 128));
  Must(writer_.AddU32("abacus.context_length", 4096));
  Must(writer_.AddU32("abacus.attention.sliding_window", 512));
  const GgufSummary s = Inspect();
  EXPECT_EQ(*s.geometry, (KvGeometry{6, 2, 128, 4}));
  EXPECT_EQ(s.context_tokens, 4096);
  EXPECT_EQ(s.sliding_window_tokens, 512);
  EXPECT_TRUE(s.layer_windows.empty()) << "which layers have windows is not known";
}

TEST_F(InspectTest, ImpossibleGeometryIsExplainedNotInvented) {
  Must(writer_.AddU32("abacus.attention.head_count_kv", 3));
  const GgufSummary s = Inspect();
  EXPECT_FALSE(s.geometry.has_value());
  EXPECT_NE(s.geometry_problem.find("multiple of 3"), std::string::npos) << s.geometry_problem;
}

TEST_F(InspectTest, HeadCountOfZeroIsNotDividedBy) {
  GgufWriter writer;
  Must(writer.AddString("general.architecture", "abacus"));
  Must(writer.AddU32("abacus.block_count", 6));
  Must(writer.AddU32("abacus.attention.head_count", 0));
  Must(writer.WriteFile(path_));
  const GgufSummary s = *InspectGguf(path_);
  EXPECT_FALSE(s.geometry.has_value());
  EXPECT_NE(s.geometry_problem.find("head_count"), std::string::npos);
}

TEST_F(InspectTest, TotalsTensorsByTypeMostBytesFirst) {
  const std::vector<std::byte> floats(64 * 4), blocks(10 * 34);
  const int64_t small[] = {8}, large[] = {32, 2}, blocked[] = {32, 10};
  Must(writer_.AddTensor("b", WeightType::kF32, small, std::span(floats).first(32)));
  Must(writer_.AddTensor("q", WeightType::kQ8_0, blocked, blocks));
  Must(writer_.AddTensor("a", WeightType::kF32, large, floats));
  const GgufSummary s = Inspect();
  ASSERT_EQ(s.types.size(), 2u);
  EXPECT_EQ(s.types[0].type, "Q8_0");
  EXPECT_EQ(s.types[0].bytes, 340);
  EXPECT_EQ(s.types[1].tensors, 2);
  EXPECT_EQ(s.types[1].values, 72);
  EXPECT_EQ(s.tensors[1].dims, (std::vector<int64_t>{32, 10}));
}

TEST_F(InspectTest, ControlBytesOfAFileDoNotReachATerminal) {
  Must(writer_.AddString("name\x1b[2J", "\x1b]0;title\x07"));
  for (const GgufEntryText& entry : Inspect().metadata) {
    EXPECT_EQ((entry.key + entry.value).find('\x1b'), std::string::npos);
  }
}

TEST_F(InspectTest, MissingFileIsNamed) {
  const Result<GgufSummary> s = InspectGguf(path_ + ".none");
  EXPECT_EQ(s.status().code(), StatusCode::kNotFound);
  EXPECT_NE(s.status().message().find(path_), std::string::npos);
}

}  // namespace
}  // namespace kvant
