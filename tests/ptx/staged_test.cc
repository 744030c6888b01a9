// A pipeline of asynchronous copies: right in every order of warps, and its faults seen.
#include "simt/staged.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ptx/ptx_files.h"

namespace kvant::ptx {
namespace {

constexpr int kTiles = 6;  // more than the stages: each is filled again, and again

struct Arguments {
  const uint32_t* in;
  uint32_t* out;
  int tiles;
};

// The fault of running `text`, or "wrong" for wrong sums, or nothing.
std::string FaultOf(const std::string& text, const Schedule& schedule) {
  const Result<PtxModule> module = PtxModule::Parse(text);
  if (!module.ok()) return module.status().message();
  std::vector<uint32_t> in(kTiles * cuda::kStagedTileWords);
  std::iota(in.begin(), in.end(), 1u);
  std::vector<uint32_t> out(cuda::kBlockThreads);
  DeviceMemory memory;
  const Arguments args{Input<const uint32_t>(&memory, "in", in), Output(&memory, "out", &out),
                       kTiles};
  const Result<Counts> run = RunPtx(*module, "kvant_staged_sum", args, &memory,
                                    {.block = {cuda::kBlockThreads}, .schedule = schedule});
  if (!run.ok()) return run.status().message();
  for (int t = 0; t < cuda::kBlockThreads; ++t) {
    const bool is_right =
        out[static_cast<size_t>(t)] == cuda::ExpectedStagedSum(in.data(), kTiles, t);
    if (!is_right) return "wrong";
  }
  return "";
}

std::vector<Schedule> Schedules() {
  using Warps = Schedule::Warps;
  std::vector<Schedule> schedules = {{Warps::kRoundRobin}, {Warps::kRoundRobin, 0, true}};
  for (uint64_t seed = 0; seed < 4; ++seed) {
    schedules.push_back({Warps::kRandom, seed});
    schedules.push_back({Warps::kRunAhead, seed});
  }
  return schedules;
}

// In how many of the schedules the fault shows.
int Caught(const std::string& text) {
  int caught = 0;
  for (const Schedule& schedule : Schedules()) caught += FaultOf(text, schedule).empty() ? 0 : 1;
  return caught;
}

// The last `from` of the text, which is the loop's, or the one before it.
std::string Replaced(std::string text, const std::string& from, const std::string& to,
                     bool before_last = false) {
  size_t at = text.rfind(from);
  if (before_last) at = text.rfind(from, at - 1);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PtxStaged, IsRightInEverySchedule) {
  KVANT_SKIP_WITHOUT_PTX();
  for (const Schedule& schedule : Schedules()) EXPECT_EQ(FaultOf(PtxText("staged"), schedule), "");
}

TEST(PtxStaged, ShowsAMissingCommit) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string text = Replaced(PtxText("staged"), "cp.async.commit_group;", "");
  EXPECT_EQ(Caught(text), static_cast<int>(Schedules().size())) << "no order of warps hides it";
}

TEST(PtxStaged, ShowsAWaitForTooFew) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string text =
      Replaced(PtxText("staged"), "cp.async.wait_group 1;", "cp.async.wait_group 2;");
  EXPECT_EQ(Caught(text), static_cast<int>(Schedules().size())) << "no order of warps hides it";
}

TEST(PtxStaged, ShowsABarrierDroppedBeforeTheRefill) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string text = Replaced(PtxText("staged"), "bar.sync \t0;", "");
  EXPECT_EQ(Caught(text), static_cast<int>(Schedules().size())) << "no order of warps hides it";
}

TEST(PtxStaged, ShowsABarrierDroppedAfterTheWait) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string text = Replaced(PtxText("staged"), "bar.sync \t0;", "", true);
  EXPECT_EQ(Caught(text), static_cast<int>(Schedules().size())) << "no order of warps hides it";
}

}  // namespace
}  // namespace kvant::ptx
