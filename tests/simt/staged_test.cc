// The pipeline of asynchronous copies on the shim: right in every order of threads, and each of its
// faults seen in some order.
#include "simt/staged.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kvant::simt {
namespace {

constexpr int kTiles = 6;  // more than the stages: each is filled again, and again

// In how many of the orders the sums are wrong, or the shim tells a fault.
template <cuda::StagedFault kFault>
int Caught() {
  std::vector<uint32_t> in(kTiles * cuda::kStagedTileWords);
  std::iota(in.begin(), in.end(), 1u);
  std::vector<LaunchOptions> orders(1);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Schedule schedule : {Schedule::kRandom, Schedule::kRunAhead}) {
      orders.push_back({.schedule = schedule, .seed = seed});
    }
  }
  int caught = 0;
  for (const LaunchOptions& order : orders) {
    std::vector<uint32_t> out(cuda::kBlockThreads);
    const std::string fault =
        Launch(order, [&] { cuda::SumStaged<kFault>(in.data(), out.data(), kTiles); });
    bool is_right = fault.empty();
    for (int t = 0; t < cuda::kBlockThreads; ++t) {
      is_right &= out[static_cast<size_t>(t)] == cuda::ExpectedStagedSum(in.data(), kTiles, t);
    }
    caught += is_right ? 0 : 1;
  }
  return caught;
}

TEST(StagedFaults, WithoutOneEveryOrderIsRight) { EXPECT_EQ(Caught<cuda::StagedFault{}>(), 0); }
TEST(StagedFaults, SwizzleMismatchIsSeen) {
  EXPECT_GT((Caught<cuda::StagedFault{.reads_unswizzled = true}>()), 0);
}
TEST(StagedFaults, WeakWaitIsSeen) {
  EXPECT_GT((Caught<cuda::StagedFault{.waits_for_too_few = true}>()), 0);
}
TEST(StagedFaults, BarrierDroppedAfterTheWaitIsSeen) {
  EXPECT_GT((Caught<cuda::StagedFault{.no_barrier_after_wait = true}>()), 0);
}
TEST(StagedFaults, BarrierDroppedBeforeTheRefillIsSeen) {
  EXPECT_GT((Caught<cuda::StagedFault{.no_barrier_before_refill = true}>()), 0);
}

}  // namespace
}  // namespace kvant::simt
