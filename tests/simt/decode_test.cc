// Every decode kernel on the SIMT shim against attention in double, within a derived bound.
#include <gtest/gtest.h>

#include "simt/decode_run.h"

namespace kvant::simt {
namespace {

class Kernels : public testing::TestWithParam<DecodeKernel> {};

TEST_P(Kernels, StayWithinTheBound) {
  const DecodeKernel& kernel = GetParam();
  for (const int heads : {kernel.row.heads, kernel.row.heads / 2 - 1}) {
    if (heads < 1) continue;
    const DecodeWorld world(kernel.row.page, kernel.row.head_dim, heads, kRanges, 1);
    ASSERT_TRUE(world.packed);
    const Expected expected = DecodeBound(world, kernel.row.tensor_cores).Make();
    const Decoded run = Decode(kernel.thread, world, {});
    ASSERT_EQ(run.fault, "");
    EXPECT_LE(WorstOf(run.out, expected), 1) << heads << " heads";
    // A bound that zeros would meet says nothing.
    EXPECT_GT(WorstOf(std::vector<float>(run.out.size(), 0.0f), expected), 10) << heads << " heads";
  }
}

std::string NameOf(const testing::TestParamInfo<DecodeKernel>& info) { return info.param.row.name; }
INSTANTIATE_TEST_SUITE_P(Simt, Kernels, testing::ValuesIn(kDecodeKernels), NameOf);

TEST(Schedules, AllGiveTheSameBits) {
  for (const char* name : {"kvant_decode_int4_d64_g1", "kvant_decode_int4_d64_g8"}) {
    const DecodeKernel& kernel = KernelNamed(name);
    const DecodeWorld world(cuda::kInt4Page, 64, kernel.row.heads, kRanges, 2);
    const Decoded plain = Decode(kernel.thread, world, {});
    ASSERT_EQ(plain.fault, "");
    for (const Schedule schedule : {Schedule::kRandom, Schedule::kRunAhead}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        LaunchOptions options;
        options.schedule = schedule;
        options.seed = seed;
        const Decoded other = Decode(kernel.thread, world, options);
        ASSERT_EQ(other.fault, "") << name;
        EXPECT_EQ(other.out, plain.out) << name << " seed " << seed;
      }
    }
  }
}

TEST(EmptyRange, GivesZeros) {
  const DecodeKernel& kernel = KernelNamed("kvant_decode_int8_d64_g8");
  DecodeWorld world(cuda::kInt8Page, 64, 3, kRanges, 3);
  world.ranges[1] = {64, 64};
  const Decoded run = Decode(kernel.thread, world, {});
  ASSERT_EQ(run.fault, "");
  for (size_t i = run.out.size() / 2; i < run.out.size(); ++i) ASSERT_EQ(run.out[i], 0.0f) << i;
}

// Sinks and window of f16 and a run of int4 between them are three calls into slots of one step.
TEST(Runs, OfTwoFormatsJoinInOneMerge) {
  constexpr int kDim = 64, kHeads = 2;
  const DecodeWorld coded(cuda::kInt4Page, kDim, kHeads, {{4, 250}, {70, 192}}, 4);
  const DecodeWorld whole(cuda::kF16Page, kDim, kHeads, {{0, 130}, {3, 64}}, 5);
  const DecodeWorld* worlds[] = {&coded, &whole};
  constexpr size_t kRowHeads = DecodeWorld::kRows * kHeads, kSlots = 3;
  std::vector<float> partial_out(kRowHeads * kSlots * kDim, NAN),
      state(kRowHeads * kSlots * 2, NAN);
  std::vector<float> out(kRowHeads * kDim, NAN);
  int slot = 0;
  for (const DecodeWorld* world : worlds) {
    const int splits = world == &coded ? 2 : 1;
    const cuda::DecodeArguments args{
        .payload = reinterpret_cast<const unsigned char*>(world->payload.data()),
        .metadata = reinterpret_cast<const unsigned char*>(world->metadata.data()),
        .page_table = world->table.data(),
        .ranges = world->ranges.data(),
        .queries = coded.queries.data(),
        .partial_out = partial_out.data(),
        .partial_state = state.data(),
        .page_table_stride = world->pages,
        .group_ratio = kHeads,
        .slots = kSlots,
        .first_slot = slot,
        .pages_per_split = (world->pages + splits - 1) / splits,
        .score_scale = world->score_scale};
    LaunchOptions options;
    options.grid_x = splits;
    options.grid_y = DecodeWorld::kRows;
    const DecodeKernel& kernel =
        KernelNamed(world == &coded ? "kvant_decode_int4_d64_g8" : "kvant_decode_f16_d64_g8");
    ASSERT_EQ(Launch(options, [&] { kernel.thread(args); }), "");
    slot += splits;
  }
  LaunchOptions options;
  options.grid_x = kHeads;
  options.grid_y = DecodeWorld::kRows;
  const cuda::MergeArguments merge{
      partial_out.data(), state.data(), out.data(), kHeads, kSlots, kDim};
  ASSERT_EQ(Launch(options, [&] { kvant_merge(merge); }), "");

  for (int row = 0; row < DecodeWorld::kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      std::vector<double> sums(kDim);
      double total = 0;
      for (const DecodeWorld* world : worlds) {
        for (int t = 0; t < world->pages * 64; ++t) {
          if (!world->Visible(row, t)) continue;
          double score = 0;
          for (int c = 0; c < kDim; ++c) {
            score += static_cast<double>(
                         coded.queries[static_cast<size_t>((row * kHeads + head) * kDim + c)]) *
                     world->At(world->k, row, t, c).value;
          }
          const double weight = std::exp(score / 8);
          total += weight;
          for (int c = 0; c < kDim; ++c) {
            sums[static_cast<size_t>(c)] += weight * world->At(world->v, row, t, c).value;
          }
        }
      }
      for (int c = 0; c < kDim; ++c) {
        // Scores of a few units with queries rounded to halves: errors of some 2^-11 of values
        // below 3; a missing run or a wrong weight moves means by a tenth and more.
        ASSERT_NEAR(out[static_cast<size_t>((row * kHeads + head) * kDim + c)],
                    sums[static_cast<size_t>(c)] / total, .02)
            << row << " " << head << " " << c;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::simt
