// Bit and half arithmetic against other ways to compute the same.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/float16.h"
#include "ptx/half_math.h"
#include "ptx/kernel_for_test.h"

namespace kvant::ptx {
namespace {

using Rows = std::vector<std::array<uint32_t, 4>>;

Rows RandomRows(uint64_t seed, size_t count = 64) {
  std::mt19937_64 random(seed);
  Rows rows(count);
  for (auto& row : rows) {
    for (uint32_t& value : row) value = static_cast<uint32_t>(random());
  }
  return rows;
}

// The table of a function is that function of the three tables of its operands.
TEST(PtxProperty, Lop3HasEachOfTheTables) {
  constexpr uint32_t a = 0xf0, b = 0xcc, c = 0xaa;
  for (uint32_t table = 0; table < 256; ++table) {
    const uint32_t got =
        EvaluateOne("lop3.b32 %r0, %r1, %r2, %r3, " + std::to_string(table) + ";", a, b, c);
    ASSERT_EQ(got & 0xff, table);
  }
  const auto rows = RandomRows(1);
  const auto check = [&](const char* table, auto function) {
    const auto out = Evaluate("lop3.b32 %r0, %r1, %r2, %r3, " + std::string(table) + ";", rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(out[i], function(rows[i][0], rows[i][1], rows[i][2])) << table;
    }
  };
  check("0xea", [](uint32_t x, uint32_t y, uint32_t z) { return (x & y) | z; });
  check("0x6a", [](uint32_t x, uint32_t y, uint32_t z) { return (x & y) ^ z; });
  check("0xca", [](uint32_t x, uint32_t y, uint32_t z) { return (x & y) | (~x & z); });
  check("0x1d",
        [](uint32_t x, uint32_t y, uint32_t z) { return ~((x & y) | (~y & z)) & 0xffffffff; });
}

RC_GTEST_PROP(PtxProperty, PrmtPicksBytes, (uint64_t seed)) {
  auto rows = RandomRows(seed);
  const auto out = Evaluate("prmt.b32 %r0, %r1, %r2, %r3;", rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::array<int8_t, 8> bytes;
    std::memcpy(bytes.data(), rows[i].data(), 8);
    std::array<int8_t, 4> expected;
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t selector = rows[i][2] >> (4 * j);
      const int8_t byte = bytes[selector & 7];
      expected[j] = (selector & 8) != 0 ? static_cast<int8_t>(byte >> 7) : byte;
    }
    RC_ASSERT(out[i] == std::bit_cast<uint32_t>(expected));
  }
}

RC_GTEST_PROP(PtxProperty, FieldsAreShiftsAndMasks, (uint64_t seed)) {
  auto rows = RandomRows(seed);
  for (auto& row : rows) row[1] %= 32, row[2] %= 33 - row[1];  // a field that fits
  const auto extracted = Evaluate("bfe.u32 %r0, %r1, %r2, %r3;", rows);
  const auto sign_extracted = Evaluate("bfe.s32 %r0, %r1, %r2, %r3;", rows);
  const auto inserted = Evaluate("bfi.b32 %r0, %r4, %r1, %r2, %r3;", rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [value, start, length, other] = rows[i];
    const uint32_t mask = length == 32 ? 0xffffffffu : (1u << length) - 1;
    RC_ASSERT(extracted[i] == (value >> start & mask));
    const int left = static_cast<int>(32 - length);
    const int32_t signed_field =
        length == 0 ? 0 : static_cast<int32_t>((value >> start & mask) << left) >> left;
    RC_ASSERT(sign_extracted[i] == static_cast<uint32_t>(signed_field));
    RC_ASSERT(inserted[i] == ((value & ~(mask << start)) | (other & mask) << start));
  }
}

RC_GTEST_PROP(PtxProperty, IntegersAreTheHosts, (uint64_t seed)) {
  const auto rows = RandomRows(seed);
  const auto high = Evaluate("mul.hi.s32 %r0, %r1, %r2;", rows);
  const auto mad = Evaluate("mad.lo.u32 %r0, %r1, %r2, %r3;", rows);
  const auto remainder = Evaluate("rem.u32 %r0, %r1, %r2;", rows);
  const auto funnel = Evaluate("shf.l.wrap.b32 %r0, %r1, %r1, %r3;", rows);
  const auto sum =
      Evaluate("add.u32 %r5, %r1, %r2; setp.lt.u32 %p1, %r5, %r1; selp.u32 %r0, 1, 0, %p1;", rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [a, b, c, d] = rows[i];
    const int64_t product = int64_t{static_cast<int32_t>(a)} * static_cast<int32_t>(b);
    RC_ASSERT(high[i] == static_cast<uint32_t>(product >> 32));
    RC_ASSERT(mad[i] == a * b + c);
    RC_ASSERT(remainder[i] == a % b);
    RC_ASSERT(funnel[i] == std::rotl(a, static_cast<int>(c & 31)));
    RC_ASSERT(sum[i] == (uint64_t{a} + b > 0xffffffffu ? 1u : 0u));
  }
}

// The fused multiply-add by another road: the product is exact in double; the sum is made odd where
// it is not exact (its last bit then stands for all that was cut), and double has the two bits more
// than half that make the second rounding harmless.
uint16_t OddFma(uint16_t a, uint16_t b, uint16_t c) {
  const double product = double{F16ToF32(a)} * F16ToF32(b);
  const double addend = F16ToF32(c);
  const double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);  // exact (Knuth's two-sum)
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (error != 0 && (bits & 1) == 0) {
    const bool away = (error > 0) == (sum > 0);
    bits += away ? 1 : -1;
  }
  // To half by hand: the float in between would round first.
  const double odd = std::bit_cast<double>(bits);
  int exponent = 0;
  std::frexp(odd, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 11, -24));
  return F32ToF16(static_cast<float>(std::copysign(std::nearbyint(odd / unit) * unit, odd)));
}

RC_GTEST_PROP(PtxProperty, HalfFmaRoundsOnce, (uint64_t seed)) {
  auto rows = RandomRows(seed, 512);
  for (auto& row : rows) {
    for (uint32_t& pair : row) {
      for (const int shift : {0, 16}) {  // no infinities or NaNs
        if ((pair >> shift & 0x7c00) == 0x7c00) pair ^= 0x4000u << shift;
      }
    }
    // Near cancellation: c close to -a b.
    if ((row[3] & 1) != 0) {
      const float product =
          F16ToF32(static_cast<uint16_t>(row[0])) * F16ToF32(static_cast<uint16_t>(row[1]));
      const uint32_t low = F32ToF16(-product);
      if ((low & 0x7c00) != 0x7c00) row[2] = (row[2] & 0xffff0000u) | low;
    }
  }
  const auto out = Evaluate("fma.rn.f16x2 %r0, %r1, %r2, %r3;", rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const int shift : {0, 16}) {
      const auto half = [&](uint32_t pair) { return static_cast<uint16_t>(pair >> shift); };
      RC_ASSERT(half(out[i]) == OddFma(half(rows[i][0]), half(rows[i][1]), half(rows[i][2])));
    }
  }
}

// Where rounding to float first gives another half: 1 + 2^-11 + a little, which float cannot hold.
TEST(PtxProperty, HalfFmaDiffersFromTwoRoundings) {
  const uint16_t one_and_half_ulp = F32ToF16(1.0f + 0x1p-10f);
  const uint16_t a = F32ToF16(0x1p-12f);
  const uint16_t b = F32ToF16(0x1p-13f);
  // (1 + 2^-10) * (1 - 2^-11 ...) style ties are found by search, not by hand.
  std::mt19937 random(7);
  int different = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto draw = [&] {
      return static_cast<uint16_t>((random() & 0x83ff) | (random() % 28 + 1) << 10);
    };
    const uint16_t x = draw(), y = draw(), z = draw();
    const float twice = std::fma(F16ToF32(x), F16ToF32(y), F16ToF32(z));
    if (F32ToF16(twice) != FmaF16(x, y, z)) ++different;
  }
  EXPECT_GT(different, 0) << "else this test says nothing";
  EXPECT_EQ(FmaF16(a, b, one_and_half_ulp), one_and_half_ulp);
}

TEST(PtxProperty, HalfFmaOfSpecialValues) {
  const uint16_t inf = 0x7c00, negative_zero = 0x8000, one = 0x3c00;
  EXPECT_EQ(FmaF16(inf, one, one), inf);
  EXPECT_EQ(FmaF16(inf, 0, one), kF16Nan);
  EXPECT_EQ(FmaF16(inf, one, 0xfc00), kF16Nan);
  EXPECT_EQ(FmaF16(0x7e01, one, one), kF16Nan);
  EXPECT_EQ(FmaF16(0x7bff, 0x7bff, 0), inf);
  EXPECT_EQ(FmaF16(0x7bff, 0x7bff, 0xfc00), 0xfc00);
  EXPECT_EQ(FmaF16(negative_zero, one, negative_zero), negative_zero);
  EXPECT_EQ(FmaF16(negative_zero, one, 0), 0);
  EXPECT_EQ(FmaF16(one, one, 0xbc00), 0);
  EXPECT_EQ(FmaF16(0x0001, 0x3800, 0), 0);  // half of the smallest: to even
  EXPECT_EQ(FmaF16(0x0001, 0x3801, 0), 1);  // just above
  EXPECT_EQ(FmaF16(0x8001, 0x3800, 0), negative_zero);
  EXPECT_EQ(FmaF16(0x7bff, one, 0x4bff), 0x7bff);  // 65504 + 15.99: below the tie
  EXPECT_EQ(FmaF16(0x7bff, one, 0x4c00), inf);     // 65504 + 16: the tie goes up
}

}  // namespace
}  // namespace kvant::ptx
