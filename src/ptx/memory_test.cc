#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "ptx/kernel_for_test.h"

namespace kvant::ptx {
namespace {

std::vector<uint32_t> Counting(size_t n) {
  std::vector<uint32_t> values(n);
  std::iota(values.begin(), values.end(), 0u);
  return values;
}

std::string FaultOf(std::string_view body, std::string_view declarations = "") {
  std::vector<uint32_t> out(32);
  return RunText(KernelText(body, declarations), Counting(32), &out, {.block = {32}}).fault;
}

TEST(PtxMemory, EveryAccessStaysInsideItsAllocation) {
  EXPECT_EQ(FaultOf("ld.global.u32 %r0, [%in+124];"), "");
  EXPECT_EQ(FaultOf("ld.global.u32 %r0, [%in+128];"),
            AtBodyLine(1) +
                "ld.global.u32: a read of 4 bytes at offset 128 of 'in' passes its end, "
                "128 (block 0,0,0, thread 0)");
  EXPECT_NE(FaultOf("ld.global.u32 %r0, [%in+-4];").find("offset -4 of 'in'"), std::string::npos);
  EXPECT_NE(FaultOf("ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in+116];").find("is not aligned"),
            std::string::npos);
  EXPECT_NE(FaultOf("ld.global.u16 %h0, [%in+1];").find("is not aligned"), std::string::npos);
  EXPECT_NE(FaultOf("st.global.u32 [%in], 1;").find("a write to 'in', which is read-only"),
            std::string::npos);
  EXPECT_NE(FaultOf("mov.u64 %d0, 64; ld.global.u32 %r0, [%d0];")
                .find("the address belongs to no allocation"),
            std::string::npos);
  EXPECT_NE(FaultOf("ld.global.u32 %r0, [%out];").find("where nothing was written"),
            std::string::npos);
  EXPECT_NE(FaultOf("ld.param.u64 %d0, [out+8];").find("of 'the parameters' passes its end"),
            std::string::npos);
  EXPECT_NE(FaultOf("ld.global.v2.u32 %r0, [%in];").find("another number of elements"),
            std::string::npos);
}

TEST(PtxMemory, SharedMemoryIsPoisonedAndOfItsSize) {
  const std::string_view buffer = ".shared .align 16 .b8 a[8]; .shared .align 16 .b8 b[8];";
  EXPECT_EQ(FaultOf("st.shared.u32 [b+4], 7; ld.shared.u32 %r0, [b+4];", buffer), "");
  EXPECT_NE(FaultOf("ld.shared.u32 %r0, [b];", buffer).find("offset 16 of 'shared memory', where "),
            std::string::npos);
  EXPECT_EQ(FaultOf("mov.u32 %r1, -4; st.shared.u32 [%r1+8], 7; ld.shared.u32 %r0, [a+4];", buffer),
            "")
      << "addresses wrap at 32 bits";
  EXPECT_NE(FaultOf("st.shared.u32 [b+16], 7;", buffer).find("passes its end"), std::string::npos);
}

TEST(PtxMemory, GenericAddressesReachEverySpace) {
  std::vector<uint32_t> out(4);
  const std::string text = R"(
.version 9.0
.target sm_80
.address_size 64
.const .align 4 .b8 table[8] = {0, 0, 128, 63, 0, 0, 0, 64};
.global .align 4 .u32 counter = 41;
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %d<8>;
  .shared .align 8 .b8 a[8]; .local .align 8 .b8 l[8];
  ld.param.u64 %d0, [out];
  ld.const.f32 %r0, [table+4];
  st.global.f32 [%d0], %r0;
  mov.u64 %d1, table; cvta.const.u64 %d2, %d1;
  ld.f32 %r1, [%d2];
  st.global.f32 [%d0+4], %r1;
  mov.u64 %d3, counter;
  atom.global.add.u32 %r2, [%d3], 1;
  ld.u32 %r3, [counter];
  st.global.u32 [%d0+8], %r3;
  mov.u64 %d4, a; cvta.shared.u64 %d4, %d4; st.u32 [%d4+4], 7;
  mov.u64 %d5, l; cvta.local.u64 %d5, %d5; st.u32 [%d5], 8;
  ld.shared.u32 %r4, [a+4]; ld.local.u32 %r5, [l]; add.u32 %r4, %r4, %r5;
  cvta.to.shared.u64 %d6, %d4; cvt.u32.u64 %r6, %d6; ld.shared.u32 %r7, [%r6+4];
  add.u32 %r4, %r4, %r7;
  st.global.u32 [%d0+12], %r4;
  ret;
})";
  const TestRun run = RunText(text, Counting(1), &out, {.block = {1}});
  EXPECT_EQ(run.fault, "");
  EXPECT_EQ(out, (std::vector<uint32_t>{0x40000000, 0x3f800000, 42, 22}));
}

TEST(PtxMemory, LoadsExtendAndStoresCut) {
  std::vector<uint32_t> out(4);
  const TestRun run = RunBody(R"(
  ld.global.s8 %r0, [%in+1]; st.global.u32 [%out], %r0;
  ld.global.u8 %r1, [%in+1]; st.global.u32 [%out+4], %r1;
  ld.global.nc.L1::no_allocate.L2::128B.v2.u16 {%h0, %h1}, [%in]; mov.b32 %r2, {%h1, %h0};
  st.global.u32 [%out+8], %r2;
  st.global.v2.u8 [%out+12], {%r2, %r1}; st.global.u16 [%out+14], 3;)",
                              std::vector<uint32_t>{0x1234f180}, &out, {.block = {1}});
  EXPECT_EQ(run.fault, "");
  EXPECT_EQ(out, (std::vector<uint32_t>{0xfffffff1, 0xf1, 0xf1801234, 0x0003f134}));
}

TEST(PtxMemory, AtomicsTakeTheirTurns) {
  std::vector<uint32_t> out(8);
  const TestRun run = RunBody(R"(
  setp.eq.u32 %p1, %t, 0;
  @%p1 st.global.v4.u32 [%out], {0, 0, 0, 0};
  @%p1 st.global.v4.u32 [%out+16], {0, 0x3f800000, 0, 100};
  bar.warp.sync -1;
  red.global.add.u32 [%out], %t;
  atom.global.max.s32 %r0, [%out+4], %t;
  atom.global.cas.b32 %r1, [%out+8], 0, %t;
  atom.global.inc.u32 %r2, [%out+12], 5;
  atom.global.exch.b32 %r3, [%out+16], %t;
  red.global.add.f32 [%out+20], 0f3F000000;
  red.global.or.b32 [%out+24], %t;
  red.global.min.u32 [%out+28], 7;)",
                              Counting(1), &out);
  EXPECT_EQ(run.fault, "");
  EXPECT_EQ(out,
            (std::vector<uint32_t>{496, 31, 1, 32 % 6, 31, std::bit_cast<uint32_t>(17.0f), 31, 7}));
}

// Traffic.
//

Traffic LoadsOf(std::string_view body, size_t in_values = 4096) {
  std::vector<uint32_t> out(64);
  const TestRun run = RunBody(body, Counting(in_values), &out);
  EXPECT_EQ(run.fault, "");
  EXPECT_EQ(run.counts.allocations.at(0).name, "in");
  return run.counts.allocations[0].loads;
}

TEST(PtxTraffic, AWholeRowOfAWarpIsWhatItUses) {
  const Traffic traffic = LoadsOf(
      "mul.wide.u32 %d0, %t, 16; add.s64 %d0, %in, %d0; ld.global.v4.u32 {%r0,%r1,%r2,%r3}, "
      "[%d0];");
  EXPECT_EQ(traffic.requests, 1u);
  EXPECT_EQ(traffic.request_bytes, 512u);
  EXPECT_EQ(traffic.request_sectors, 16u);
  EXPECT_EQ(traffic.sectors, 16u);
  EXPECT_EQ(traffic.fetched_per_request_byte(), 1.0);
}

TEST(PtxTraffic, AnOffsetRowTouchesOneSectorMore) {
  const Traffic traffic = LoadsOf("add.s64 %d0, %in, %t4; ld.global.u32 %r0, [%d0+4];");
  EXPECT_EQ(traffic.request_bytes, 128u);
  EXPECT_EQ(traffic.request_sectors, 5u);
  EXPECT_EQ(traffic.fetched_per_request_byte(), 1.25);
}

TEST(PtxTraffic, AStrideFetchesASectorForEachWord) {
  const Traffic traffic =
      LoadsOf("mul.wide.u32 %d0, %t, 64; add.s64 %d0, %in, %d0; ld.global.u32 %r0, [%d0];");
  EXPECT_EQ(traffic.fetched_per_request_byte(), 8.0);
  EXPECT_EQ(traffic.fetched_per_byte(), 8.0);
}

TEST(PtxTraffic, LanesThatShareBytesUseThemOnce) {
  const Traffic traffic = LoadsOf("ld.global.u32 %r0, [%in]; ld.global.u32 %r1, [%in+4];");
  EXPECT_EQ(traffic.requests, 2u);
  EXPECT_EQ(traffic.request_bytes, 8u);
  EXPECT_EQ(traffic.request_sectors, 2u);
  EXPECT_EQ(traffic.bytes, 8u);
  EXPECT_EQ(traffic.sectors, 1u) << "over the launch it is one";
}

TEST(PtxTraffic, LanesThatAreOffAskForNothing) {
  const Traffic traffic =
      LoadsOf("setp.lt.u32 %p1, %t, 8; add.s64 %d0, %in, %t4; @%p1 ld.global.u32 %r0, [%d0];");
  EXPECT_EQ(traffic.request_bytes, 32u);
  EXPECT_EQ(traffic.request_sectors, 1u);
}

TEST(PtxTraffic, OverlapsInAnyOrderCountOnce) {
  TrafficMeter meter(256);
  meter.Count({{64, 16}, {0, 16}, {72, 16}, {0, 4}, {8, 64}});
  const Traffic total = meter.Total();
  EXPECT_EQ(total.request_bytes, 88u);
  EXPECT_EQ(total.request_sectors, 3u);
  EXPECT_EQ(total.bytes, 88u);
  EXPECT_EQ(total.sectors, 3u);
}

// cp.async.
//

// Thread 0 copies, waits as told, and reads what it copied.
std::string CopyFault(std::string_view between) {
  std::vector<uint32_t> out(8);
  const std::string body = R"(
  mov.u32 %r1, buffer;
  cp.async.cg.shared.global.L2::128B [%r1], [%in+16], 16;
  cp.async.commit_group;
  cp.async.ca.shared.global [%r1+16], [%in], 8, 4;
  cp.async.commit_group;
  )" + std::string(between) +
                           R"(
  ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [buffer];
  st.global.v4.u32 [%out], {%r2, %r3, %r4, %r5};
  ld.shared.v2.u32 {%r2, %r3}, [buffer+16];
  st.global.v4.u32 [%out+16], {%r2, %r3, 0, 0};)";
  const TestRun run = RunText(KernelText(body, ".shared .align 16 .b8 buffer[32];"),
                              std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}, &out, {.block = {1}});
  if (run.fault.empty()) {
    EXPECT_EQ(out, (std::vector<uint32_t>{5, 6, 7, 8, 1, 0, 0, 0}));
  }
  return run.fault;
}

TEST(PtxTraffic, BanksGiveAWordATurn) {
  const auto turns = [](uint64_t stride, uint64_t bytes) {
    std::vector<ByteRange> ranges;
    for (uint64_t lane = 0; lane < 32; ++lane) ranges.push_back({lane * stride, bytes});
    return TurnsOf(ranges);
  };
  EXPECT_EQ(turns(0, 4), 1u) << "all lanes ask for one word";
  EXPECT_EQ(turns(4, 4), 1u);
  EXPECT_EQ(turns(2, 2), 1u) << "two lanes to a word";
  EXPECT_EQ(turns(8, 4), 2u);
  EXPECT_EQ(turns(128, 4), 32u);
  EXPECT_EQ(turns(132, 4), 1u);
  EXPECT_EQ(turns(8, 8), 2u) << "16 lanes fill the banks";
  EXPECT_EQ(turns(16, 16), 4u);
  EXPECT_EQ(turns(32, 16), 8u);
}

TEST(PtxCopies, ArriveWhenTheirGroupIsWaitedFor) {
  EXPECT_EQ(CopyFault("cp.async.wait_group 0;"), "");
  EXPECT_EQ(CopyFault("cp.async.wait_all;"), "");
  EXPECT_NE(
      CopyFault("").find("offset 0 of 'shared memory', where nothing was written or a copy is"),
      std::string::npos);
  EXPECT_NE(CopyFault("cp.async.wait_group 2;").find("offset 0 of"), std::string::npos);
  EXPECT_NE(CopyFault("cp.async.wait_group 1;").find("offset 16 of"), std::string::npos);
}

TEST(PtxCopies, UnsettledGroupsAreNotWaitedFor) {
  const std::string_view buffer = ".shared .align 16 .b8 buffer[32];";
  const std::string copy = "mov.u32 %r1, buffer; cp.async.cg.shared.global [%r1], [%in], 16;";
  const std::string read = "ld.shared.u32 %r2, [buffer];";
  EXPECT_EQ(FaultOf(copy + "cp.async.wait_all;" + read, buffer), "");
  EXPECT_NE(FaultOf(copy + "cp.async.wait_group 0;" + read, buffer).find("a copy is under way"),
            std::string::npos);
  EXPECT_NE(FaultOf("st.shared.u32 [buffer], 1;" + copy + read, buffer).find("a copy is under way"),
            std::string::npos)
      << "what lay there before is gone from the issue on";
  EXPECT_NE(FaultOf("mov.u32 %r1, buffer; cp.async.cg.shared.global [%r1], [%in], 8;", buffer)
                .find("of this many bytes"),
            std::string::npos);
  EXPECT_NE(FaultOf("mov.u32 %r1, buffer; cp.async.cg.shared.global [%r1+8], [%in], 16;", buffer)
                .find("is not aligned"),
            std::string::npos);
}

}  // namespace
}  // namespace kvant::ptx
