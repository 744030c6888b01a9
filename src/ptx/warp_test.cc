#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "ptx/kernel_for_test.h"

namespace kvant::ptx {
namespace {

const std::vector<uint32_t> kNothing(1);

// Each thread of one warp stores %r0.
std::vector<uint32_t> EachLane(std::string_view body) {
  std::vector<uint32_t> out(32);
  const TestRun run = RunBody(std::string(body) + R"(
  add.s64 %d1, %out, %t4;
  st.global.u32 [%d1], %r0;)",
                              kNothing, &out);
  EXPECT_EQ(run.fault, "");
  return out;
}

TEST(PtxWarp, ShufflesReadWhereTheManualSays) {
  const auto butterfly = EachLane("shfl.sync.bfly.b32 %r0, %t, 5, 31, -1;");
  const auto up = EachLane("shfl.sync.up.b32 %r0, %t, 3, 0, -1;");
  const auto down = EachLane("shfl.sync.down.b32 %r0, %t, 3, 31, -1;");
  const auto idx = EachLane("shfl.sync.idx.b32 %r0, %t, 9, 31, -1;");
  // Segments of 8 lanes: the mask 0x18 in bits 8 to 12.
  const auto eights = EachLane("shfl.sync.idx.b32 %r0, %t, 5, 0x181f, -1;");
  const auto down_eights = EachLane("shfl.sync.down.b32 %r0, %t, 3, 0x181f, -1;");
  const auto in_range =
      EachLane("shfl.sync.down.b32 %r1|%p1, %t, 3, 31, -1; selp.u32 %r0, 1, 0, %p1;");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(butterfly[lane], lane ^ 5);
    EXPECT_EQ(up[lane], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(down[lane], lane > 28 ? lane : lane + 3);
    EXPECT_EQ(idx[lane], 9u);
    EXPECT_EQ(eights[lane], lane / 8 * 8 + 5);
    EXPECT_EQ(down_eights[lane], lane % 8 > 4 ? lane : lane + 3);
    EXPECT_EQ(in_range[lane], lane < 29 ? 1u : 0u);
  }
}

TEST(PtxWarp, VotesMatchesAndReduces) {
  const std::string is_even = "and.b32 %r9, %t, 1; setp.eq.u32 %p1, %r9, 0; ";
  EXPECT_EQ(EachLane(is_even + "vote.sync.ballot.b32 %r0, %p1, -1;")[7], 0x55555555u);
  EXPECT_EQ(EachLane(is_even + "vote.sync.any.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;")[7], 1u);
  EXPECT_EQ(EachLane(is_even + "vote.sync.all.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;")[7], 0u);
  EXPECT_EQ(EachLane(is_even + "vote.sync.uni.pred %p2, !%p1, -1; selp.u32 %r0, 1, 0, %p2;")[7],
            0u);
  EXPECT_EQ(EachLane("shr.u32 %r9, %t, 3; match.any.sync.b32 %r0, %r9, -1;")[9], 0xff00u);
  EXPECT_EQ(EachLane("match.all.sync.b32 %r0|%p1, %t, -1;")[9], 0u);
  EXPECT_EQ(EachLane("redux.sync.add.s32 %r0, %t, -1;")[3], 496u);
  EXPECT_EQ(EachLane("sub.s32 %r9, 3, %t; redux.sync.min.s32 %r0, %r9, -1;")[3],
            static_cast<uint32_t>(-28));
  EXPECT_EQ(EachLane("activemask.b32 %r0;")[3], 0xffffffffu);
  EXPECT_EQ(EachLane("mov.u32 %r0, %lanemask_lt;")[3], 7u);
  EXPECT_EQ(EachLane("mov.u32 %r0, %lanemask_ge;")[3], 0xfffffff8u);
}

TEST(PtxWarp, HalvesOfAWarpMayMeetApart) {
  // Odd and even lanes shuffle in the two sides of a branch, each with its own mask.
  const auto out = EachLane(R"(
  and.b32 %r9, %t, 1;
  setp.eq.u32 %p1, %r9, 0;
  @%p1 bra $even;
  shfl.sync.bfly.b32 %r0, %t, 2, 31, 0xaaaaaaaa;
  bra $end;
$even:
  shfl.sync.bfly.b32 %r0, %t, 4, 31, 0x55555555;
$end:)");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane ^ (lane % 2 == 0 ? 4 : 2));
}

TEST(PtxWarp, GuardsAndBranchesComeTogetherAgain) {
  const auto out = EachLane(R"(
  mov.u32 %r0, 0;
  mov.u32 %r1, 0;
$again:                          // lane t goes round t + 1 times
  add.u32 %r0, %r0, 2;
  add.u32 %r1, %r1, 1;
  setp.le.u32 %p1, %r1, %t;
  @%p1 bra $again;
  redux.sync.max.u32 %r2, %r0, -1;
  setp.ge.u32 %p2, %t, 16;
  @!%p2 add.u32 %r0, %r0, %r2;)");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], 2 * (lane + 1) + (lane < 16 ? 64 : 0));
  }
}

// What goes wrong where lanes or threads should meet.

std::string FaultOf(std::string_view body, RunOptions options = {.block = {32}}) {
  std::vector<uint32_t> out(256);
  return RunBody(body, kNothing, &out, options).fault;
}

TEST(PtxWarp, ReportsAShuffleInDivergentCode) {
  EXPECT_EQ(FaultOf(R"(
  setp.lt.u32 %p1, %t, 20;
  @%p1 bra $some;
  bra $end;
$some:
  shfl.sync.bfly.b32 %r0, %t, 1, 31, -1;
$end:
  bar.sync 0;)"),
            AtBodyLine(6) +
                "shfl.sync.bfly.b32: divergence: 32 lanes from 0 wait, some of them at "
                "bar.sync of line " +
                std::to_string(kFirstBodyLine + 7) + " (block 0,0,0, thread 0)");
}

TEST(PtxWarp, ReportsMasksThatCannotBeMet) {
  const std::string shuffle = "shfl.sync.bfly.b32 %r0, %t, 1, 31, ";
  EXPECT_NE(FaultOf("setp.eq.u32 %p1, %t, 5; @%p1 exit;\n" + shuffle + "-1;")
                .find("it waits for lane 5, not running any more"),
            std::string::npos);
  EXPECT_NE(FaultOf(shuffle + "0xfffffffe;").find("the mask does not name a lane that runs it"),
            std::string::npos);
  EXPECT_NE(FaultOf("setp.eq.u32 %p1, %t, 5; selp.b32 %r9, 0xff, -1, %p1;\n" + shuffle + "%r9;")
                .find("the lanes disagree on the mask"),
            std::string::npos);
  EXPECT_NE(FaultOf("shfl.sync.idx.b32 %r0, %t, 31, 31, 0xffff;", {.block = {16}})
                .find("it reads lane 31, which the mask does not name"),
            std::string::npos);
}

TEST(PtxWarp, ReportsABarrierThatSomeNeverReach) {
  const RunOptions two_warps{.block = {64}};
  EXPECT_EQ(FaultOf("setp.ge.u32 %p1, %t, 32; @%p1 exit;\n bar.sync 0;", two_warps),
            "deadlock: 32 of 64 threads wait at the barrier of line 18, 32 have ended");
  EXPECT_NE(FaultOf(R"(setp.ge.u32 %p1, %t, 40;
  @%p1 bra $other;
  bar.sync 0;
  bra $end;
$other:
  bar.sync 0;
$end:)",
                    two_warps)
                .find("divergence: 32 lanes from 0 wait"),
            std::string::npos);
  EXPECT_EQ(FaultOf("bar.sync 1, 64;\n bar.sync 0;", two_warps), "");
}

TEST(PtxWarp, ReportsWhatNeverEnds) {
  EXPECT_EQ(FaultOf("$l: bra $l;", {.block = {32}, .max_issued = 1000}),
            "the kernel does not end within 1000 warp instructions");
  EXPECT_EQ(FaultOf("trap;"),
            AtBodyLine(1) + "trap: the kernel stops itself (block 0,0,0, thread 0)");
}

TEST(PtxWarp, ReportsRegistersThatNothingWrote) {
  EXPECT_EQ(FaultOf("setp.lt.u32 %p1, %t, 3;\n@%p1 mov.u32 %r1, 1;\nadd.u32 %r0, %r1, 1;"),
            AtBodyLine(3) + "add.u32: %r1 is read before it is written (block 0,0,0, thread 3)");
  EXPECT_EQ(FaultOf("\n@%p1 mov.u32 %r1, 1;"),
            AtBodyLine(2) + "mov.u32: %p1 is read before it is written (block 0,0,0, thread 0)");
}

TEST(PtxWarp, RefusesLaunchesThatNoDeviceTakes) {
  EXPECT_EQ(FaultOf("", {.block = {2048}}),
            "kernel 'k' takes blocks of 1 to 1024 threads, not 2048");
  EXPECT_EQ(FaultOf("", {.block = {32}, .dynamic_shared_bytes = 1 << 20}),
            "kernel 'k' asks for 1048576 bytes of shared memory");
  const auto module = PtxModule::Parse(KernelText(""));
  ASSERT_TRUE(module.ok());
  DeviceMemory memory;
  EXPECT_EQ(RunKernel(*module, **module->Find("k"), {}, &memory, {}).status().message(),
            "kernel 'k' takes 16 bytes of parameters, not 0");
}

// Schedules: a value passes from warp 0 to warp 1 through shared memory.
//

// A thread's number reaches the thread whose number differs in `partner`, as %r0.
std::string Exchange(std::string_view barrier, int partner) {
  return R"(
  mov.u32 %r1, buffer;
  mad.lo.u32 %r2, %t, 4, %r1;
  st.shared.u32 [%r2], %t;
  )" + std::string(barrier) +
         R"(
  xor.b32 %r3, %t, )" +
         std::to_string(partner) + R"(;
  mad.lo.u32 %r3, %r3, 4, %r1;
  ld.shared.u32 %r0, [%r3];)";
}

std::string PassOn(std::string_view barrier, Schedule schedule) {
  std::vector<uint32_t> out(64);
  const std::string body = Exchange(barrier, 32) + R"(
  add.s64 %d1, %out, %t4;
  st.global.u32 [%d1], %r0;)";
  const TestRun run = RunText(KernelText(body, ".shared .align 4 .b8 buffer[256];"), kNothing, &out,
                              {.block = {64}, .schedule = schedule});
  if (run.fault.empty()) {
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i ^ 32);
  }
  return run.fault;
}

TEST(PtxSchedule, AMissingBarrierIsSeen) {
  using Warps = Schedule::Warps;
  for (const Warps warps : {Warps::kRoundRobin, Warps::kRandom, Warps::kRunAhead}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      EXPECT_EQ(PassOn("bar.sync 0;", {warps, seed}), "");
      EXPECT_EQ(PassOn("barrier.sync.aligned 0;", {warps, seed, true}), "");
    }
  }
  EXPECT_NE(PassOn("", {Warps::kRoundRobin}).find("a race: it reads"), std::string::npos)
      << "the values are right here";
  EXPECT_NE(PassOn("", {Warps::kRunAhead, 0}).find("where nothing was written"), std::string::npos);
  EXPECT_NE(PassOn("", {Warps::kRunAhead, 1}).find("where nothing was written"), std::string::npos);
}

TEST(PtxSchedule, AMissingWarpBarrierIsSeenWhenLanesRunApart) {
  const auto neighbours = [](std::string_view barrier, bool apart) {
    std::vector<uint32_t> out(32);
    return RunText(KernelText(Exchange(barrier, 1), ".shared .align 4 .b8 buffer[128];"), kNothing,
                   &out, {.block = {32}, .schedule = {.lanes_apart = apart}})
        .fault;
  };
  EXPECT_EQ(neighbours("bar.warp.sync -1;", false), "");
  EXPECT_EQ(neighbours("bar.warp.sync -1;", true), "");
  EXPECT_EQ(neighbours("", false), "");
  EXPECT_NE(neighbours("", true).find("where nothing was written"), std::string::npos);
}

// Warp 0 writes a word that both warps have, warp 1 touches it; every order of warps shows it.
TEST(PtxRaces, OfTwoWarpsAreSeenInEveryOrder) {
  const auto fault = [](std::string_view first, std::string_view second, Schedule schedule) {
    std::vector<uint32_t> out(64);
    const std::string body = "setp.lt.u32 %p1, %t, 32; mov.u32 %r1, 7;\n@!%p1 bra $other;\n" +
                             std::string(first) + "\nbra $end;\n$other:\n" + std::string(second) +
                             "\n$end:";
    return RunText(KernelText(body, ".shared .align 4 .b8 word[8];"), kNothing, &out,
                   {.block = {64}, .schedule = schedule})
        .fault;
  };
  const std::string write = "st.shared.u32 [word], %r1;";
  const std::string read = "ld.shared.u32 %r2, [word];";
  const std::string barrier = "bar.sync 0;";
  const std::string text = "of 'shared memory', which warp";
  using Warps = Schedule::Warps;
  for (const Schedule& schedule :
       {Schedule{Warps::kRoundRobin}, Schedule{Warps::kRunAhead, 0}, Schedule{Warps::kRunAhead, 1},
        Schedule{Warps::kRandom, 3}, Schedule{Warps::kRoundRobin, 0, true}}) {
    EXPECT_NE(fault(write, write, schedule).find(text), std::string::npos);
    EXPECT_EQ(fault(write + barrier, barrier + write, schedule), "");
    EXPECT_EQ(fault(write + barrier, barrier + read, schedule), "");
    EXPECT_EQ(fault("st.shared.u32 [word+4], 1;", write, schedule), "") << "another word";
    // A word that is written, read after a barrier, and written again without one.
    EXPECT_NE(fault(write + barrier + read, barrier + write, schedule).find(text),
              std::string::npos);
    EXPECT_EQ(fault(write + barrier + read + barrier, barrier + barrier + write, schedule), "");
    EXPECT_EQ(fault(write + barrier + "red.shared.add.u32 [word], 1;",
                    barrier + "red.shared.add.u32 [word], 2;", schedule),
              "")
        << "atomics do not race";
  }
}

TEST(PtxSchedule, BlocksKnowTheirPlace) {
  std::vector<uint32_t> out(3 * 2 * 2 * 8);
  const TestRun run = RunBody(
      R"(
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1;             // block
  mov.u32 %r5, %tid.y; mov.u32 %r6, %ntid.x; mov.u32 %r7, %ntid.y;
  mad.lo.u32 %r8, %r5, %r6, %t;              // thread of the block
  mul.lo.u32 %r9, %r6, %r7;
  mad.lo.u32 %r10, %r4, %r9, %r8;
  mul.wide.u32 %d1, %r10, 4;
  add.s64 %d1, %out, %d1;
  st.global.u32 [%d1], %r10;)",
      kNothing, &out, {.grid = {3, 4}, .block = {4, 2}, .schedule = {Schedule::Warps::kRandom}});
  EXPECT_EQ(run.fault, "");
  std::vector<uint32_t> expected(out.size());
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(out, expected);
}

TEST(PtxSchedule, IssuesAreCountedByWarp) {
  std::vector<uint32_t> out(64);
  const TestRun run = RunBody(
      "add.u32 %r0, %t, 1; add.u32 %r0, %r0, 1; @%p1 exit;"
      "add.s64 %d1, %out, %t4; st.global.u32 [%d1], %r0;",
      kNothing, &out, {.block = {64}});
  EXPECT_FAULT(run, "%p1 is read before");
  const TestRun good = RunBody(
      "add.u32 %r0, %t, 1; add.u32 %r0, %r0, 1;"
      "add.s64 %d1, %out, %t4; st.global.u32 [%d1], %r0;",
      kNothing, &out, {.block = {64}});
  EXPECT_EQ(good.fault, "");
  EXPECT_EQ(good.counts.by_opcode.at("add.u32"), 4u);
  EXPECT_EQ(good.counts.by_opcode.at("st.global.u32"), 2u);
  EXPECT_EQ(good.counts.issued, 2u * 9);
}

}  // namespace
}  // namespace kvant::ptx
