#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "ptx/kernel_for_test.h"

namespace kvant::ptx {
namespace {

uint32_t F(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t H(float low, float high) { return F32ToF16(low) | uint32_t{F32ToF16(high)} << 16; }

TEST(PtxLanes, IntegersWrapAndKeepTheirSigns) {
  EXPECT_EQ(EvaluateOne("add.s32 %r0, %r1, %r2;", 0xffffffff, 2), 1u);
  EXPECT_EQ(EvaluateOne("sub.u32 %r0, %r1, -1;", 7), 8u);
  EXPECT_EQ(EvaluateOne("mul.lo.s32 %r0, %r1, %r2;", 0x10001, 0x10001), 0x20001u);
  EXPECT_EQ(EvaluateOne("mul.hi.s32 %r0, %r1, %r2;", 0xffffffff, 5), 0xffffffffu);
  EXPECT_EQ(EvaluateOne("mul.hi.u32 %r0, %r1, %r2;", 0xffffffff, 5), 4u);
  EXPECT_EQ(EvaluateOne("mad.lo.s32 %r0, %r1, %r2, %r3;", 3, 4, 5), 17u);
  EXPECT_EQ(EvaluateOne("mul.wide.s32 %d3, %r1, -2; mov.b64 {%r5, %r0}, %d3;", 3), 0xffffffffu);
  EXPECT_EQ(EvaluateOne("mad.wide.u32 %d3, %r1, %r2, 1; mov.b64 {%r0, %r5}, %d3;", 3, 4), 13u);
  EXPECT_EQ(EvaluateOne("cvt.u16.u32 %h1, %r1; mul.wide.s16 %r0, %h1, %h1;", 0xfffe), 4u);
  EXPECT_EQ(EvaluateOne("div.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2),
            static_cast<uint32_t>(-3));
  EXPECT_EQ(EvaluateOne("rem.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2),
            static_cast<uint32_t>(-1));
  EXPECT_EQ(EvaluateOne("min.s32 %r0, %r1, %r2;", 0xffffffff, 2), 0xffffffffu);
  EXPECT_EQ(EvaluateOne("min.u32 %r0, %r1, %r2;", 0xffffffff, 2), 2u);
  EXPECT_EQ(EvaluateOne("max.s32 %r0, %r1, %r2;", 0xffffffff, 2), 2u);
  EXPECT_EQ(EvaluateOne("abs.s32 %r0, %r1;", static_cast<uint32_t>(-5)), 5u);
  EXPECT_EQ(EvaluateOne("neg.s32 %r0, %r1;", 5), static_cast<uint32_t>(-5));
  EXPECT_EQ(EvaluateOne("sad.u32 %r0, %r1, %r2, %r3;", 3, 10, 1), 8u);
  EXPECT_EQ(EvaluateOne("dp4a.u32.s32 %r0, %r1, %r2, %r3;", 0x01020380, 0xff010203, 10),
            10u + 0x80 * 3 + 3 * 2 + 2 * 1 - 1);
}

TEST(PtxLanes, ShiftsByMoreThanTheWidth) {
  EXPECT_EQ(EvaluateOne("shl.b32 %r0, %r1, 40;", 0xff), 0u);
  EXPECT_EQ(EvaluateOne("shr.u32 %r0, %r1, 32;", 0xff), 0u);
  EXPECT_EQ(EvaluateOne("shr.s32 %r0, %r1, 99;", 0x80000000), 0xffffffffu);
  EXPECT_EQ(EvaluateOne("shr.s32 %r0, %r1, 4;", 0x80000000), 0xf8000000u);
  EXPECT_EQ(EvaluateOne("shf.l.wrap.b32 %r0, %r1, %r2, 36;", 0x80000000, 1), 0x18u);
  EXPECT_EQ(EvaluateOne("shf.l.clamp.b32 %r0, %r1, %r2, 36;", 0x80000000, 1), 0x80000000u);
  EXPECT_EQ(EvaluateOne("shf.r.clamp.b32 %r0, %r1, %r2, 4;", 0x80000000, 1), 0x18000000u);
}

TEST(PtxLanes, CountsBits) {
  EXPECT_EQ(EvaluateOne("popc.b32 %r0, %r1;", 0xf0f), 8u);
  EXPECT_EQ(EvaluateOne("clz.b32 %r0, %r1;", 0x10), 27u);
  EXPECT_EQ(EvaluateOne("clz.b32 %r0, %r1;", 0), 32u);
  EXPECT_EQ(EvaluateOne("brev.b32 %r0, %r1;", 1), 0x80000000u);
  EXPECT_EQ(EvaluateOne("bfind.u32 %r0, %r1;", 0x10), 4u);
  EXPECT_EQ(EvaluateOne("bfind.s32 %r0, %r1;", 0xffffffef), 4u);
  EXPECT_EQ(EvaluateOne("bfind.u32 %r0, %r1;", 0), 0xffffffffu);
  EXPECT_EQ(EvaluateOne("bfind.shiftamt.u32 %r0, %r1;", 0x10), 27u);
}

TEST(PtxLanes, ComparesWithAndWithoutSignsAndNumbers) {
  const auto holds = [](const std::string& name, uint32_t a, uint32_t b) {
    return EvaluateOne("setp." + name + " %p1, %r1, %r2; selp.u32 %r0, 1, 0, %p1;", a, b) != 0;
  };
  EXPECT_TRUE(holds("lt.s32", 0xffffffff, 0));
  EXPECT_FALSE(holds("lt.u32", 0xffffffff, 0));
  EXPECT_FALSE(holds("lo.s32", 0xffffffff, 0));
  const uint32_t nan = F(std::nanf(""));
  EXPECT_FALSE(holds("eq.f32", nan, nan));
  EXPECT_FALSE(holds("ne.f32", nan, 0));
  EXPECT_TRUE(holds("neu.f32", nan, 0));
  EXPECT_TRUE(holds("ltu.f32", nan, 0));
  EXPECT_TRUE(holds("nan.f32", nan, 0));
  EXPECT_FALSE(holds("num.f32", nan, 0));
  EXPECT_TRUE(holds("eq.f32", F(0.0f), F(-0.0f)));
  EXPECT_FALSE(holds("gt.ftz.f32", F(1e-40f), F(0.0f)));
  EXPECT_TRUE(holds("gt.f32", F(1e-40f), F(0.0f)));
}

TEST(PtxLanes, ASecondPredicateIsOfTheOppositeComparison) {
  // p = (a < b) and c, q = !(a < b) and c
  const std::string text = R"(setp.ne.s32 %p3, %r3, 0;
    setp.lt.and.s32 %p1|%p2, %r1, %r2, %p3;
    selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; or.b32 %r0, %r5, %r6;)";
  EXPECT_EQ(EvaluateOne(text, 1, 2, 1), 1u);
  EXPECT_EQ(EvaluateOne(text, 2, 1, 1), 2u);
  EXPECT_EQ(EvaluateOne(text, 1, 2, 0), 0u);
  EXPECT_EQ(EvaluateOne(R"(setp.ne.s32 %p3, %r3, 0;
    setp.lt.or.s32 %p1, %r1, %r2, !%p3; selp.u32 %r0, 1, 0, %p1;)",
                        5, 2, 0),
            1u);
}

TEST(PtxLanes, SinglesAreNotContractedAndFlushWhenTold) {
  // 1 + 2^-23 squared loses its last bit as a product; an fma keeps it.
  const uint32_t a = F(1.0f + 0x1p-23f);
  EXPECT_EQ(EvaluateOne("mul.f32 %r5, %r1, %r1; sub.f32 %r0, %r5, %r2;", a, F(1.0f + 0x1p-22f)),
            0u);
  EXPECT_EQ(EvaluateOne("neg.f32 %r5, %r2; fma.rn.f32 %r0, %r1, %r1, %r5;", a, F(1.0f + 0x1p-22f)),
            F(0x1p-46f));
  EXPECT_EQ(EvaluateOne("mul.f32 %r0, %r1, %r2;", F(1e-20f), F(1e-20f)), F(1e-20f * 1e-20f));
  EXPECT_EQ(EvaluateOne("mul.ftz.f32 %r0, %r1, %r2;", F(-1e-20f), F(1e-20f)), F(-0.0f));
  EXPECT_EQ(EvaluateOne("add.ftz.f32 %r0, %r1, %r2;", F(1e-40f), F(0.0f)), 0u);
  EXPECT_EQ(EvaluateOne("add.sat.f32 %r0, %r1, %r2;", F(3.0f), F(0.0f)), F(1.0f));
  EXPECT_EQ(EvaluateOne("sub.f32 %r0, %r1, %r1;", F(INFINITY)), 0x7fffffffu);
  EXPECT_EQ(EvaluateOne("max.f32 %r0, %r1, %r2;", F(NAN), F(-2.0f)), F(-2.0f));
  EXPECT_EQ(EvaluateOne("max.NaN.f32 %r0, %r1, %r2;", F(NAN), F(-2.0f)), 0x7fffffffu);
  EXPECT_EQ(EvaluateOne("max.f32 %r0, %r1, %r2;", F(-0.0f), F(0.0f)), F(0.0f));
  EXPECT_EQ(EvaluateOne("min.f32 %r0, %r1, %r2;", F(0.0f), F(-0.0f)), F(-0.0f));
  EXPECT_EQ(EvaluateOne("div.rn.f32 %r0, %r1, %r2;", F(1.0f), F(3.0f)), F(1.0f / 3.0f));
  EXPECT_EQ(EvaluateOne("rcp.rn.f32 %r0, %r1;", F(4.0f)), F(0.25f));
  EXPECT_EQ(EvaluateOne("sqrt.rn.f32 %r0, %r1;", F(2.0f)), F(std::sqrt(2.0f)));
  EXPECT_EQ(EvaluateOne("rsqrt.approx.f32 %r0, %r1;", F(4.0f)), F(0.5f));
  EXPECT_EQ(EvaluateOne("ex2.approx.ftz.f32 %r0, %r1;", F(-3.0f)), F(0.125f));
  EXPECT_EQ(EvaluateOne("ex2.approx.ftz.f32 %r0, %r1;", F(-130.0f)), 0u);
  EXPECT_EQ(EvaluateOne("lg2.approx.f32 %r0, %r1;", F(8.0f)), F(3.0f));
}

TEST(PtxLanes, PairsOfHalvesAreTwoHalves) {
  EXPECT_EQ(EvaluateOne("add.f16x2 %r0, %r1, %r2;", H(1, 2), H(0.5f, -4)), H(1.5f, -2));
  EXPECT_EQ(EvaluateOne("mul.rn.f16x2 %r0, %r1, %r2;", H(3, -2), H(0.5f, 5)), H(1.5f, -10));
  EXPECT_EQ(EvaluateOne("fma.rn.f16x2 %r0, %r1, %r2, %r3;", H(3, 2), H(4, 5), H(1, -1)), H(13, 9));
  EXPECT_EQ(EvaluateOne("max.f16x2 %r0, %r1, %r2;", H(3, -2), H(0.5f, 5)), H(3, 5));
  EXPECT_EQ(EvaluateOne("neg.f16x2 %r0, %r1;", H(3, -2)), H(-3, 2));
  EXPECT_EQ(EvaluateOne("ex2.approx.f16x2 %r0, %r1;", H(3, -1)), H(8, 0.5f));
  EXPECT_EQ(EvaluateOne("sub.f16x2 %r0, %r1, %r1;", H(INFINITY, 1)), 0x00007fffu);
}

TEST(PtxLanes, ConvertsAndSaturates) {
  EXPECT_EQ(EvaluateOne("cvt.rni.s32.f32 %r0, %r1;", F(2.5f)), 2u);
  EXPECT_EQ(EvaluateOne("cvt.rzi.s32.f32 %r0, %r1;", F(-2.7f)), static_cast<uint32_t>(-2));
  EXPECT_EQ(EvaluateOne("cvt.rmi.s32.f32 %r0, %r1;", F(-2.1f)), static_cast<uint32_t>(-3));
  EXPECT_EQ(EvaluateOne("cvt.rpi.f32.f32 %r0, %r1;", F(2.1f)), F(3.0f));
  EXPECT_EQ(EvaluateOne("cvt.rni.s32.f32 %r0, %r1;", F(3e9f)), 0x7fffffffu);
  EXPECT_EQ(EvaluateOne("cvt.rni.s32.f32 %r0, %r1;", F(-3e9f)), 0x80000000u);
  EXPECT_EQ(EvaluateOne("cvt.rzi.u32.f32 %r0, %r1;", F(-3.0f)), 0u);
  EXPECT_EQ(EvaluateOne("cvt.rzi.u32.f32 %r0, %r1;", F(NAN)), 0u);
  EXPECT_EQ(EvaluateOne("cvt.rn.f32.s32 %r0, %r1;", static_cast<uint32_t>(-7)), F(-7.0f));
  EXPECT_EQ(EvaluateOne("cvt.rn.f32.u32 %r0, %r1;", 0xffffffff), F(4294967296.0f));
  EXPECT_EQ(EvaluateOne("cvt.rn.f32.u8 %r0, %r1;", 0x1ff), F(255.0f));
  EXPECT_EQ(EvaluateOne("cvt.s32.s8 %r0, %r1;", 0x80), 0xffffff80u);
  EXPECT_EQ(EvaluateOne("cvt.u32.u8 %r0, %r1;", 0x180), 0x80u);
  EXPECT_EQ(EvaluateOne("cvt.sat.s8.s32 %r0, %r1;", 300), 127u);
  EXPECT_EQ(EvaluateOne("cvt.sat.s8.s32 %r0, %r1;", static_cast<uint32_t>(-300)), 0xffffff80u);
  EXPECT_EQ(EvaluateOne("cvt.sat.u8.s32 %r0, %r1;", static_cast<uint32_t>(-300)), 0u);
  EXPECT_EQ(EvaluateOne("cvt.rn.f16.f32 %h1, %r1; cvt.u32.u16 %r0, %h1;", F(1.0f / 3)),
            F32ToF16(1.0f / 3));
  EXPECT_EQ(EvaluateOne("cvt.u16.u32 %h1, %r1; cvt.f32.f16 %r0, %h1;", F32ToF16(-2.5f)), F(-2.5f));
  EXPECT_EQ(EvaluateOne("cvt.rn.f16x2.f32 %r0, %r1, %r2;", F(1.0f), F(2.0f)), H(2, 1));
  // E4M3 of 1.5 is 0x3c, of 1000 the largest, 0x7e
  EXPECT_EQ(EvaluateOne("cvt.rn.satfinite.e4m3x2.f32 %h1, %r1, %r2; cvt.u32.u16 %r0, %h1;", F(1.5f),
                        F(1000.0f)),
            0x3c7eu);
  EXPECT_EQ(EvaluateOne("cvt.u16.u32 %h1, %r1; cvt.rn.f16x2.e4m3x2 %r0, %h1;", 0x3c7e),
            H(448, 1.5f));
  EXPECT_EQ(EvaluateOne("cvt.u16.u32 %h1, %r1; cvt.rn.f16x2.e5m2x2 %r0, %h1;", 0x3c40), H(2, 1));
}

TEST(PtxLanes, MovesPackAndUnpack) {
  EXPECT_EQ(EvaluateOne("mov.b32 {%h1, %h2}, %r1; mov.b32 %r0, {%h2, %h1};", 0x12345678),
            0x56781234u);
  EXPECT_EQ(EvaluateOne("mov.b64 %d3, {%r1, %r2}; shr.u64 %d3, %d3, 16; mov.b64 {%r0, _}, %d3;",
                        0x12345678, 0x9abcdef0),
            0xdef01234u);
}

TEST(PtxLanes, DivisionByZeroIsAFault) {
  std::vector<uint32_t> out(1);
  const TestRun run = RunBody("\n mov.u32 %r1, 0;\n div.u32 %r0, %r1, %r1;", out, &out);
  EXPECT_FAULT(run, AtBodyLine(3) + "div.u32: division by zero (block 0,0,0, thread 0)");
}

}  // namespace
}  // namespace kvant::ptx
