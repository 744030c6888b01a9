// Turns that lookups of a codebook's pair table take in shared memory, by copies of the table: what
// the number of copies was chosen by.
#include <gtest/gtest.h>

#include <random>

#include "ptx/ptx_decode.h"

namespace kvant::ptx {
namespace {

// Of random codes, and the sum is right.
double TurnsOfLookups(int copies) {
  constexpr size_t kWords = 512 * 32;
  std::mt19937 random(1);
  std::vector<uint32_t> words(kWords), pairs(kWords * 4);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  std::vector<uint16_t> levels(16);
  for (size_t i = 0; i < 16; ++i) levels[i] = static_cast<uint16_t>(1000 + i);
  DeviceMemory memory;
  const struct {
    uint64_t levels, words, pairs;
    int count, padding;
  } args{memory.AddInput("levels", std::as_bytes(std::span(levels))),
         memory.AddInput("words", std::as_bytes(std::span(words))),
         memory.AddUndefined("pairs", std::as_writable_bytes(std::span(pairs))), kWords / 32, 0};
  const PtxModule& module = PtxOf("pair_table");
  const Kernel& kernel = **module.Find("kvant_look_up_" + std::to_string(copies));
  const Result<Counts> counts =
      RunKernel(module, kernel,
                std::as_bytes(std::span(&args, 1)).first(static_cast<size_t>(kernel.param_bytes)),
                &memory, {.block = {cuda::kBlockThreads}});
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  if (!counts.ok()) return 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint32_t byte = words[i / 4] >> (i % 4 * 8) & 255;
    EXPECT_EQ(pairs[i], (1000 + byte % 16) | (1000 + byte / 16) << 16) << i;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(counts->shared_loads.requests, kWords / 32 * 4);
  const double turns = counts->shared_loads.turns_per_request();
  std::printf("%2d copies: %.2f turns a request\n", copies, turns);
  return turns;
}

// Expected of random bytes: the most of 32 / c balls in as many bins (equal bytes count once), and
// the most of that over c such groups.
TEST(PtxPairTable, OnlyACopyForEachLaneHasNoConflicts) {
  KVANT_SKIP_WITHOUT_PTX();
  EXPECT_NEAR(TurnsOfLookups(1), 3.16, .15);
  EXPECT_NEAR(TurnsOfLookups(8), 2.93, .15);
  EXPECT_NEAR(TurnsOfLookups(16), 2.0, .01);
  EXPECT_EQ(TurnsOfLookups(32), 1.0);
}

// Nor have the decode kernels': their few other loads, of up to 16 bytes a lane, take up to 4.
TEST(PtxPairTable, DecodeKernelsHaveNoConflicts) {
  KVANT_SKIP_WITHOUT_PTX();
  const simt::DecodeWorld world(cuda::kTq4Page, 64, 1, {{0, 2048}, {0, 2048}}, 1);
  const DecodeInputs in{.rows = simt::DecodeWorld::kRows,
                        .heads = 1,
                        .head_dim = 64,
                        .pages = world.pages,
                        .score_scale = world.score_scale,
                        .payload = world.payload,
                        .metadata = world.metadata,
                        .table = world.table,
                        .ranges = world.ranges,
                        .queries = world.queries,
                        .levels = world.levels};
  const PtxDecoded run = DecodeByPtx(PtxOf("decode_tq4"), "kvant_decode_tq4_d64_g1", in);
  ASSERT_EQ(run.fault, "");
  EXPECT_LT(run.counts.shared_loads.turns_per_request(), 1.05);
}

}  // namespace
}  // namespace kvant::ptx
