#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "codec/test_pages.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

const Format kInt4 = UniformFormat(4, Axis::kChannel, 64, Offset::kMin);

std::vector<float> Values(int64_t tokens, int head_dim) {
  std::vector<float> values(static_cast<size_t>(tokens * head_dim));
  for (size_t i = 0; i < values.size(); ++i) values[i] = MixUnit(i) - 0.5f;
  return values;
}

bool Mentions(const Status& status, const std::string& what) {
  return status.message().find(what) != std::string::npos;
}

TEST(ArrayCodec, BytesAreThoseOfTheStoredPagesInARow) {
  for (Side side : {Side::kK, Side::kV}) {
    for (const Format& format : {kInt4, UniformFormat(3, Axis::kChannel, 128, Offset::kIntegerZero),
                                 UniformFormat(8, Axis::kToken, 0, Offset::kNone), kFormatF16}) {
      const int page_tokens = ArrayPageTokens(format), head_dim = 100;
      const std::vector<float> values = Values(2 * page_tokens, head_dim);
      const int64_t bytes = *EncodedArrayBytes(format, side, 2 * page_tokens, head_dim);
      std::vector<std::byte> encoded(static_cast<size_t>(bytes), std::byte{0xff});
      ASSERT_TRUE(EncodeArray(format, side, values, 2 * page_tokens, head_dim, encoded).ok());
      std::vector<float> decoded(values.size());
      ASSERT_TRUE(DecodeArray(format, side, encoded, 2 * page_tokens, head_dim, decoded).ok());
      for (int page = 0; page < 2; ++page) {
        const float* first = values.data() + page * page_tokens * head_dim;
        const OpenSide open(side, head_dim, page_tokens,
                            [&](int t, int c) { return first[t * head_dim + c]; });
        const CodedSide expected = CodeByReference(open, format, 0);
        EXPECT_EQ(bytes, 2 * expected.layout.bytes);
        const auto at = encoded.begin() + page * bytes / 2;
        EXPECT_EQ(std::vector<std::byte>(at, at + bytes / 2), expected.bytes) << FormatSpec(format);
        const auto out = decoded.begin() + page * page_tokens * head_dim;
        EXPECT_EQ(std::vector<float>(out, out + page_tokens * head_dim), expected.decoded);
      }
    }
  }
}

TEST(ArrayCodec, FloatFormatsKeepTheirOwnPrecision) {
  const std::vector<float> values(64 * 8, 0.1f);
  for (const Format& format : {kFormatF32, kFormatF16, kFormatBf16}) {
    std::vector<std::byte> encoded(
        static_cast<size_t>(*EncodedArrayBytes(format, Side::kK, 64, 8)));
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(EncodeArray(format, Side::kK, values, 64, 8, encoded).ok());
    ASSERT_TRUE(DecodeArray(format, Side::kK, encoded, 64, 8, decoded).ok());
    const float expected = format == kFormatF32   ? 0.1f
                           : format == kFormatF16 ? F16ToF32(F32ToF16(0.1f))
                                                  : Bf16ToF32(F32ToBf16(0.1f));
    EXPECT_EQ(decoded.front(), expected);
    EXPECT_EQ(decoded.back(), expected);
  }
}

TEST(ArrayCodec, RefusesValuesThatCannotBeStoredAndNamesThem) {
  const struct {
    Format format;
    float value;
    bool ok;
  } cases[] = {{kInt4, 65504, true},
               {kInt4, 65519, true},
               {kInt4, 65520, false},
               {kInt4, -1e5f, false},
               {kFormatF32, 3e38f, true},
               {kFormatBf16, 3.4e38f, false},
               {kFormatF32, INFINITY, false},
               {kInt4, -INFINITY, false},
               {kInt4, std::numeric_limits<float>::quiet_NaN(), false}};
  for (const auto& c : cases) {
    std::vector<float> values = Values(64, 72);
    values[17 * 72 + 71] = c.value;
    std::vector<std::byte> encoded(
        static_cast<size_t>(*EncodedArrayBytes(c.format, Side::kV, 64, 72)), std::byte{0x77});
    const Status status = EncodeArray(c.format, Side::kV, values, 64, 72, encoded);
    EXPECT_EQ(status.ok(), c.ok) << c.value << " " << status.message();
    if (c.ok) continue;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Mentions(status, "token 17, channel 71")) << status.message();
    EXPECT_EQ(encoded, std::vector<std::byte>(encoded.size(), std::byte{0x77})) << "half-written";
  }
}

TEST(ArrayCodec, RefusesShapesThatDoNotFit) {
  std::vector<float> values = Values(64, 64);
  std::vector<std::byte> encoded(2304);
  EXPECT_TRUE(EncodeArray(kInt4, Side::kK, values, 64, 64, encoded).ok());
  const auto refused = [&](const Status& status, const std::string& named) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Mentions(status, named)) << status.message();
  };
  refused(EncodeArray(kInt4, Side::kK, values, 128, 64, encoded), "the array of values has 4096");
  refused(EncodeArray(kInt4, Side::kK, values, 63, 64, encoded), "63 tokens");
  refused(EncodeArray(kInt4, Side::kK, values, 0, 64, encoded), "0 tokens");
  refused(EncodeArray(kInt4, Side::kK, values, -64, 64, encoded), "-64 tokens");
  refused(EncodeArray(kInt4, Side::kK, values, 64, 62, encoded), "head_dim 62");
  encoded.resize(2303);
  refused(EncodeArray(kInt4, Side::kK, values, 64, 64, encoded), "the encoded buffer has 2303");
  refused(DecodeArray(kInt4, Side::kK, encoded, 64, 64, values), "the encoded buffer has 2303");
  encoded.resize(2304);
  values.pop_back();
  refused(DecodeArray(kInt4, Side::kK, encoded, 64, 64, values), "the array of values has 4095");
  const Format long_group = UniformFormat(4, Axis::kChannel, 128, Offset::kMin);
  refused(EncodedArrayBytes(long_group, Side::kK, 64, 64).status(), "pages of 128 tokens");
  refused(EncodedArrayBytes(kInt4, Side::kK, int64_t{1} << 62, 64).status(), "tokens");
}

TEST(ArrayCodec, DecodingForeignBytesStaysInsideItsBuffers) {
  const Format formats[] = {kInt4, UniformFormat(5, Axis::kToken, 32, Offset::kIntegerZero),
                            *ParseFormat("iq4_nl", Side::kK)};
  for (const Format& format : formats) {
    for (Side side : {Side::kK, Side::kV}) {
      const std::vector<std::byte> encoded(
          static_cast<size_t>(*EncodedArrayBytes(format, side, 64, 100)), std::byte{0xff});
      std::vector<float> decoded(64 * 100);
      EXPECT_TRUE(DecodeArray(format, side, encoded, 64, 100, decoded).ok());
    }
  }
}

TEST(EncodeGroup, ShowsTheWorkedExample) {
  const std::vector<float> x = {0.42f, -0.13f, 0.87f, 0.05f, -0.28f, 0.61f, 0.17f, -0.02f};
  const Result<CodedGroup> g =
      EncodeGroup(UniformFormat(4, Axis::kToken, 128, Offset::kIntegerZero), x);
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g.value().codes, (std::vector<int>{9, 2, 15, 5, 0, 12, 6, 4}));
  EXPECT_EQ(g.value().scale, 0.07666015625f);
  EXPECT_EQ(g.value().zero, 4);
  EXPECT_NEAR(g.value().decoded[2], 0.8433, 2e-4);
  EXPECT_EQ(EncodeGroup(kInt4, x).value().zero, F16ToF32(F32ToF16(-0.28f)));
  EXPECT_EQ(EncodeGroup(UniformFormat(4, Axis::kToken, 32, Offset::kRealZero), x).value().zero,
            3.65234375f);
}

TEST(EncodeGroup, RefusesWhatIsNoGroup) {
  const std::vector<float> one = {1.0f}, huge = {0.0f, 1e6f}, many(1025, 1.0f);
  EXPECT_TRUE(EncodeGroup(kInt4, one).ok());
  EXPECT_TRUE(Mentions(EncodeGroup(kFormatF16, one).status(), "f16 has no groups"));
  EXPECT_TRUE(Mentions(EncodeGroup(*ParseFormat("tq4:n8", Side::kK), one).status(),
                       "tq4:n8 has no groups"));
  EXPECT_TRUE(Mentions(EncodeGroup(kInt4, {}).status(), "group of 0"));
  EXPECT_TRUE(Mentions(EncodeGroup(kInt4, many).status(), "group of 1025"));
  EXPECT_TRUE(Mentions(EncodeGroup(kInt4, huge).status(), "channel 1"));
}

}  // namespace
}  // namespace kvant
