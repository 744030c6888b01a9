#include "codec/small_float.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/float8.h"
#include "codec/code_place.h"
#include "codec/test_pages.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

constexpr const char* kSpecs[] = {"fp8_e4m3", "fp8_e5m2",     "mxfp4", "mxfp4:c20",
                                  "nvfp4",    "nvfp4_4over6", "if4"};
constexpr float kWorkedGroup[] = {0.42f, -0.13f, 0.87f, 0.05f, -0.28f, 0.61f, 0.17f, -0.02f};

Format Parse(const char* spec) { return ParseFormat(spec, Side::kK).value(); }

struct Coded {
  uint16_t scale = 0;
  std::vector<uint8_t> codes;
  double mean_squared_error = 0;
};

Coded Code(const char* spec, std::span<const float> values) {
  const Format format = Parse(spec);
  Coded coded;
  coded.codes.resize(values.size());
  coded.scale = EncodeSmallFloats(format, values, coded.codes);
  for (size_t i = 0; i < values.size(); ++i) {
    const double decoded = SmallFloatValue(format, coded.scale, coded.codes[i]);
    coded.mean_squared_error +=
        std::pow(values[i] - decoded, 2) / static_cast<double>(values.size());
  }
  return coded;
}

TEST(SmallFloat, WorkedGroupOfEveryFp4Format) {
  const struct {
    const char* spec;
    int scale;
    double error;
  } rows[] = {{"mxfp4", 124, 3.7891e-3},
              {"mxfp4:c20", 124, 3.7891e-3},
              {"nvfp4", F32ToE4M3(0.140625f), 5.9235e-4},
              {"nvfp4_4over6", F32ToE4M3(0.140625f), 5.9235e-4},
              {"if4", F32ToE4M3(0.140625f), 5.9235e-4}};
  const std::vector<uint8_t> by_eighth = {5, 10, 7, 1, 12, 6, 3, 8};  // 3 -1 6 .5 -2 4 1.5 -0
  const std::vector<uint8_t> by_sixth = {5, 10, 7, 1, 12, 6, 2, 8};   // 3 -1 6 .5 -2 4 1 -0
  for (const auto& row : rows) {
    const Coded coded = Code(row.spec, kWorkedGroup);
    EXPECT_EQ(coded.scale, row.scale) << row.spec;
    EXPECT_EQ(coded.codes, row.scale == 124 ? by_eighth : by_sixth) << row.spec;
    EXPECT_NEAR(coded.mean_squared_error, row.error, 1e-4 * row.error) << row.spec;
  }
}

TEST(SmallFloat, FourBitFloatsRoundHalfToEvenAndSaturate) {
  // 4 in a group of the OCP rule makes the scale 1; values up to 8 occur with 6 as the end.
  const std::vector<float> values = {7.9f,  0.25f, 0.75f, 1.25f,  1.75f,  2.5f, 3.5f,
                                     5.0f,  0.26f, 0.74f, 1.26f,  1.74f,  2.6f, 3.4f,
                                     5.01f, 0.0f,  -0.0f, -0.25f, -0.75f, -7.0f};
  const std::vector<uint8_t> expected = {7, 0, 2, 2, 4, 4, 6, 6, 1,  1,
                                         3, 3, 5, 5, 7, 0, 8, 8, 10, 15};
  const Coded coded = Code("mxfp4", values);
  EXPECT_EQ(coded.scale, 127);
  EXPECT_EQ(coded.codes, expected);
}

// Where each rule steps from one power of two to the next.
TEST(SmallFloat, PowersOfTwoFollowTheirRules) {
  const auto scale = [](const char* spec, float amax) { return Code(spec, {{amax, 0.0f}}).scale; };
  EXPECT_EQ(scale("mxfp4", 4.0f), 127);
  EXPECT_EQ(scale("mxfp4", std::nextafter(4.0f, 0.0f)), 126);
  EXPECT_EQ(scale("mxfp4", std::nextafter(8.0f, 0.0f)), 127);
  EXPECT_EQ(scale("mxfp4", 8.0f), 128);
  EXPECT_EQ(scale("mxfp4:c20", 7.07f), 127);  // 5 sqrt(2) = 7.0711
  EXPECT_EQ(scale("mxfp4:c20", 7.08f), 128);
  EXPECT_EQ(scale("mxfp4:c20", 3.53f), 126);
  EXPECT_EQ(scale("mxfp4", F16ToF32(1)), 127 - 24 - 2);
  EXPECT_EQ(scale("mxfp4", 65504.0f), 127 + 15 - 2);
}

TEST(SmallFloat, FourOverSixTakesTheSmallerError) {
  // 4 against 6 in a group whose second value lies between codes 4 and 6 of the scale amax / 6.
  const std::vector<float> values = {4.0f, 3.0f, 3.0f, 3.0f};
  EXPECT_EQ(Code("nvfp4_4over6", values).scale, F32ToE4M3(1.0f));
  EXPECT_EQ(Code("nvfp4_4over6", values).mean_squared_error, 0.0);
  EXPECT_EQ(Code("nvfp4", values).scale, F32ToE4M3(4.0f / 6));
  // Of equal errors 6: both hold 0 and amax exactly.
  EXPECT_EQ(Code("nvfp4_4over6", {{6.0f, 0.0f}}).scale, F32ToE4M3(1.0f));
}

TEST(SmallFloat, If4TakesWholeNumbersWhereTheyAreNearer) {
  const float seventh = 6.0f / 7;
  const std::vector<float> values = {-6.0f, 5 * seventh, -3 * seventh, 2 * seventh, 0.0f};
  const Coded coded = Code("if4", values);
  EXPECT_EQ(coded.scale, 0x80 | F32ToE4M3(1.0f));
  EXPECT_EQ(coded.codes, (std::vector<uint8_t>{9, 5, 13, 2, 0}));
  EXPECT_LT(coded.mean_squared_error, 1e-12);
  EXPECT_EQ(Code("if4", {{6.0f, 0.0f}}).scale, F32ToE4M3(1.0f));  // E2M1 of equals
}

TEST(SmallFloat, GroupsOfZerosAreZero) {
  for (const char* spec : kSpecs) {
    const Coded coded = Code(spec, {{0.0f, -0.0f, 0.0f}});
    EXPECT_EQ(coded.scale, 0) << spec;
    EXPECT_EQ(coded.codes, std::vector<uint8_t>(3, 0)) << spec;
  }
}

// Everything that f16 holds is coded within half a step of the largest code, but for the ends of
// E4M3 scales, which small_float.h names.
TEST(SmallFloat, HoldsTheRangeThatItNames) {
  for (const char* spec : kSpecs) {
    const bool e4m3_scale =
        Parse(spec).scale == Scale::kE4M3 || Parse(spec).scale == Scale::kE4M3FourOrSix;
    for (int half = 1; half < 0x7c00; half += 7) {
      const float x = F16ToF32(static_cast<uint16_t>(half));
      const Coded coded = Code(spec, {{x, -x, 0.0f}});
      const double off = std::sqrt(1.5 * coded.mean_squared_error);
      if (e4m3_scale && x > 2688.0f) {
        EXPECT_NEAR(off, x - 2688.0f, 0.1) << spec << " " << x;
      } else if (e4m3_scale && x < 0x1p-9f) {
        EXPECT_LE(off, 0x1p-11 * 1.0001) << spec << " " << x;
      } else {
        // A scale among the subnormals of E4M3 is off by half of 2^-9, six times in the largest.
        EXPECT_LE(off, std::max(0.26 * x, e4m3_scale ? 6 * 0x1p-10 : 0.0)) << spec << " " << x;
      }
    }
  }
}

TEST(SmallFloat, WorkedGroupOfEightBitFloats) {
  const std::vector<int> e4m3 = {0x2d, 0xa0, 0x36, 0x15, 0xa9, 0x32, 0x23, 0x8a};
  const std::vector<int> e5m2 = {0x37, 0xb0, 0x3b, 0x2a, 0xb4, 0x39, 0x31, 0xa5};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(F32ToE4M3(kWorkedGroup[i]), e4m3[i]) << i;
    EXPECT_EQ(F32ToE5M2(kWorkedGroup[i]), e5m2[i]) << i;
  }
}

// Every code of FP8 in one vector: the scale is 1, so each comes back as itself.
TEST(SmallFloat, EveryFp8CodeSurvivesAVector) {
  for (const char* spec : {"fp8_e4m3", "fp8_e5m2"}) {
    const Format format = Parse(spec);
    const int last = format.levels == Levels::kE4M3 ? 0x7e : 0x7b;
    std::vector<float> values;
    std::vector<uint8_t> expected;
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) > last) continue;
      expected.push_back(static_cast<uint8_t>(code));
      values.push_back(SmallFloatValue(format, F32ToF16(1.0f), expected.back()));
    }
    const Coded coded = Code(spec, values);
    EXPECT_EQ(coded.scale, F32ToF16(1.0f)) << spec;
    EXPECT_EQ(coded.codes, expected) << spec;
    EXPECT_EQ(coded.mean_squared_error, 0.0) << spec;
  }
}

// A side is its groups, each coded on its own; sinks and padding are zeros.
TEST(SmallFloat, SidesHoldTheirGroups) {
  for (const char* spec : kSpecs) {
    for (const int head_dim : {4, 64, 72, 80, 100}) {
      for (Side side : {Side::kK, Side::kV}) {
        const OpenSide open(side, head_dim, 64, [](int t, int c) {
          return 8.0f * MixUnit(static_cast<uint64_t>(t * 1024 + c)) - 4.0f;
        });
        const CodedSide coded = CodeByReference(open, Parse(spec), 3);
        const SideLayout& s = coded.layout;
        for (int t = 0; t < 64; ++t) {
          for (int first = 0; first < head_dim; first += s.group) {
            std::vector<float> values;
            for (int c = first; c < std::min(first + s.group, head_dim); ++c) {
              values.push_back(t < 3 ? 0.0f : open.At(t, c));
            }
            const Coded expected = Code(spec, values);
            for (size_t i = 0; i < values.size(); ++i) {
              ASSERT_EQ(coded.At(t, first + static_cast<int>(i)),
                        SmallFloatValue(s.format, expected.scale, expected.codes[i]))
                  << spec << " " << head_dim << " token " << t << " group at " << first;
            }
          }
        }
        if (s.format.is_float4() && side == Side::kK && head_dim % 16 != 0) {
          EXPECT_EQ(LoadCode(s, coded.bytes.data(), 5, head_dim), 0);
        }
      }
    }
  }
}

class PublishedOrder : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedOrder, IsARowOfCodesAndARowOfScalesATokenAndComesBack) {
  const Format format = Parse(GetParam());
  for (Side side : {Side::kK, Side::kV}) {
    constexpr int kHeadDim = 72, kTokens = 128;
    std::vector<float> values(kTokens * kHeadDim);
    for (size_t i = 0; i < values.size(); ++i) values[i] = MixUnit(i) - 0.5f;
    std::copy(std::begin(kWorkedGroup), std::end(kWorkedGroup),
              values.begin() + 65 * kHeadDim + 64);  // the short group of token 65
    const PublishedBytes bytes = PublishedArrayBytes(format, side, kTokens, kHeadDim).value();
    const auto encoded_bytes = EncodedArrayBytes(format, side, kTokens, kHeadDim).value();
    std::vector<std::byte> encoded(static_cast<size_t>(encoded_bytes));
    std::vector<std::byte> codes(static_cast<size_t>(bytes.codes), std::byte{0xff}),
        scales(static_cast<size_t>(bytes.scales), std::byte{0xff}), again(encoded.size());
    ASSERT_TRUE(EncodeArray(format, side, values, kTokens, kHeadDim, encoded).ok());
    ASSERT_TRUE(ExportPublished(format, side, encoded, kTokens, kHeadDim, codes, scales).ok());
    ASSERT_TRUE(ImportPublished(format, side, codes, scales, kTokens, kHeadDim, again).ok());
    EXPECT_EQ(again, encoded);

    const size_t row = codes.size() / kTokens, scale_row = scales.size() / kTokens;
    EXPECT_EQ(row, static_cast<size_t>(kHeadDim * format.bits / 8));
    const int group = format.group == 0 ? kHeadDim : format.group;
    EXPECT_EQ(scale_row, static_cast<size_t>(format.group == 0 ? 2 : DivideUp(kHeadDim, group)));
    if (format.scale == Scale::kE8M0) {
      EXPECT_EQ(scales[66 * scale_row - 1], std::byte{124});
      const int expected[] = {0xa5, 0x17, 0x6c, 0x83};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(static_cast<int>(codes[66 * row - 4 + i]), expected[i]) << i;
      }
    }
    // Any token: code and scale as the group alone gives them.
    const size_t token = 101;
    std::vector<float> x;
    for (int c = 0; c < group; ++c) {
      x.push_back(F16ToF32(F32ToF16(values[token * kHeadDim + static_cast<size_t>(c)])));
    }
    const Coded first = Code(GetParam(), x);
    EXPECT_EQ(static_cast<int>(scales[token * scale_row]), first.scale & 0xff);
    const int packed = format.bits == 8 ? first.codes[0] : first.codes[0] | first.codes[1] << 4;
    EXPECT_EQ(static_cast<int>(codes[token * row]), packed);
  }
}

TEST_P(PublishedOrder, RefusesOtherSizes) {
  const Format format = Parse(GetParam());
  const PublishedBytes bytes = PublishedArrayBytes(format, Side::kK, 64, 64).value();
  std::vector<std::byte> encoded(
      static_cast<size_t>(EncodedArrayBytes(format, Side::kK, 64, 64).value()));
  std::vector<std::byte> codes(static_cast<size_t>(bytes.codes)),
      scales(static_cast<size_t>(bytes.scales) + 1);
  const auto status = ExportPublished(format, Side::kK, encoded, 64, 64, codes, scales);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(ImportPublished(format, Side::kK, codes, scales, 64, 64, encoded).ok());
  EXPECT_FALSE(PublishedArrayBytes(format, Side::kK, 63, 64).ok());
}

INSTANTIATE_TEST_SUITE_P(SmallFloat, PublishedOrder, ::testing::ValuesIn(kSpecs),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST(SmallFloat, OthersHaveNoPublishedOrder) {
  for (const char* spec : {"f16", "int4", "tq4", "iq4_nl"}) {
    EXPECT_FALSE(PublishedArrayBytes(Parse(spec), Side::kK, 64, 64).ok()) << spec;
  }
}

}  // namespace
}  // namespace kvant
