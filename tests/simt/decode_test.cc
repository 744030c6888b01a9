// Every decode kernel on the SIMT shim against attention in double, within a derived bound.
#include <gtest/gtest.h>

#include "simt/decode_bound.h"
#include "simt/kernels.h"
#include "simt/simt.h"

namespace kvant::simt {
namespace {

struct Decoded {
  std::vector<float> out;  // [kRows][heads][dim]
  std::string fault;
};

Decoded Decode(const DecodeKernel& kernel, const DecodeWorld& world, const LaunchOptions& launch) {
  constexpr int kSplits = 2;
  const size_t heads = static_cast<size_t>(DecodeWorld::kRows * world.heads);
  const size_t dim = static_cast<size_t>(world.dim);
  std::vector<float> partial_out(heads * kSplits * dim, NAN), state(heads * kSplits * 2, NAN);
  Decoded run{std::vector<float>(heads * dim, NAN), ""};
  const cuda::DecodeArguments args{
      .payload = reinterpret_cast<const unsigned char*>(world.payload.data()),
      .metadata = reinterpret_cast<const unsigned char*>(world.metadata.data()),
      .page_table = world.table.data(),
      .ranges = world.ranges.data(),
      .queries = world.queries.data(),
      .partial_out = partial_out.data(),
      .partial_state = state.data(),
      .page_table_stride = world.pages,
      .group_ratio = world.heads,
      .slots = kSplits,
      .first_slot = 0,
      .pages_per_split = (world.pages + kSplits - 1) / kSplits,
      .score_scale = world.score_scale};
  LaunchOptions options = launch;
  options.grid_x = kSplits;
  options.grid_y = DecodeWorld::kRows;
  run.fault = Launch(options, [&] { kernel.thread(args); });
  if (!run.fault.empty()) return run;
  options.grid_x = world.heads;
  const cuda::MergeArguments merge{.partial_out = partial_out.data(),
                                   .partial_state = state.data(),
                                   .out = run.out.data(),
                                   .group_ratio = world.heads,
                                   .slots = kSplits,
                                   .head_dim = world.dim};
  run.fault = Launch(options, [&] { kvant_merge(merge); });
  return run;
}

// The largest error in units of its bound.
double WorstOf(const Decoded& run, const Expected& expected) {
  double worst = 0;
  for (size_t i = 0; i < run.out.size(); ++i) {
    const double error = std::fabs(static_cast<double>(run.out[i]) - expected.value[i]);
    worst = std::max(worst, std::isfinite(error) ? error / expected.bound[i] : INFINITY);
  }
  return worst;
}

// Edges inside pages, a page of one token, pages nobody sees in front; an odd number of pages.
const std::vector<cuda::TokenRange> kRanges = {{5, 257}, {130, 191}};

class Kernels : public testing::TestWithParam<DecodeKernel> {};

TEST_P(Kernels, StayWithinTheBound) {
  const DecodeKernel& kernel = GetParam();
  for (const int heads : {kernel.row.heads, kernel.row.heads / 2 - 1}) {
    if (heads < 1) continue;
    const DecodeWorld world(kernel.row.bits, kernel.row.head_dim, heads, kRanges, 1);
    ASSERT_TRUE(world.packed);
    const Expected expected = DecodeBound(world, kernel.row.tensor_cores).Make();
    const Decoded run = Decode(kernel, world, {});
    ASSERT_EQ(run.fault, "");
    const double worst = WorstOf(run, expected);
    EXPECT_LE(worst, 1) << heads << " heads";
    RecordProperty("worst_of_bound", std::to_string(worst));
    // A bound that zeros would meet says nothing.
    const Decoded nothing{std::vector<float>(run.out.size(), 0.0f), ""};
    EXPECT_GT(WorstOf(nothing, expected), 1) << heads << " heads";
  }
}

std::string NameOf(const testing::TestParamInfo<DecodeKernel>& info) { return info.param.row.name; }
INSTANTIATE_TEST_SUITE_P(Simt, Kernels, testing::ValuesIn(kDecodeKernels), NameOf);

}  // namespace
}  // namespace kvant::simt
