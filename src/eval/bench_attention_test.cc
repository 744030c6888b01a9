#include "kvant/bench_attention.h"

#include <gtest/gtest.h>

namespace kvant {
namespace {

AttentionBenchOptions SmallBench() {
  AttentionBenchOptions o;
  o.geometry = {2, 2, 64, 6};
  o.specs = {KvSpec{}, *ParseKvPreset("int4")};
  o.depths = {100, 300};
  o.repetitions = 3;
  return o;
}

TEST(BenchAttention, RowsComeByDepthThenIsaThenSpec) {
  AttentionBenchOptions o = SmallBench();
  o.isas = {Isa::kScalar, AvailableIsas().back()};
  double last_progress = 0;
  const auto rows = *BenchAttention(o, [&](double done) {
    EXPECT_GT(done, last_progress);
    last_progress = done;
  });
  EXPECT_DOUBLE_EQ(last_progress, 1);
  ASSERT_EQ(rows.size(), 2u * 2 * 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].depth_tokens, o.depths[i / 4]);
    EXPECT_EQ(rows[i].isa, o.isas[i / 2 % 2]);
    EXPECT_EQ(rows[i].spec, o.specs[i % 2]);
    EXPECT_EQ(rows[i].samples_ns.size(), 3u);
  }
}

TEST(BenchAttention, CountsTheBytesOfAllSequencesAndLayers) {
  AttentionBenchOptions o = SmallBench();
  o.batch = 3;
  const auto rows = *BenchAttention(o);
  EXPECT_EQ(rows[0].kv_bytes, 3 * 2 * 2 * 100 * 64 * 2 * 2);  // f16
  EXPECT_LT(rows[3].kv_bytes, rows[2].kv_bytes);              // int4 at 300 tokens
}

TEST(BenchAttention, AsksForProbabilitiesToo) {
  AttentionBenchOptions o = SmallBench();
  o.batch = 2;
  o.probabilities = true;
  EXPECT_EQ(BenchAttention(o)->size(), 4u);
}

TEST(BenchAttention, LeavesTheIsaLevelAsItWas) {
  const Isa before = ActiveIsa();
  AttentionBenchOptions o = SmallBench();
  o.isas = {Isa::kScalar};
  ASSERT_TRUE(BenchAttention(o).ok());
  EXPECT_EQ(ActiveIsa(), before);
}

TEST(BenchAttention, RefusesImpossibleRequests) {
  const auto code_of = [](auto change) {
    AttentionBenchOptions o = SmallBench();
    change(o);
    return BenchAttention(o).status().code();
  };
  EXPECT_EQ(code_of([](auto& o) { o.specs.clear(); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](auto& o) { o.depths = {0}; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](auto& o) { o.geometry.q_heads = 5; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](auto& o) { o.repetitions = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](auto& o) { o.threads = 0; }), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvant
