#include "format/page_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvant {
namespace {

constexpr int kHeadDims[] = {64, 72, 80, 96, 100, 112, 128, 192, 256, 576};

Format Uniform(int bits, Axis axis, int group, Offset offset) {
  return {Levels::kUniform, FloatType::kF16, bits, axis, group, offset};
}

std::vector<Format> CodedFormats() {
  std::vector<Format> formats;
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (Offset offset : {Offset::kNone, Offset::kMin}) {
      for (int group : {16, 32, 64, 128, 256}) {
        formats.push_back(Uniform(bits, Axis::kChannel, group, offset));
        formats.push_back(Uniform(bits, Axis::kToken, group, offset));
      }
      formats.push_back(Uniform(bits, Axis::kToken, 0, offset));
    }
  }
  return formats;
}

double BytesPerToken(int layers, int heads, const PageLayout& page) {
  return static_cast<double>(layers) * heads * page.page_bytes / page.tokens;
}

TEST(PageLayout, LlamaSevenBNeedsTheBytesOfTheWorkedExample) {
  const Format k = Uniform(4, Axis::kChannel, 128, Offset::kMin);
  const Format v = Uniform(4, Axis::kToken, 128, Offset::kMin);
  ASSERT_EQ(PageTokensFor(k, v), 128);
  const PageLayout page = MakePageLayout(k, v, 128, 128);
  EXPECT_EQ(BytesPerToken(32, 32, page), 139264);
  EXPECT_EQ(page.k.padding_bytes() + page.v.padding_bytes(), 0);
  EXPECT_EQ(BytesPerToken(32, 32, MakePageLayout(kFormatF16, kFormatF16, 128, 64)), 524288);
}

TEST(PageLayout, AnInt4PageOfHead64Is4608Bytes) {
  const PageLayout page = MakePageLayout(Uniform(4, Axis::kChannel, 64, Offset::kMin),
                                         Uniform(4, Axis::kToken, 64, Offset::kMin), 64, 64);
  EXPECT_EQ(page.page_bytes, 4608);
  EXPECT_EQ(page.v_offset_bytes, 2304);
  EXPECT_EQ(page.k.metadata_bytes, 256);
  EXPECT_EQ(page.k.offsets_from_scales, 128);
}

TEST(PageLayout, PageTokensAreTheLongestChannelGroup) {
  const auto channel = [](int g) { return Uniform(4, Axis::kChannel, g, Offset::kMin); };
  const Format token = Uniform(4, Axis::kToken, 256, Offset::kMin);
  EXPECT_EQ(PageTokensFor(channel(16), token), 64);
  EXPECT_EQ(PageTokensFor(channel(128), token), 128);
  EXPECT_EQ(PageTokensFor(channel(128), channel(256)), 256);
  EXPECT_EQ(PageTokensFor(kFormatF16, kFormatF16), 64);
}

// Every (lane, element) owns exactly its own bits, and together they fill the plane but for the
// half step that a 1-bit plane of an odd number of steps leaves over.
void CheckPlane(int plane_bits, int lanes, int reduce) {
  const int bytes = PlaneBytes(plane_bits, lanes, reduce);
  std::vector<uint8_t> owned(static_cast<size_t>(bytes), 0);
  const int mask = (1 << plane_bits) - 1;
  for (int lane = 0; lane < lanes; ++lane) {
    for (int element = 0; element < reduce; ++element) {
      const CodePlace place = PlaceOf(plane_bits, lanes, reduce, lane, element);
      ASSERT_GE(place.byte, 0);
      ASSERT_LT(place.byte, bytes) << plane_bits << " " << lanes << " " << lane << " " << element;
      ASSERT_LE(place.shift + plane_bits, 8);
      uint8_t& byte = owned[static_cast<size_t>(place.byte)];
      ASSERT_EQ(byte & (mask << place.shift), 0) << "two codes share bits at " << place.byte;
      byte = static_cast<uint8_t>(byte | mask << place.shift);
    }
  }
  int unowned_bits = 0;
  for (uint8_t byte : owned) unowned_bits += 8 - __builtin_popcount(byte);
  const bool half_step = plane_bits == 1 && reduce / kStep % 2 == 1;
  EXPECT_EQ(unowned_bits, half_step ? lanes * kStep : 0)
      << plane_bits << " " << lanes << " " << reduce;
}

TEST(PlaceOf, IsABijectionOnBitsForEveryPlaneAndHead) {
  for (int head_dim : kHeadDims) {
    const int padded = PaddedDim(head_dim);
    for (int plane_bits : {1, 2, 4, 8}) {
      CheckPlane(plane_bits, 64, padded);
      CheckPlane(plane_bits, padded, 64);
    }
  }
}

// The metadata's ends, as the codec addresses them, lie inside the side's metadata.
void CheckBounds(const SideLayout& s) {
  const int per_group = s.format.metadata_bytes_per_group();
  const int last_scale =
      s.format.axis == Axis::kChannel
          ? ((s.token_groups - 1) * s.padded_dim + s.padded_dim - 1) * 2
          : (s.blocks() - 1) * s.block_metadata_bytes +
                ((s.channel_groups - 1) * s.block_tokens + s.block_tokens - 1) * 2;
  EXPECT_LE(last_scale + (per_group == 4 ? s.offsets_from_scales : 0) + 2, s.metadata_bytes);
  EXPECT_EQ(s.metadata_bytes % kPlaneUnitBytes, 0);
  EXPECT_EQ(s.plane_bytes[0] % kPlaneUnitBytes, 0);
  EXPECT_EQ(s.block_bytes, s.plane_bytes[0] + s.plane_bytes[1]);
  EXPECT_EQ(s.metadata_bytes + s.blocks() * s.block_bytes, s.bytes);
  EXPECT_GE(s.padding_bytes(), 0);
}

TEST(PageLayout, OffsetsLieInBoundsAndTheBillAddsUp) {
  for (const Format& format : CodedFormats()) {
    for (int head_dim : kHeadDims) {
      for (int tokens = PageTokensFor(format, format); tokens <= 256; tokens *= 2) {
        const PageLayout page = MakePageLayout(format, format, head_dim, tokens);
        SCOPED_TRACE(FormatSpec(format) + " head " + std::to_string(head_dim));
        CheckBounds(page.k);
        CheckBounds(page.v);
        EXPECT_EQ(page.v_offset_bytes % kPlaneUnitBytes, 0);
        EXPECT_EQ(page.page_bytes, page.k.bytes + page.v.bytes);
      }
    }
  }
}

TEST(PageLayout, HeadsOfWholeUnitsHaveNoPaddingAtAll) {
  for (const Format& format : CodedFormats()) {
    for (int head_dim : {64, 128, 192, 256, 576}) {
      const int tokens = PageTokensFor(format, format);
      const PageLayout page = MakePageLayout(format, format, head_dim, tokens);
      for (const SideLayout* s : {&page.k, &page.v}) {
        SCOPED_TRACE(FormatSpec(format) + " head " + std::to_string(head_dim));
        // 576 = 36 steps: even, so the 1-bit plane fills. Metadata of 64-channel rows always does.
        EXPECT_EQ(s->padding_bytes(), 0);
        EXPECT_EQ(s->bytes, s->code_bytes() + s->used_metadata_bytes());
        EXPECT_DOUBLE_EQ(8.0 * s->bytes / (tokens * head_dim), format.EffectiveBits(head_dim));
      }
    }
  }
}

TEST(PageLayout, OddHeadsAreBilledWithTheirPadding) {
  const Format k = Uniform(4, Axis::kChannel, 64, Offset::kMin);
  const PageLayout page = MakePageLayout(k, Uniform(4, Axis::kToken, 0, Offset::kMin), 100, 64);
  EXPECT_EQ(page.k.padded_dim, 112);
  EXPECT_EQ(page.k.code_bytes(), 64 * 100 / 2);
  EXPECT_EQ(page.k.used_metadata_bytes(), 400);
  EXPECT_EQ(page.k.padding_bytes(), (64 * 12 / 2) + (448 - 400));
  EXPECT_EQ(page.v.padding_bytes(), 64 * 12 / 2);
}

TEST(PageLayout, AGroupLongerThanTheHeadIsTheHead) {
  const Format format = Uniform(4, Axis::kToken, 256, Offset::kMin);
  const PageLayout page = MakePageLayout(format, format, 64, 64);
  EXPECT_EQ(page.v.group, 64);
  EXPECT_EQ(page.v.channel_groups, 1);
  EXPECT_EQ(page.v.used_metadata_bytes(), 64 * 4);
}

TEST(PageLayout, SinkPagesShrinkInStepsOfSixteenTokens) {
  for (int tokens : {16, 32, 48, 64}) {
    const PageLayout page = MakePageLayout(kFormatF16, kFormatF16, 100, tokens);
    EXPECT_EQ(page.k.bytes, tokens * 100 * 2);
    EXPECT_EQ(page.v.bytes, tokens * 112 * 2);
    EXPECT_EQ(page.k.blocks(), 1);
  }
}

TEST(OpenFormats, CodedSidesWaitInF16AndFloatSidesInTheirOwnType) {
  const Format coded = Uniform(4, Axis::kToken, 64, Offset::kMin);
  EXPECT_EQ(OpenFormats({coded, kFormatBf16}), (FormatPair{kFormatF16, kFormatBf16}));
  EXPECT_EQ(OpenFormats({kFormatF32, coded}), (FormatPair{kFormatF32, kFormatF16}));
}

}  // namespace
}  // namespace kvant
