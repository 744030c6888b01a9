// Every level writes the bytes and decodes the bits of the scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "codec/codec.h"
#include "codec/test_pages.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr int kHeadDims[] = {4, 64, 72, 80, 96, 100, 112, 128, 192, 256, 576};

// Makes a level the active one for a scope.
class ActiveLevel {
 public:
  explicit ActiveLevel(Isa isa) : before_(ActiveIsa()) { EXPECT_TRUE(SetActiveIsa(isa).ok()); }
  ~ActiveLevel() { EXPECT_TRUE(SetActiveIsa(before_).ok()); }

 private:
  Isa before_;
};

std::vector<Format> CodedFormats() {
  std::vector<Format> formats;
  for (const char* name :
       {"iq4_nl", "fp8_e4m3", "fp8_e5m2", "mxfp4", "mxfp4:c20", "nvfp4", "nvfp4_4over6", "if4"}) {
    formats.push_back(*ParseFormat(name, Side::kK));
  }
  for (const char* name :
       {"int4:channel:g64:min:out1", "int3:channel:g16:none:out2", "int5:channel:g128:rzero:out3",
        "int2:token:min:out1", "int6:token:g32:zero:out2", "int8:token:g64:ext:out16"}) {
    formats.push_back(*ParseFormat(name, Side::kK));
  }
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (Offset offset :
         {Offset::kNone, Offset::kExtreme, Offset::kMin, Offset::kIntegerZero, Offset::kRealZero}) {
      for (int group : {16, 32, 64, 128, 256}) {
        formats.push_back(UniformFormat(bits, Axis::kChannel, group, offset));
        formats.push_back(UniformFormat(bits, Axis::kToken, group, offset));
      }
      formats.push_back(UniformFormat(bits, Axis::kToken, 0, offset));
    }
  }
  return formats;
}

// Encodes at the active level between guard bytes, over poisoned storage.
void ExpectSameBytes(const OpenSide& open, const CodedSide& expected, int first_token) {
  constexpr size_t kGuard = 64;
  constexpr std::byte kPoison{0xa5};
  const size_t size = expected.bytes.size();
  std::vector<std::byte> stored(size + 2 * kGuard, kPoison);
  EncodeSide(open.layout, open.bytes.data(), expected.layout, first_token, stored.data() + kGuard);
  const auto differs =
      std::mismatch(expected.bytes.begin(), expected.bytes.end(), stored.begin() + kGuard);
  ASSERT_EQ(differs.first, expected.bytes.end())
      << "byte " << differs.first - expected.bytes.begin() << " of " << size << ", metadata "
      << expected.layout.metadata_bytes;
  for (size_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(stored[i], kPoison);
    ASSERT_EQ(stored[kGuard + size + i], kPoison);
  }
}

// Decodes at the active level into rows that are longer than the head.
void ExpectSameValues(const CodedSide& expected) {
  const int head_dim = expected.layout.head_dim, tokens = expected.layout.tokens;
  const int stride = head_dim + 3;
  std::vector<float> decoded(static_cast<size_t>(tokens * stride), -1.5f);
  DecodeSide(expected.layout, expected.bytes.data(), decoded.data(), stride);
  for (int t = 0; t < tokens; ++t) {
    const float* row = decoded.data() + t * stride;
    const float* truth = expected.decoded.data() + t * head_dim;
    ASSERT_EQ(std::memcmp(row, truth, sizeof(float) * static_cast<size_t>(head_dim)), 0)
        << "token " << t;
    for (int c = head_dim; c < stride; ++c) ASSERT_EQ(row[c], -1.5f) << "written past the row";
  }
}

void ExpectEveryLevelLikeReference(const OpenSide& open, const Format& format, int first_token) {
  const CodedSide expected = CodeByReference(open, format, first_token);
  for (Isa isa : AvailableIsas()) {
    const ActiveLevel level(isa);
    SCOPED_TRACE(std::string(IsaName(isa)) + (open.layout.side == Side::kK ? " K " : " V ") +
                 FormatSpec(format) + " head " + std::to_string(open.layout.head_dim) + " tokens " +
                 std::to_string(open.layout.tokens) + " first token " +
                 std::to_string(first_token));
    ExpectSameBytes(open, expected, first_token);
    ExpectSameValues(expected);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Tiles of 16 tokens x 16 channels of one kind each: constants, subnormals, zeros of both signs,
// equal magnitudes of both signs, ties, ordinary values, any finite f16.
float HazardousValue(int token, int channel) {
  const uint64_t mixed =
      MixBits(static_cast<uint64_t>(token) << 32 | static_cast<uint64_t>(channel));
  const int kind =
      static_cast<int>(MixBits(static_cast<uint64_t>((channel / 16) * 64 + token / 16)) % 12);
  switch (kind) {
    case 0:
      return 100.0f;
    case 1:
      return -100.0f;
    case 2:
      return F16ToF32(static_cast<uint16_t>(mixed & 0x8003));  // subnormals and both zeros
    case 3:
      return F16ToF32(static_cast<uint16_t>(mixed & 0x8000));
    case 4:
      return mixed % 16 == 0 ? 65504.0f : 0.0f;
    case 5:
      return mixed % 2 == 0 ? 3.0f : -3.0f;
    case 6:
      return mixed % 2 == 0 ? 65504.0f : -65504.0f;
    case 7:
      return 1000.0f + 0.5f * static_cast<float>(mixed % 3);
    case 8:
      return -0.25f * static_cast<float>(mixed % 64);  // ties of every width
    case 9:
      return 5.9604645e-8f;
    case 10:
      return (MixUnit(mixed) + MixUnit(mixed + 1) - 1.0f) * (channel % 7 == 0 ? 40.0f : 1.0f);
    default: {
      const uint16_t half = static_cast<uint16_t>(mixed);
      return (half & 0x7c00) == 0x7c00 ? 1.0f : F16ToF32(half);
    }
  }
}

// Pages of 64 tokens take every format at every head size; longer ones a short list of heads.
void CheckAllFormats(Side side) {
  for (int tokens : {64, 128, 256}) {
    for (int head_dim : kHeadDims) {
      if (tokens > 64 && head_dim != 64 && head_dim != 100) continue;
      const OpenSide open(side, head_dim, tokens, HazardousValue);
      int count = head_dim;
      for (const Format& format : CodedFormats()) {
        if (PageTokensFor(format, format) != tokens) continue;
        // Both on the heads of 64 and 100, in turns on the others.
        const bool both = head_dim == 64 || head_dim == 100;
        const int turn = count++ % 3 == 0 ? 0 : 4;
        if (both || turn == 0) ExpectEveryLevelLikeReference(open, format, 0);
        if (both || turn == 4) ExpectEveryLevelLikeReference(open, format, 4);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(EveryLevel, WritesTheBytesOfTheReferenceForK) { CheckAllFormats(Side::kK); }
TEST(EveryLevel, WritesTheBytesOfTheReferenceForV) { CheckAllFormats(Side::kV); }

constexpr const char* kSmallFloats[] = {"fp8_e4m3", "fp8_e5m2",     "mxfp4", "mxfp4:c20",
                                        "nvfp4",    "nvfp4_4over6", "if4"};

// Every finite f16 under scales from all of their range: each group begins with the value that sets
// its scale, the others go through all halves that are no larger.
TEST(EveryLevel, TurnsEveryHalfIntoTheSmallFloatOfTheReference) {
  for (const int largest : {0x7bff, 0x3c00, 0x3555, 0x2e66, 0x0400, 0x0001}) {
    const int halves = 2 * (largest + 1);  // of both signs
    for (int begin = 0; begin < halves; begin += 64 * 60) {
      const auto value = [&](int token, int channel) {
        const int n = begin + token * 60 + channel - channel / 16 - 1;
        const int half = channel % 16 == 0 ? largest : n / 2 % (largest + 1) | n % 2 << 15;
        return F16ToF32(static_cast<uint16_t>(half));
      };
      for (Side side : {Side::kK, Side::kV}) {
        const OpenSide open(side, 64, 64, value);
        for (const char* spec : kSmallFloats) {
          ExpectEveryLevelLikeReference(open, *ParseFormat(spec, Side::kK), 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every finite f16 as the largest of a group: all scales that can be stored.
TEST(EveryLevel, StoresTheScaleOfTheReferenceForEveryLargestHalf) {
  constexpr int kGroups = 64 * 4;
  for (int begin = 0; begin < 0x7c00; begin += kGroups) {
    const OpenSide open(Side::kK, 64, 64, [&](int token, int channel) {
      const float largest =
          F16ToF32(static_cast<uint16_t>((begin + token * 4 + channel / 16) % 0x7c00));
      return channel % 16 == 0 ? -largest : largest * MixUnit(static_cast<uint64_t>(channel));
    });
    for (const char* spec : {"mxfp4", "mxfp4:c20", "nvfp4", "nvfp4_4over6", "if4", "fp8_e4m3"}) {
      ExpectEveryLevelLikeReference(open, *ParseFormat(spec, Side::kK), 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(EveryLevel, AgreesOnSmallFloatsForAnyNumberOfSinksAndLongPages) {
  for (Side side : {Side::kK, Side::kV}) {
    const OpenSide open(side, 80, 128, HazardousValue);
    for (const char* spec : kSmallFloats) {
      for (int first_token : {0, 1, 15, 16, 17, 63, 64, 65, 100, 128}) {
        ExpectEveryLevelLikeReference(open, *ParseFormat(spec, side), first_token);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST(EveryLevel, AgreesForAnyNumberOfSinks) {
  for (Side side : {Side::kK, Side::kV}) {
    const OpenSide open(side, 80, 128, HazardousValue);
    for (int group : {16, 64, 128}) {
      for (Axis axis : {Axis::kChannel, Axis::kToken}) {
        for (Offset offset : {Offset::kExtreme, Offset::kMin, Offset::kRealZero}) {
          for (int first_token : {1, 15, 16, 17, 20, 63, 64, 65, 100, 127, 128}) {
            const Format format = UniformFormat(3, axis, group, offset);
            ExpectEveryLevelLikeReference(open, format, first_token);
            ASSERT_FALSE(HasFatalFailure());
          }
        }
      }
    }
  }
}

TEST(EveryLevel, AgreesForPagesLongerThanTheirGroups) {
  for (Side side : {Side::kK, Side::kV}) {
    const OpenSide open(side, 100, 256, HazardousValue);
    for (Axis axis : {Axis::kChannel, Axis::kToken}) {
      for (int group : {32, 128}) {
        const Format format = UniformFormat(5, axis, group, Offset::kIntegerZero);
        ExpectEveryLevelLikeReference(open, format, 4);
      }
    }
  }
}

TEST(EveryLevel, AgreesForOpenPagesThatAreNotF16) {
  const Format format = UniformFormat(4, Axis::kChannel, 64, Offset::kMin);
  for (const Format& open_format : {kFormatF32, kFormatBf16}) {
    const OpenSide open(Side::kK, 80, 64, [](int t, int c) { return MixUnit(MixBits(t) + c); });
    OpenSide wide = open;
    wide.layout = MakeSideLayout(open_format, Side::kK, 80, 64);
    wide.bytes.assign(static_cast<size_t>(wide.layout.bytes), std::byte{0xff});
    for (int t = 0; t < 64; ++t) {
      for (int c = 0; c < 80; ++c) {
        StoreFloatValue(wide.layout, wide.bytes.data(), t, c, open.At(t, c));
      }
    }
    ExpectEveryLevelLikeReference(wide, format, 4);
  }
}

TEST(EveryLevel, AgreesForFloatSides) {
  for (Side side : {Side::kK, Side::kV}) {
    const OpenSide open(side, 100, 64, HazardousValue);
    for (const Format& format : {kFormatF32, kFormatF16, kFormatBf16})
      ExpectEveryLevelLikeReference(open, format, 4);
  }
}

}  // namespace
}  // namespace kvant
