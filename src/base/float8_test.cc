#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvant {
namespace {

struct Type {
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);
  int mantissa_bits, bias, last;
};
constexpr Type kTypes[] = {{E4M3ToF32, F32ToE4M3, 3, 7, 0x7e}, {E5M2ToF32, F32ToE5M2, 2, 15, 0x7b}};

double ByFields(const Type& type, int code) {
  const int exponent = (code & 0x7f) >> type.mantissa_bits;
  const int mantissa = code & ((1 << type.mantissa_bits) - 1);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - type.bias - type.mantissa_bits)
                                     : std::ldexp(mantissa + (1 << type.mantissa_bits),
                                                  exponent - type.bias - type.mantissa_bits);
  return code & 0x80 ? -value : value;
}

TEST(Float8, EveryFiniteCodeHasItsValueAndComesBack) {
  for (const Type& type : kTypes) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) > type.last) continue;
      const auto byte = static_cast<uint8_t>(code);
      EXPECT_EQ(type.to_float(byte), ByFields(type, code)) << code;
      EXPECT_EQ(type.from_float(type.to_float(byte)), byte) << code;
    }
  }
  EXPECT_EQ(E4M3ToF32(0x7e), kE4M3Max);
  EXPECT_EQ(E5M2ToF32(0x7b), kE5M2Max);
  EXPECT_TRUE(std::isnan(E4M3ToF32(0x7f)) && std::isnan(E4M3ToF32(0xff)));
  EXPECT_TRUE(std::isinf(E5M2ToF32(0x7c)) && std::isnan(E5M2ToF32(0xfd)));
}

// The two floats around every midpoint, and the midpoint itself.
TEST(Float8, RoundsToNearestAndHalfToEven) {
  for (const Type& type : kTypes) {
    for (int code = 0; code < type.last; ++code) {
      const auto low = static_cast<uint8_t>(code), high = static_cast<uint8_t>(code + 1);
      const float middle = 0.5f * (type.to_float(low) + type.to_float(high));
      EXPECT_EQ(type.from_float(std::nextafter(middle, 0.0f)), low) << code;
      EXPECT_EQ(type.from_float(middle), code % 2 == 0 ? low : high) << code;
      EXPECT_EQ(type.from_float(std::nextafter(middle, 1e9f)), high) << code;
      EXPECT_EQ(type.from_float(-middle), 0x80 | (code % 2 == 0 ? low : high)) << code;
    }
  }
}

TEST(Float8, SaturatesInsteadOfNan) {
  for (float x : {448.0f, 464.0f, 465.0f, 500.0f, 61440.0f, 3.0e38f}) {
    EXPECT_EQ(F32ToE4M3(x), 0x7e) << x;
    EXPECT_EQ(F32ToE4M3(-x), 0xfe) << x;
  }
  for (float x : {57344.0f, 61440.0f, 65504.0f, 3.0e38f}) {
    EXPECT_EQ(F32ToE5M2(x), 0x7b) << x;
    EXPECT_EQ(F32ToE5M2(-x), 0xfb) << x;
  }
}

TEST(Float8, RmsErrorOnNormalValues) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr int kCount = 1 << 20;
  double error[2] = {};
  for (int i = 0; i < kCount; ++i) {
    const float x = normal(random);
    for (int t = 0; t < 2; ++t) {
      error[t] += std::pow(kTypes[t].to_float(kTypes[t].from_float(x)) - x, 2);
    }
  }
  EXPECT_NEAR(std::sqrt(error[0] / kCount), 0.0266, 0.01 * 0.0266);
  EXPECT_NEAR(std::sqrt(error[1] / kCount), 0.0523, 0.01 * 0.0523);
}

TEST(Float8, WorkedValues) {
  const struct {
    float value;
    int e4m3, e5m2;
  } rows[] = {{1.0f, 0x38, 0x3c},     {0.1f, 0x1d, 0x2e},    {-0.37f, 0xac, 0xb6},
              {500.0f, 0x7e, 0x60},   {0x1p-6f, 0x08, 0x24}, {0x1p-9f, 0x01, 0x18},
              {0x1p-10f, 0x00, 0x14}, {1.0625f, 0x38, 0x3c}, {17.0f, 0x58, 0x4c},
              {-0.0f, 0x80, 0x80},    {1e-30f, 0x00, 0x00}};
  for (const auto& row : rows) {
    EXPECT_EQ(F32ToE4M3(row.value), row.e4m3) << row.value;
    EXPECT_EQ(F32ToE5M2(row.value), row.e5m2) << row.value;
  }
}

}  // namespace
}  // namespace kvant
