// Whole pages through the scalar reference: which values share a group, what stays out of a range,
// where the codes lie, and how large the error is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/float16.h"
#include "codec/codec.h"
#include "codec/test_pages.h"

namespace kvant {
namespace {

constexpr Side kSides[] = {Side::kK, Side::kV};
const Format kInt4Channel = UniformFormat(4, Axis::kChannel, 64, Offset::kMin);
const Format kInt4Token = UniformFormat(4, Axis::kToken, 64, Offset::kMin);

float MaxError(const OpenSide& open, const CodedSide& coded, int first_token, int first_channel = 0,
               int end_channel = 1 << 20) {
  float worst = 0;
  for (int t = first_token; t < open.layout.tokens; ++t) {
    for (int c = first_channel; c < std::min(end_channel, open.layout.head_dim); ++c) {
      worst = std::max(worst, std::fabs(open.At(t, c) - coded.At(t, c)));
    }
  }
  return worst;
}

double RmsError(const OpenSide& open, const CodedSide& coded, int channel = -1) {
  double sum = 0;
  int64_t count = 0;
  for (int t = 0; t < open.layout.tokens; ++t) {
    for (int c = 0; c < open.layout.head_dim; ++c) {
      if (channel >= 0 && c != channel) continue;
      const double error = static_cast<double>(open.At(t, c)) - coded.At(t, c);
      sum += error * error;
      ++count;
    }
  }
  return std::sqrt(sum / static_cast<double>(count));
}

TEST(DeadLanes, PaddingNeverWidensARange) {
  for (int head_dim : {72, 80, 96, 100, 112}) {
    for (Side side : kSides) {
      // The open page's padding is NaN; values fill [5, 6], so a zero lane would cost six steps.
      const OpenSide open(side, head_dim, 64,
                          [](int t, int c) { return 5.0f + MixUnit(MixBits(t) + c); });
      for (Axis axis : {Axis::kChannel, Axis::kToken}) {
        for (int group : {32, 64}) {
          const Format format = UniformFormat(4, axis, group, Offset::kMin);
          EXPECT_LE(MaxError(open, CodeByReference(open, format, 0), 0), 1.0f / 15 / 2 * 1.001f)
              << FormatSpec(format) << " head " << head_dim;
        }
      }
    }
  }
}

TEST(DeadLanes, EveryBitThatNoValueOwnsIsZero) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (Side side : kSides) {
      for (Axis axis : {Axis::kChannel, Axis::kToken}) {
        // One value at the bottom of each range, the others at its top: code 2^b - 1.
        const Format format = UniformFormat(bits, axis, 64, Offset::kMin);
        const OpenSide open(side, 100, 64, [&](int t, int c) {
          return (axis == Axis::kChannel ? t : c % 64) == 0 ? 1.0f : 2.0f;
        });
        const CodedSide coded = CodeByReference(open, format, 0);
        int64_t set_bits = 0;
        for (size_t i = static_cast<size_t>(coded.layout.metadata_bytes); i < coded.bytes.size();
             ++i) {
          set_bits += __builtin_popcount(static_cast<unsigned>(coded.bytes[i]));
        }
        const int tops = axis == Axis::kChannel ? 63 * 100 : 64 * (100 - 2);
        EXPECT_EQ(set_bits, static_cast<int64_t>(tops) * bits) << FormatSpec(format);
        int64_t metadata_halves = 0;
        for (int i = 0; i < coded.layout.metadata_bytes; i += 2) {
          uint16_t half;
          std::memcpy(&half, coded.bytes.data() + i, 2);
          metadata_halves += half != 0;
        }
        EXPECT_EQ(metadata_halves * 2, coded.layout.used_metadata_bytes()) << FormatSpec(format);
      }
    }
  }
}

TEST(Placement, TheWorkedCodesLieWhereTheLayoutSays) {
  // Token 3 of channels 4..11 takes the worked example's codes; 0 and 15 elsewhere fix the range.
  const int codes[] = {9, 2, 15, 5, 0, 12, 6, 4};
  const OpenSide open(Side::kK, 64, 64, [&](int t, int c) {
    if (t == 3 && c >= 4 && c < 12) return static_cast<float>(codes[c - 4]);
    return t == 63 ? 15.0f : 0.0f;
  });
  const CodedSide coded = CodeByReference(open, kInt4Channel, 0);
  const std::byte* block = coded.bytes.data() + coded.layout.metadata_bytes;
  // Unit 0 holds channels 0..3 low and 4..7 high, unit 1 channels 8..11 low; 4 bytes a token; 4
  // blocks of 16 tokens stand between unit 0 and unit 1.
  EXPECT_EQ(
      std::vector<std::byte>(block + 12, block + 16),
      (std::vector<std::byte>{std::byte{0x90}, std::byte{0x20}, std::byte{0xf0}, std::byte{0x50}}));
  EXPECT_EQ(
      std::vector<std::byte>(block + 256 + 12, block + 256 + 16),
      (std::vector<std::byte>{std::byte{0x00}, std::byte{0x0c}, std::byte{0x06}, std::byte{0x04}}));
  EXPECT_EQ(coded.At(3, 9), 12.0f);
}

TEST(Placement, ThreeBitsSplitIntoTheirPlanes) {
  const OpenSide open(Side::kV, 64, 64, [&](int t, int c) {
    return t == 17 && c == 5 ? 5.0f : c == 63 ? 7.0f : 0.0f;
  });
  const Format format = UniformFormat(3, Axis::kToken, 64, Offset::kMin);
  const CodedSide coded = CodeByReference(open, format, 0);
  const std::byte* block = coded.bytes.data() + coded.layout.metadata_bytes;
  // Channel 5 is the lane, token 17 = step 1, quad 0, element 1. 5 = 0b101: low 01, high 1.
  EXPECT_EQ(block[1 * 256 + 5 * 4 + 1], std::byte{0x01});
  EXPECT_EQ(block[coded.layout.plane_bytes[0] + 5 * 4 + 1], std::byte{0x10});
}

TEST(Groups, AShortTailHasARangeOfItsOwn) {
  for (Side side : kSides) {
    const OpenSide open(side, 80, 64, [](int t, int c) {
      return (c < 64 ? 5.0f : 100.0f) + MixUnit(MixBits(t) + c);
    });
    const CodedSide coded = CodeByReference(open, kInt4Token, 0);
    EXPECT_LE(MaxError(open, coded, 0, 0, 64), 1.0f / 15 / 2 * 1.001f);
    // f16 near 100 has steps of 1/16, of which the range covers 16.
    EXPECT_LE(MaxError(open, coded, 0, 64), 1.0f / 15 / 2 * 1.001f);
  }
}

TEST(Groups, AWholeHeadSharesOneScaleAToken) {
  const OpenSide open(Side::kV, 100, 64,
                      [](int t, int c) { return c == 99 ? 15.0 * (t + 1) : 0.0; });
  const Format format = UniformFormat(4, Axis::kToken, 0, Offset::kMin);
  const CodedSide coded = CodeByReference(open, format, 0);
  EXPECT_EQ(coded.layout.used_metadata_bytes(), 64 * 4);
  for (int t = 0; t < 64; ++t) {
    uint16_t scale;
    std::memcpy(&scale, coded.bytes.data() + t * 2, 2);
    EXPECT_EQ(F16ToF32(scale), static_cast<float>(t + 1));
  }
}

TEST(Groups, LongPagesShareOneScaleAcrossTheirBlocks) {
  for (Side side : kSides) {
    for (int tokens : {128, 256}) {
      // The range of every channel is set by its first and its last token, in different blocks.
      const OpenSide open(side, 72, tokens, [&](int t, int c) {
        return t == 0 ? -8.0 * c : t == tokens - 1 ? 7.0 * c : 0.25 * c;
      });
      const Format format = UniformFormat(4, Axis::kChannel, tokens, Offset::kMin);
      const CodedSide coded = CodeByReference(open, format, 0);
      EXPECT_EQ(coded.layout.used_metadata_bytes(), 72 * 4);
      for (int c = 0; c < 72; ++c) {
        EXPECT_EQ(coded.At(0, c), -8.0 * c);
        EXPECT_EQ(coded.At(tokens - 1, c), 7.0 * c);
        EXPECT_EQ(coded.At(64, c), 0.0f) << "a quarter of a step rounds to the step at 0";
      }
    }
  }
}

TEST(Sinks, StayOutOfRangesAndLeaveNoTrace) {
  for (Side side : kSides) {
    for (Axis axis : {Axis::kChannel, Axis::kToken}) {
      const auto page = [&](double sink) {
        return OpenSide(side, 80, 64, [&](int t, int c) {
          return t < 4 ? sink * (c + 1) : 5.0 + MixUnit(MixBits(t) + c);
        });
      };
      const Format format = UniformFormat(4, axis, 64, Offset::kMin);
      const OpenSide open = page(300.0);
      const CodedSide coded = CodeByReference(open, format, 4);
      EXPECT_LE(MaxError(open, coded, 4), 1.0f / 15 / 2 * 1.001f) << FormatSpec(format);
      EXPECT_EQ(coded.bytes, CodeByReference(page(-7.0), format, 4).bytes) << FormatSpec(format);
      if (axis == Axis::kToken) {
        for (int t = 0; t < 4; ++t)
          EXPECT_EQ(coded.At(t, 7), 0.0f);  // scale, offset and code are 0
      }
    }
  }
}

TEST(Sinks, AGroupOfNothingButSinksIsZero) {
  const OpenSide open(Side::kK, 64, 64, [](int t, int c) { return t < 20 ? 1000.0 : 1.0 + c; });
  const Format format = UniformFormat(4, Axis::kChannel, 16, Offset::kMin);
  const CodedSide coded = CodeByReference(open, format, 20);
  for (int c = 0; c < 64; ++c) {
    EXPECT_EQ(coded.At(3, c), 0.0f);
    EXPECT_EQ(coded.At(20, c), 1.0 + c);
  }
}

// Independent normal values, the same for every run of this program.
OpenSide NormalSide(Side side, int head_dim, int tokens, float hot_channel_shift = 0) {
  static std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  return OpenSide(side, head_dim, tokens,
                  [&](int, int c) { return normal(engine) + (c == 7 ? hot_channel_shift : 0.0f); });
}

double NormalRms(const Format& format) {
  double sum = 0;
  for (int page = 0; page < 8; ++page) {
    const OpenSide open = NormalSide(Side::kV, 128, 256);
    const double rms = RmsError(open, CodeByReference(open, format, 0));
    sum += rms * rms;
  }
  return std::sqrt(sum / 8);
}

TEST(Noise, RmsOnNormalValuesLiesBetweenItsBounds) {
  const struct {
    int bits, group;
    double rms;
  } expected[] = {{2, 128, .5007}, {3, 128, .2140}, {4, 128, .0998}, {8, 128, .00587},
                  {2, 32, .3927},  {3, 32, .1677},  {4, 32, .0782}};
  for (const auto& e : expected) {
    for (Axis axis : {Axis::kToken, Axis::kChannel}) {
      const Format format = UniformFormat(e.bits, axis, e.group, Offset::kMin);
      const double rms = NormalRms(format);
      EXPECT_GT(rms, e.rms * 0.98) << FormatSpec(format);
      EXPECT_LT(rms, e.rms * 1.02) << FormatSpec(format);
    }
  }
}

TEST(Noise, AHotChannelSpoilsItsGroupPerTokenButNotPerChannel) {
  const OpenSide open = NormalSide(Side::kK, 128, 128, 10.0f);
  const CodedSide channel =
      CodeByReference(open, UniformFormat(2, Axis::kChannel, 32, Offset::kMin), 0);
  const CodedSide token =
      CodeByReference(open, UniformFormat(2, Axis::kToken, 32, Offset::kMin), 0);
  EXPECT_LT(RmsError(open, channel), 0.45);
  EXPECT_GT(RmsError(open, channel), 0.35);
  EXPECT_LT(RmsError(open, channel, 7), 0.45);
  EXPECT_GT(RmsError(open, token, 3), 1.0);    // shares the group of channel 7
  EXPECT_LT(RmsError(open, token, 40), 0.45);  // does not
}

TEST(Float, SidesDecodeToWhatWasWrittenAndPaddingIsZero) {
  for (const Format& format : {kFormatF32, kFormatF16, kFormatBf16}) {
    for (Side side : kSides) {
      const OpenSide open(side, 100, 64, [](int t, int c) { return (t - 30) * 128 + c; });
      const CodedSide coded = CodeByReference(open, format, 4);
      for (int t = 0; t < 64; ++t) {
        for (int c = 0; c < 100; ++c) {
          const float expected =
              format == kFormatBf16 ? Bf16ToF32(F32ToBf16(open.At(t, c))) : open.At(t, c);
          ASSERT_EQ(coded.At(t, c), expected);
        }
      }
      int64_t zero_bytes = 0;
      if (side == Side::kV) {  // the last 12 of 112 lanes
        const int row = coded.layout.padded_dim * format.bits / 8, used = 100 * format.bits / 8;
        for (int t = 0; t < 64; ++t) {
          for (int i = used; i < row; ++i) {
            zero_bytes += coded.bytes[static_cast<size_t>(t * row + i)] == std::byte{0};
          }
        }
        EXPECT_EQ(zero_bytes, 64 * (row - used));
      }
    }
  }
}

TEST(Decode, RowsKeepTheirStride) {
  const OpenSide open(Side::kK, 64, 64, [](int t, int) { return t == 0 ? 0.0f : 15.0f; });
  const CodedSide coded = CodeByReference(open, kInt4Channel, 0);
  std::vector<float> out(64 * 70, -3.0f);
  DecodeSideReference(coded.layout, coded.bytes.data(), out.data(), 70);
  for (size_t t = 0; t < 64; ++t) {
    EXPECT_EQ(out[t * 70 + 63], t == 0 ? 0.0f : 15.0f);
    for (size_t c = 64; c < 70; ++c) EXPECT_EQ(out[t * 70 + c], -3.0f);
  }
}

}  // namespace
}  // namespace kvant
