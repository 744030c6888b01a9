// The side-band by hand-made vectors: what is picked, what stays in the ranges, what slots hold.
#include "codec/side_band.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "codec/test_pages.h"

namespace kvant {
namespace {

Format Parse(const char* spec, Side side = Side::kK) { return ParseFormat(spec, side).value(); }

uint16_t HalfAt(const CodedSide& coded, int byte) {
  uint16_t value;
  std::memcpy(&value, coded.bytes.data() + byte, sizeof value);
  return value;
}

float Noise(int t, int c) { return MixUnit(static_cast<uint64_t>(t * 4096 + c)) - 0.5f; }

// One spike a channel: without it a channel spans 1, so a step of int4 is 1/15 and no value is off
// by more than half of it; f16 holds a spike's delta to 2^-11 of 1000.
TEST(SideBand, ASpikeLeavesTheRangeOfItsChannelAndComesBack) {
  const auto spiky = [](int t, int c) { return t == c % 64 ? 1000.0f : Noise(t, c); };
  const OpenSide open(Side::kK, 80, 64, spiky);
  const CodedSide coded = CodeByReference(open, Parse("int4:channel:g64:min:out1"), 0);
  for (int t = 0; t < 64; ++t) {
    for (int c = 0; c < 80; ++c) {
      const float bound = t == c % 64 ? 0.5f : 0.5f / 15 + 1e-3f;
      ASSERT_NEAR(coded.At(t, c), open.At(t, c), bound) << t << " " << c;
    }
  }
  const CodedSide without = CodeByReference(open, Parse("int4:channel:g64:min"), 0);
  EXPECT_GT(
      std::fabs(without.At(1, 0) - open.At(1, 0)) + std::fabs(without.At(2, 0) - open.At(2, 0)),
      0.1f);
}

TEST(SideBand, TokensOfVHaveVectorsOfTheWholeHead) {
  const auto spiky = [](int t, int c) { return c == (7 * t + 3) % 100 ? -500.0f : Noise(t, c); };
  const OpenSide open(Side::kV, 100, 64, spiky);
  for (const char* spec : {"int4:token:min:out1", "int4:token:g32:min:out1"}) {
    const CodedSide coded = CodeByReference(open, Parse(spec, Side::kV), 0);
    for (int t = 0; t < 64; ++t) {
      for (int c = 0; c < 100; ++c) {
        const float bound = c == (7 * t + 3) % 100 ? 0.25f : 0.5f / 15 + 1e-3f;
        ASSERT_NEAR(coded.At(t, c), open.At(t, c), bound) << spec << " " << t << " " << c;
      }
    }
  }
}

// Two values at the same distance from the mean, and one slot: the first of them.
TEST(SideBand, TiesGoToTheFirst) {
  const auto tied = [](int t, int) { return t == 20 ? 8.0f : t == 11 ? -8.0f : 0.0f; };
  const CodedSide one =
      CodeByReference(OpenSide(Side::kK, 64, 64, tied), Parse("int4:channel:g64:min:out1"), 0);
  const CodedSide two =
      CodeByReference(OpenSide(Side::kK, 64, 64, tied), Parse("int4:channel:g64:min:out2"), 0);
  for (int c = 0; c < 64; ++c) {
    EXPECT_EQ(HalfAt(one, one.layout.band_offset + 2 * c), 11);
    EXPECT_EQ(HalfAt(two, two.layout.band_offset + 2 * c), 11);
    EXPECT_EQ(HalfAt(two, two.layout.band_offset + 2 * (64 + c)), 20);
  }
}

TEST(SideBand, SlotsThatNothingNeedsHoldZeros) {
  const auto constant = [](int, int c) { return static_cast<float>(c); };
  for (const char* spec : {"int4:channel:g64:min:out3", "int4:channel:g16:none:out16"}) {
    const CodedSide coded = CodeByReference(OpenSide(Side::kK, 64, 64, constant), Parse(spec), 0);
    const SideLayout& s = coded.layout;
    for (int byte = s.band_offset; byte < s.band_offset + 2 * s.deltas_from_places; byte += 2) {
      ASSERT_EQ(HalfAt(coded, byte), 0) << spec;
    }
  }
  // Of a group of 16 with 15 sinks one value is left, and it stays.
  const CodedSide sinks =
      CodeByReference(OpenSide(Side::kK, 64, 64, [](int t, int) { return t == 15 ? 5.0f : -1.0f; }),
                      Parse("int4:channel:g16:min:out2"), 15);
  EXPECT_EQ(sinks.At(15, 0), 5.0f);
  EXPECT_EQ(HalfAt(sinks, sinks.layout.band_offset), 0);
}

TEST(SideBand, SinksAreNotPicked) {
  const auto spiky = [](int t, int c) { return t < 4 ? 1000.0f : Noise(t, c); };
  for (const char* spec : {"int4:channel:g64:min:out2", "int4:token:min:out2"}) {
    const OpenSide open(Side::kK, 64, 64, spiky);
    const CodedSide coded = CodeByReference(open, Parse(spec), 4);
    for (int t = 4; t < 64; ++t) {
      for (int c = 0; c < 64; ++c) {
        ASSERT_NEAR(coded.At(t, c), open.At(t, c), 0.5f / 15 + 1e-3f) << spec;
      }
    }
  }
}

// A delta that f16 cannot hold saturates instead of becoming infinite.
TEST(SideBand, ADeltaBeyondF16StaysFinite) {
  const auto wide = [](int t, int) { return t == 9 ? 65504.0f : -65504.0f; };
  const CodedSide coded =
      CodeByReference(OpenSide(Side::kK, 64, 64, wide), Parse("int4:channel:g64:min:out1"), 0);
  EXPECT_EQ(coded.At(9, 3), 0.0f);  // -65504 + 65504
  EXPECT_EQ(coded.At(8, 3), -65504.0f);
}

}  // namespace
}  // namespace kvant
