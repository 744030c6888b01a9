#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvant {
namespace {

TEST(Float16, EveryHalfRoundTrips) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint16_t half = static_cast<uint16_t>(h);
    const float f = F16ToF32(half);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(f))));
    } else {
      ASSERT_EQ(F32ToF16(f), half) << h;
    }
  }
}

TEST(Float16, RoundsToNearestEvenAndSaturatesToInfinity) {
  EXPECT_EQ(F16ToF32(F32ToF16(65504.0f)), 65504.0f);
  EXPECT_EQ(F16ToF32(F32ToF16(65519.9f)), 65504.0f);
  EXPECT_TRUE(std::isinf(F16ToF32(F32ToF16(65520.0f))));
  EXPECT_EQ(F32ToF16(5.9604645e-8f), 1);        // the smallest subnormal
  EXPECT_EQ(F32ToF16(2.9802322e-8f), 0);        // half of it ties to even
  EXPECT_EQ(F32ToF16(8.9406967e-8f), 2);        // 1.5 times it ties to even
  EXPECT_EQ(F32ToF16(1.00048828125f), 0x3c00);  // 1 + half an ulp ties to even
  EXPECT_EQ(F32ToF16(0.0766666667f), F32ToF16(0.07666015625f));
}

TEST(Bfloat16, RoundTripsAndRounds) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = Bf16ToF32(static_cast<uint16_t>(h));
    if (!std::isnan(f)) {
      ASSERT_EQ(F32ToBf16(f), h);
    }
  }
  EXPECT_EQ(F32ToBf16(1.00390625f), 0x3f80);  // a tie goes to even
  EXPECT_EQ(F32ToBf16(1.01171875f), 0x3f82);
}

}  // namespace
}  // namespace kvant
