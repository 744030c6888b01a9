#include "cache/token_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "codec/codec.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

TEST(TokenWriter, EveryLevelNarrowsEveryHalfAndItsNeighboursAlike) {
  // All halves, the midpoints between them and the floats next to those.
  std::vector<float> values;
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const float a = F16ToF32(static_cast<uint16_t>(h));
    const float b = F16ToF32(static_cast<uint16_t>(h + 1));
    const float middle = h + 1 < 0x7c00 ? a + (b - a) / 2 : 65519.0f;
    for (float x : {a, std::nextafter(middle, 0.0f), middle, std::nextafter(middle, a)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  const int n = static_cast<int>(values.size());
  std::vector<uint16_t> scalar(values.size()), vector(values.size());
  NarrowF16Scalar(values.data(), n, scalar.data());
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(scalar[static_cast<size_t>(i)], F32ToF16(values[static_cast<size_t>(i)]));
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(KVANT_SCALAR_ONLY)
#if defined(__x86_64__)
  constexpr Isa kLevel = Isa::kAvx2;
  constexpr auto kNarrow = NarrowF16Avx2;
#else
  constexpr Isa kLevel = Isa::kNeon;
  constexpr auto kNarrow = NarrowF16Neon;
#endif
  if (!IsaAvailable(kLevel)) GTEST_SKIP() << "no " << IsaName(kLevel) << " here";
  kNarrow(values.data(), n, vector.data());
  ASSERT_EQ(scalar, vector);
  for (int count = 0; count < 20; ++count) {  // tails: exactly `count` values are written
    std::vector<uint16_t> out(32, 0xabcd);
    kNarrow(values.data() + 2000, count, out.data());
    for (int i = 0; i < 32; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)],
                i < count ? scalar[static_cast<size_t>(2000 + i)] : 0xabcd);
    }
  }
#endif
}

TEST(TokenWriter, EveryValueLandsWhereTheCodecReadsItAndNowhereElse) {
  for (const Format& format : {kFormatF32, kFormatF16, kFormatBf16}) {
    for (int head_dim : {4, 64, 80, 96, 100, 128, 256}) {
      for (int tokens : {16, 64, 128}) {
        const PageLayout layout = MakePageLayout(format, format, head_dim, tokens);
        const int stride = head_dim + 3;
        std::vector<float> rows(static_cast<size_t>(tokens * stride), NAN);
        for (int t = 0; t < tokens; ++t) {
          for (int c = 0; c < head_dim; ++c) {
            rows[static_cast<size_t>(t * stride + c)] =
                static_cast<float>((t * 7 + c * 3) % 200 - 99);
          }
        }
        for (Isa isa : AvailableIsas()) {
          ASSERT_TRUE(SetActiveIsa(isa).ok());
          for (const SideLayout* side : {&layout.k, &layout.v}) {
            std::vector<std::byte> page(static_cast<size_t>(side->bytes), std::byte{0xff});
            const int first = tokens == 128 ? 63 : 5, count = tokens - first - 3;
            WriteTokens(*side, page.data(), first, count, rows.data(), stride);
            for (int t = 0; t < tokens; ++t) {
              for (int c = 0; c < head_dim; ++c) {
                const float got = LoadFloatValue(*side, page.data(), t, c);
                if (t < first || t >= first + count) {
                  ASSERT_TRUE(std::isnan(got));
                } else {
                  ASSERT_EQ(got, rows[static_cast<size_t>((t - first) * stride + c)]);
                }
              }
            }
          }
        }
        ASSERT_TRUE(SetActiveIsa(AvailableIsas().back()).ok());
      }
    }
  }
}

TEST(TokenWriter, UnstorableIsTheFirstThatRoundsToInfinity) {
  const auto find = [](FloatType type, float value) {
    std::vector<float> rows(3 * 10, 1.0f);
    rows[1 * 10 + 4] = value;
    rows[2 * 10 + 1] = NAN;
    const auto bad = FindUnstorable(type, rows.data(), 10, 2, 8);
    if (bad) {
      EXPECT_EQ(bad->token, 1);
      EXPECT_EQ(bad->channel, 4);
    }
    return bad.has_value();
  };
  for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBf16}) {
    for (float sign : {1.0f, -1.0f}) {
      EXPECT_TRUE(find(type, sign * INFINITY));
      EXPECT_TRUE(find(type, std::copysign(NAN, sign)));
      EXPECT_FALSE(find(type, sign * 65504.0f));
      EXPECT_FALSE(find(type, sign * 1e-42f));
      EXPECT_EQ(find(type, sign * 65520.0f), type == FloatType::kF16);
      EXPECT_FALSE(find(type, sign * std::nextafter(65520.0f, 0.0f)));
    }
  }
  const float limit = std::bit_cast<float>(0x7f7f8000u);
  EXPECT_TRUE(find(FloatType::kBf16, limit));
  EXPECT_FALSE(find(FloatType::kBf16, std::nextafter(limit, 0.0f)));
  EXPECT_FALSE(find(FloatType::kF32, limit));
}

}  // namespace
}  // namespace kvant
