// One group at a time: conventions, constants, ranges at the ends of f16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float16.h"
#include "codec/codec.h"
#include "codec/test_pages.h"

namespace kvant {
namespace {

constexpr Offset kOffsets[] = {Offset::kNone, Offset::kExtreme, Offset::kMin, Offset::kIntegerZero,
                               Offset::kRealZero};
constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};

struct Coded {
  GroupParameters p;
  std::vector<int> codes;
  std::vector<float> decoded;
  double max_error = 0, mse = 0;
};

Coded CodeGroup(const Format& format, const std::vector<float>& x) {
  Coded coded;
  coded.p = FitValues(format, x);
  for (float v : x) {
    coded.codes.push_back(CodeOf(format, coded.p, v));
    coded.decoded.push_back(ValueOf(format, coded.p, coded.codes.back()));
    const double error = static_cast<double>(coded.decoded.back()) - v;
    coded.max_error = std::max(coded.max_error, std::fabs(error));
    coded.mse += error * error / static_cast<double>(x.size());
  }
  return coded;
}

Format Group(int bits, Offset offset) { return UniformFormat(bits, Axis::kToken, 64, offset); }
constexpr Format kIq4Nl{Levels::kCodebook, FloatType::kF16, 4, Axis::kToken, 32, Offset::kNone};

std::vector<Format> AllConventions() {
  std::vector<Format> formats;
  for (int bits : kWidths) {
    for (Offset offset : kOffsets) formats.push_back(Group(bits, offset));
  }
  formats.push_back(kIq4Nl);
  return formats;
}

const std::vector<float> kWorked = {0.42f, -0.13f, 0.87f, 0.05f, -0.28f, 0.61f, 0.17f, -0.02f};

TEST(WorkedGroup, IntegerZeroGivesTheSeedsCodesAndErrors) {
  const Coded g = CodeGroup(Group(4, Offset::kIntegerZero), kWorked);
  EXPECT_EQ(g.codes, (std::vector<int>{9, 2, 15, 5, 0, 12, 6, 4}));
  EXPECT_EQ(g.p.scale, 0.07666015625f);
  EXPECT_EQ(g.p.offset_bits, 4);
  const float decoded[] = {.3833f, -.1533f, .8433f, .0767f, -.3067f, .6133f, .1533f, 0};
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(g.decoded[static_cast<size_t>(i)], decoded[i], 2e-4);
  EXPECT_NEAR(g.max_error, 0.03667, 2e-4);
  EXPECT_NEAR(g.mse, 5.889e-4, 5e-6);
}

TEST(WorkedGroup, TheSameCodesComeFromF16Inputs) {
  std::vector<float> rounded = kWorked;
  for (float& v : rounded) v = F16ToF32(F32ToF16(v));
  for (Offset offset : kOffsets) {
    EXPECT_EQ(CodeGroup(Group(4, offset), rounded).codes,
              CodeGroup(Group(4, offset), kWorked).codes);
  }
}

TEST(WorkedGroup, MinAndRealZeroGiveTheOtherCodesWithLessError) {
  for (Offset offset : {Offset::kMin, Offset::kRealZero}) {
    const Coded g = CodeGroup(Group(4, offset), kWorked);
    EXPECT_EQ(g.codes, (std::vector<int>{9, 2, 15, 4, 0, 12, 6, 3}));
    EXPECT_EQ(g.p.scale, 0.07666015625f);
    EXPECT_NEAR(g.max_error, 0.0300, 3e-4);
    EXPECT_NEAR(g.mse, 3.194e-4, 3e-6);
  }
  EXPECT_EQ(F16ToF32(CodeGroup(Group(4, Offset::kRealZero), kWorked).p.offset_bits), 3.65234375f);
  EXPECT_EQ(CodeGroup(Group(4, Offset::kMin), kWorked).p.offset, F16ToF32(F32ToF16(-0.28f)));
}

TEST(WorkedGroup, SymmetricCodesAreCentredOnEight) {
  const Coded g = CodeGroup(Group(4, Offset::kNone), kWorked);
  EXPECT_EQ(g.codes, (std::vector<int>{11, 7, 15, 8, 6, 13, 9, 8}));
  EXPECT_NEAR(g.p.scale, 0.1242857, 3e-5);
  EXPECT_NEAR(g.max_error, 0.0500, 3e-4);
  EXPECT_NEAR(g.mse, 1.045e-3, 1e-5);
}

TEST(WorkedGroup, TheExtremeConventionUsesTheNegativeEndForTheLargest) {
  const Coded g = CodeGroup(Group(4, Offset::kExtreme), kWorked);
  EXPECT_EQ(g.codes, (std::vector<int>{4, 9, 0, 8, 11, 2, 6, 8}));
  EXPECT_NEAR(g.p.scale, -0.87 / 8, 3e-5);
  EXPECT_NEAR(g.decoded[2], 0.87f, 3e-4);
}

TEST(WorkedGroup, FusedDotFollowsFromCodesAndZero) {
  const float q[] = {1, -2, .5f, 3, -1, .25f, 2, -.5f};
  const Coded g = CodeGroup(Group(4, Offset::kIntegerZero), kWorked);
  float codes = 0, sum = 0;
  for (size_t i = 0; i < 8; ++i) {
    codes += q[i] * static_cast<float>(g.codes[i]);
    sum += q[i];
  }
  EXPECT_EQ(codes, 40.5f);
  EXPECT_NEAR(g.p.scale * codes + g.p.offset * sum, 2.1083333, 3e-4);
}

TEST(OutlierGroup, SevenValuesCollapseAndTheOutlierStands) {
  const Coded g = CodeGroup(Group(4, Offset::kIntegerZero),
                            {.03f, -.05f, .02f, -.01f, .04f, .01f, -.02f, 4.80f});
  EXPECT_EQ(g.codes, (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 15}));
  EXPECT_EQ(g.p.offset_bits, 0);
  EXPECT_EQ(g.decoded[0], 0.0f);
  EXPECT_NEAR(g.decoded[7], 4.85, 2e-3);
}

// KIVI's toy: groups of 8 tokens are no Format, but the arithmetic of a group is the same.
TEST(KiviToy, CodesErrorsAndAttentionMatchTheWorkedOnes) {
  const Format format = Group(2, Offset::kMin);
  std::vector<float> channel[2], decoded[2];
  for (int t = 0; t < 16; ++t) {
    channel[0].push_back(0.1f * static_cast<float>(t));
    channel[1].push_back(5.0f + static_cast<float>(t % 4));
  }
  for (int c = 0; c < 2; ++c) {
    for (int g = 0; g < 2; ++g) {
      const auto begin = channel[c].begin() + g * 8;
      const Coded coded = CodeGroup(format, std::vector<float>(begin, begin + 8));
      EXPECT_EQ(coded.codes, c == 0 ? (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3})
                                    : (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
      EXPECT_NEAR(coded.p.scale, c == 0 ? 0.2333333 : 1.0, 1e-4);
      EXPECT_NEAR(coded.max_error, c == 0 ? 0.1 : 0.0, 5e-4);
      decoded[c].insert(decoded[c].end(), coded.decoded.begin(), coded.decoded.end());
    }
  }
  const auto attend = [](const std::vector<float>* k, std::vector<double>* weights) {
    double sum = 0, out = 0;
    for (size_t t = 0; t < 16; ++t) sum += std::exp((2.0 * k[0][t] - k[1][t]) / std::sqrt(2.0));
    for (size_t t = 0; t < 16; ++t) {
      weights->push_back(std::exp((2.0 * k[0][t] - k[1][t]) / std::sqrt(2.0)) / sum);
      out += weights->back() * static_cast<double>(t);
    }
    return out;
  };
  std::vector<double> p, p_coded;
  EXPECT_NEAR(attend(channel, &p), 9.449852, 1e-5);
  EXPECT_NEAR(attend(decoded, &p_coded), 9.521397, 2e-3);
  double kl = 0;
  for (size_t t = 0; t < 16; ++t) kl += p[t] * std::log(p[t] / p_coded[t]);
  EXPECT_NEAR(kl, 0.003503, 2e-5);
}

TEST(ConstantGroup, ComesBackExactUnderOffsetsAndToScalePrecisionWithout) {
  const float smallest = F16ToF32(1);
  for (const Format& format : AllConventions()) {
    for (float c : {0.0f, -0.0f, 100.0f, -100.0f, smallest, -smallest, 65504.0f, -65504.0f, 0.3f}) {
      c = F16ToF32(F32ToF16(c));
      const Coded g = CodeGroup(format, std::vector<float>(8, c));
      SCOPED_TRACE(FormatSpec(format) + " of " + std::to_string(c));
      EXPECT_TRUE(std::isfinite(g.p.scale) && std::isfinite(g.p.offset));
      const bool has_offset = format.metadata_bytes_per_group() == 4;
      if (has_offset || c == 0) {
        EXPECT_EQ(g.decoded[0], c);
      } else {
        // iq4_nl has no level at -1, so the smallest f16 itself is two of its smallest steps off.
        const float step = format.levels == Levels::kCodebook ? 2 * smallest : 0.0f;
        EXPECT_NEAR(g.decoded[0], c, std::fabs(c) / 2048 + step);
      }
    }
  }
}

TEST(ConstantGroup, ZerosOfBothSignsGiveTheSameBytes) {
  for (const Format& format : AllConventions()) {
    const Coded plus = CodeGroup(format, {0.0f, -0.0f, 0.0f}),
                minus = CodeGroup(format, {-0.0f, 0.0f});
    EXPECT_EQ(plus.p.scale_bits, 0) << FormatSpec(format);
    EXPECT_EQ(minus.p.scale_bits, 0) << FormatSpec(format);
    EXPECT_EQ(plus.p.offset_bits, 0) << FormatSpec(format);
    EXPECT_EQ(minus.p.offset_bits, 0) << FormatSpec(format);
    EXPECT_FALSE(std::signbit(minus.decoded[0])) << FormatSpec(format);
    // A range that starts at -0 is the range that starts at 0.
    EXPECT_EQ(CodeGroup(format, {-0.0f, 1.0f}).p.offset_bits,
              CodeGroup(format, {0.0f, 1.0f}).p.offset_bits)
        << FormatSpec(format);
  }
}

// The widest step that rounding alone may cost under a convention, in units of the stored scale.
double BoundInSteps(const Format& format) {
  const double last = (1 << format.bits) - 1;
  switch (format.offset) {
    // x / s of both ends is rounded apart from z, so the code may leave the range by the rounding
    // of the scale and is clamped back.
    case Offset::kIntegerZero:
      return 0.5 + last / 2048;
    case Offset::kExtreme:
      return 1.0;  // +extreme has no code of its own
    default:
      return 0.5;
  }
}

void ExpectWithinBound(const Format& format, const std::vector<float>& x) {
  const Coded g = CodeGroup(format, x);
  ASSERT_TRUE(std::isfinite(g.p.scale) && std::isfinite(g.p.offset));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_GE(g.codes[i], 0);
    ASSERT_LT(g.codes[i], 1 << format.bits);
    const double bound = BoundInSteps(format) * std::fabs(g.p.scale) * (1 + 1e-5) +
                         std::fabs(static_cast<double>(x[i])) * 1.2e-7 +
                         std::fabs(static_cast<double>(g.p.offset)) * 1.2e-7;
    ASSERT_LE(std::fabs(static_cast<double>(g.decoded[i]) - x[i]), bound)
        << FormatSpec(format) << " value " << x[i] << " scale " << g.p.scale << " offset "
        << g.p.offset;
  }
}

TEST(ErrorBound, HalfAStepHoldsAtEveryMagnitudeOfF16) {
  for (int bits : kWidths) {
    for (Offset offset : kOffsets) {
      const Format format = Group(bits, offset);
      uint64_t counter = static_cast<uint64_t>(bits);
      for (int trial = 0; trial < 3000; ++trial) {
        // Random centre and spread, each from 2^-24 to 2^15: narrow groups far from zero included.
        const float centre = std::ldexp(MixUnit(++counter) - 0.5f, trial % 41 - 24);
        const int magnitude = static_cast<int>(MixBits(++counter) % 41) - 24;
        const float spread = std::ldexp(MixUnit(++counter), magnitude);
        std::vector<float> x;
        for (int i = 0; i < 16; ++i) {
          x.push_back(F16ToF32(F32ToF16(centre + spread * (MixUnit(++counter) - 0.5f))));
        }
        ExpectWithinBound(format, x);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ErrorBound, WidestRangeOfF16DoesNotOverflowTheScale) {
  for (const Format& format : AllConventions()) {
    const Coded g = CodeGroup(format, {-65504, 65504, 0, 1});
    EXPECT_TRUE(std::isfinite(g.p.scale)) << FormatSpec(format);
    for (float v : g.decoded) EXPECT_TRUE(std::isfinite(v)) << FormatSpec(format);
    if (format.levels == Levels::kUniform) ExpectWithinBound(format, {-65504, 65504, 0, 1});
  }
}

TEST(ErrorBound, OneHugeValueAmongZerosLeavesTheZerosZero) {
  for (const Format& format : AllConventions()) {
    const Coded g = CodeGroup(format, {0, 0, 65504, 0});
    EXPECT_NEAR(g.decoded[2], 65504, 65504.0 / 1000) << FormatSpec(format);
    // iq4_nl has no level at zero: its smallest is one unit.
    const float zero = format.levels == Levels::kCodebook ? std::fabs(g.p.scale) : 0.0f;
    EXPECT_LE(std::fabs(g.decoded[0]), zero) << FormatSpec(format);
  }
}

TEST(ErrorBound, TinyRangesKeepAStep) {
  // 255 steps of less than half the smallest f16: rounded to nearest, every step would vanish.
  const std::vector<float> x = {0, F16ToF32(30), F16ToF32(90)};
  for (Offset offset : {Offset::kMin, Offset::kIntegerZero, Offset::kRealZero}) {
    const Coded g = CodeGroup(Group(8, offset), x);
    EXPECT_EQ(g.p.scale_bits, 1);
    EXPECT_EQ(g.decoded, x) << "a step of one unit codes a range below 255 units exactly";
  }
}

TEST(IntegerZero, GroupsFarFromZeroKeepZInsideInt16) {
  const Format format = Group(4, Offset::kIntegerZero);
  const Coded g = CodeGroup(format, {10, 10.5f, 10.25f});
  EXPECT_EQ(static_cast<int16_t>(g.p.offset_bits), -300);  // far outside the 4 bits of a code
  // 8 bits over one f16 ulp at 1000: z would be -510000.
  const Coded far = CodeGroup(Group(8, Offset::kIntegerZero), {1000, 1000.5f});
  EXPECT_LE(std::abs(static_cast<int16_t>(far.p.offset_bits)), 32100);
  EXPECT_LE(far.max_error, 1000.0 / 32000);
  const Coded negative = CodeGroup(Group(8, Offset::kIntegerZero), {-1000, -1000.5f});
  EXPECT_LE(negative.max_error, 1000.0 / 32000);
}

TEST(RealZero, GroupsFarFromZeroKeepZetaWhereF16ResolvesAStep) {
  const Coded g = CodeGroup(Group(8, Offset::kRealZero), {1000, 1000.5f, 1001});
  EXPECT_LE(std::fabs(F16ToF32(g.p.offset_bits)), 2050);
  EXPECT_LE(g.max_error, 1000.0 / 2048 / 2 * 1.001);
}

TEST(Extreme, OfTwoEqualMagnitudesTheFirstDecidesTheSign) {
  const Format format = Group(4, Offset::kExtreme);
  EXPECT_LT(CodeGroup(format, {2, -2}).p.scale, 0);
  EXPECT_GT(CodeGroup(format, {-2, 2}).p.scale, 0);
}

TEST(Iq4Nl, EveryLevelIsItsOwnCode) {
  std::vector<float> x;
  for (int8_t level : kIq4NlLevels) x.push_back(0.5f * level);
  const Coded g = CodeGroup(kIq4Nl, x);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(g.codes[static_cast<size_t>(i)], i);
  EXPECT_EQ(g.max_error, 0);
}

TEST(Iq4Nl, AMidpointTakesTheLowerLevel) {
  const GroupParameters p = UnpackParameters(kIq4Nl, F32ToF16(1.0f), 0);
  EXPECT_EQ(CodeOf(kIq4Nl, p, 7.0f), 8);  // between 1 and 13
  EXPECT_EQ(CodeOf(kIq4Nl, p, 7.001f), 9);
  EXPECT_EQ(CodeOf(kIq4Nl, p, -4.5f), 7);  // between -10 and 1
}

// ---- Clipping

// Magnitudes 1 to 128 in no order, odd ones positive.
std::vector<float> Magnitudes() {
  std::vector<float> x;
  for (int i = 0; i < 128; ++i) {
    const int magnitude = i * 37 % 128 + 1;
    x.push_back(static_cast<float>(magnitude % 2 == 0 ? -magnitude : magnitude));
  }
  return x;
}

// The published 96 % of K clamps the 5 largest of 128 magnitudes, the 92 % of V the 10 largest.
TEST(Clip, RangesEndAtThePublishedRank) {
  const struct {
    int percent;
    float reach;
  } rows[] = {{99, 127}, {96, 123}, {92, 118}, {50, 65}};
  for (const auto& row : rows) {
    Format format = Group(8, Offset::kMin);
    format.clip_percent = row.percent;
    const Coded g = CodeGroup(format, Magnitudes());
    // Whole numbers below 2^11 are exact in f16, the scale is off by 2^-11.
    EXPECT_NEAR(g.p.scale * 255, 2 * row.reach, .13) << row.percent;
    EXPECT_EQ(g.p.offset, -row.reach) << row.percent;
    for (size_t i = 0; i < 128; ++i) {
      const float x = Magnitudes()[i];
      if (std::fabs(x) <= row.reach) continue;
      EXPECT_EQ(g.codes[i], x < 0 ? 0 : 255) << row.percent << " " << x;
    }
  }
}

TEST(Clip, EveryConventionClampsAndStaysFinite) {
  for (Format format : AllConventions()) {
    if (format.levels != Levels::kUniform) continue;
    format.clip_percent = 75;
    // Rank 3 of 4 is the largest, rank 3 of 5 is not.
    EXPECT_GE(CodeGroup(format, {1, -2, 3, 64}).decoded[3], 60) << FormatSpec(format);
    const Coded g = CodeGroup(format, {1, -2, 3, -1, 64});
    EXPECT_LE(std::fabs(g.decoded[4]), 4.01) << FormatSpec(format);
    EXPECT_EQ(CodeGroup(format, {0, 0, 0, 0, 65504}).decoded[0], 0) << FormatSpec(format);
    EXPECT_NEAR(CodeGroup(format, {7}).decoded[0], 7, 7.0 / 2048);
  }
}

TEST(Rounding, CodesStayInsideTheirWidth) {
  const struct {
    Offset offset;
    int lowest, highest;
  } cases[] = {{Offset::kNone, 1, 15},
               {Offset::kExtreme, 0, 15},
               {Offset::kMin, 0, 15},
               {Offset::kIntegerZero, 0, 15},
               {Offset::kRealZero, 0, 15}};
  for (const auto& c : cases) {
    const GroupParameters p = UnpackParameters(Group(4, c.offset), F32ToF16(1.0f), 0);
    EXPECT_EQ(CodeOf(Group(4, c.offset), p, -1000.0f), c.lowest);
    EXPECT_EQ(CodeOf(Group(4, c.offset), p, 1000.0f), c.highest);
  }
}

TEST(Rounding, TiesGoToEven) {
  const Format format = Group(8, Offset::kMin);
  const GroupParameters p = UnpackParameters(format, F32ToF16(1.0f), F32ToF16(0.0f));
  EXPECT_EQ(CodeOf(format, p, 0.5f), 0);
  EXPECT_EQ(CodeOf(format, p, 1.5f), 2);
  EXPECT_EQ(CodeOf(format, p, 2.5f), 2);
}

}  // namespace
}  // namespace kvant
