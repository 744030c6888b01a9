// A pipeline of asynchronous copies: right in every order of warps, and its faults seen.
#include <gtest/gtest.h>

#include <numeric>

#include "ptx/ptx_files.h"
#include "ptx/run.h"

namespace kvant::ptx {
namespace {

constexpr size_t kThreads = 128;
constexpr int kTiles = 6;  // more than the stages, so that each is filled again

struct Arguments {
  uint64_t in, out;
  int tiles;
  int padding = 0;
};

// The fault of running `text`, or "wrong" for wrong sums, or nothing.
std::string FaultOf(const std::string& text, const Schedule& schedule) {
  const Result<PtxModule> module = PtxModule::Parse(text);
  if (!module.ok()) return module.status().message();
  std::vector<uint32_t> in(kTiles * kThreads * 4);
  std::iota(in.begin(), in.end(), 1u);
  std::vector<uint32_t> out(kThreads);
  DeviceMemory memory;
  const Arguments args{memory.AddInput("in", std::as_bytes(std::span(in))),
                       memory.AddUndefined("out", std::as_writable_bytes(std::span(out))), kTiles};
  const Kernel& kernel = **module->Find("kvant_staged_sum");
  const Result<Counts> run =
      RunKernel(*module, kernel,
                std::as_bytes(std::span(&args, 1)).first(static_cast<size_t>(kernel.param_bytes)),
                &memory, {.block = {kThreads}, .schedule = schedule});
  if (!run.ok()) return run.status().message();
  for (size_t t = 0; t < kThreads; ++t) {
    uint32_t sum = 0;
    for (size_t tile = 0; tile < kTiles; ++tile) sum += in[(tile * kThreads + 127 - t) * 4];
    if (out[t] != sum) return "wrong";
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

// The last `from` of the text, which is the loop's.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.rfind(from);
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

TEST(PtxStaged, ShowsADroppedBarrier) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string text = Replaced(PtxText("staged"), "bar.sync \t0;", "");
  EXPECT_EQ(Caught(text), static_cast<int>(Schedules().size())) << "no order of warps hides it";
}

TEST(PtxStaged, ShowsAnIndexInTheWrongStage) {
  KVANT_SKIP_WITHOUT_PTX();
  // The refill goes to the stage that is being read: its depth, in bytes of shared memory, off by
  // one.
  EXPECT_GT(Caught(Replaced(PtxText("staged"), ", 4096;", ", 2048;")), 0);
}

}  // namespace
}  // namespace kvant::ptx
