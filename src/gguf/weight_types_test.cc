#include "gguf/weight_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "gguf/weight_types_golden.h"

namespace kvant {
namespace {

using enum WeightType;

constexpr WeightType kQuantised[] = {kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K};

// An f16 of a block: where it stands and what it is in blocks 0 and 1.
struct Half {
  int at;
  float values[2];
};

std::vector<Half> HalvesOf(WeightType type) {
  switch (type) {
    case kQ4_1:
    case kQ5_1:
      return {{0, {0.0123f, -0.37f}}, {2, {-0.11f, 2.5f}}};
    case kQ4_K:
    case kQ5_K:
      return {{0, {0.0123f, -0.37f}}, {2, {0.0456f, -0.11f}}};
    case kQ6_K:
      return {{208, {0.0123f, -0.37f}}};
    default:
      return {{0, {0.0123f, -0.37f}}};
  }
}

void SetHalves(WeightType type, int index, std::byte* block) {
  for (const Half& half : HalvesOf(type)) {
    const uint16_t bits = F32ToF16(half.values[index]);
    std::memcpy(block + half.at, &bits, sizeof bits);
  }
}

// The blocks that weight_types_golden.h was made from.
std::vector<std::byte> GoldenBlocks(WeightType type, int blocks) {
  std::vector<std::byte> bytes;
  for (int index = 0; index < blocks; ++index) {
    const size_t start = bytes.size();
    for (uint32_t i = 0; i < static_cast<uint32_t>(InfoOf(type).block_bytes); ++i) {
      const uint32_t x = (i + 1000u * static_cast<uint32_t>(index) + 1u) * 2654435761u;
      bytes.push_back(static_cast<std::byte>(((x ^ (x >> 15)) * 2246822519u >> 13) & 255));
    }
    SetHalves(type, index, bytes.data() + start);
  }
  return bytes;
}

// Random blocks whose scales are finite.
std::vector<std::byte> RandomBlocks(WeightType type, int blocks) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(static_cast<size_t>(blocks) * InfoOf(type).block_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 255);
  for (int i = 0; i < blocks; ++i) {
    SetHalves(type, i & 1, bytes.data() + static_cast<size_t>(i) * InfoOf(type).block_bytes);
  }
  return bytes;
}

struct Groups {
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets;
};

Groups Unpack(WeightType type, const std::vector<std::byte>& bytes, int64_t values) {
  const int group = GroupTraitsOf(type).group;
  Groups g{std::vector<uint8_t>(values), std::vector<float>(values / group),
           std::vector<float>(values / group, 99.0f)};
  EXPECT_TRUE(
      UnpackGroups(type, bytes.data(), values, g.codes.data(), g.scales.data(), g.offsets.data())
          .ok());
  return g;
}

template <int kCount>
void ExpectGolden(WeightType type, const float (&expected)[kCount]) {
  const auto bytes = GoldenBlocks(type, kCount / InfoOf(type).block_values);
  std::vector<float> decoded(kCount);
  ASSERT_TRUE(Dequantize(type, bytes.data(), kCount, decoded.data()).ok());
  for (int i = 0; i < kCount; ++i) {
    // Bit for bit: -0 is not 0.
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected[i]))
        << "value " << i << ": " << decoded[i] << " is not " << expected[i];
  }
}

TEST(WeightTypes, DecodesQ4_0AsTheReferencePackage) { ExpectGolden(kQ4_0, kQ4_0Values); }
TEST(WeightTypes, DecodesQ4_1AsTheReferencePackage) { ExpectGolden(kQ4_1, kQ4_1Values); }
TEST(WeightTypes, DecodesQ5_0AsTheReferencePackage) { ExpectGolden(kQ5_0, kQ5_0Values); }
TEST(WeightTypes, DecodesQ5_1AsTheReferencePackage) { ExpectGolden(kQ5_1, kQ5_1Values); }
TEST(WeightTypes, DecodesQ8_0AsTheReferencePackage) { ExpectGolden(kQ8_0, kQ8_0Values); }
TEST(WeightTypes, DecodesQ4_KAsTheReferencePackage) { ExpectGolden(kQ4_K, kQ4_KValues); }
TEST(WeightTypes, DecodesQ5_KAsTheReferencePackage) { ExpectGolden(kQ5_K, kQ5_KValues); }
TEST(WeightTypes, DecodesQ6_KAsTheReferencePackage) { ExpectGolden(kQ6_K, kQ6_KValues); }

TEST(WeightTypes, DecodesPlainFloatsFromUnalignedBytes) {
  // One stray byte, then 1.5, -2 and the smallest f16.
  const uint8_t halves[] = {0xee, 0x00, 0x3e, 0x00, 0xc0, 0x01, 0x00};
  const uint8_t brains[] = {0xee, 0xc0, 0x3f, 0x00, 0xc0, 0x01, 0x00};
  const uint8_t single[] = {0xee, 0x00, 0x00, 0xc0, 0x3f};
  float out[3] = {};
  ASSERT_TRUE(Dequantize(kF16, reinterpret_cast<const std::byte*>(halves + 1), 3, out).ok());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0x1p-24f);
  ASSERT_TRUE(Dequantize(kBF16, reinterpret_cast<const std::byte*>(brains + 1), 3, out).ok());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0x1p-133f);
  ASSERT_TRUE(Dequantize(kF32, reinterpret_cast<const std::byte*>(single + 1), 1, out).ok());
  EXPECT_EQ(out[0], 1.5f);
}

TEST(WeightTypes, GroupsGiveTheSameValuesAsDequantize) {
  constexpr int kBlocks = 6;
  for (const WeightType type : kQuantised) {
    SCOPED_TRACE(InfoOf(type).name);
    const GroupTraits traits = GroupTraitsOf(type);
    const int64_t values = int64_t{kBlocks} * InfoOf(type).block_values;
    const auto bytes = RandomBlocks(type, kBlocks);
    const Groups g = Unpack(type, bytes, values);
    std::vector<float> decoded(values);
    ASSERT_TRUE(Dequantize(type, bytes.data(), values, decoded.data()).ok());
    for (int64_t i = 0; i < values; ++i) {
      const int64_t group = i / traits.group;
      ASSERT_LT(g.codes[i], 1 << traits.bits) << "value " << i;
      const double exact =
          static_cast<double>(g.scales[group]) * (g.codes[i] - traits.zero) + g.offsets[group];
      // Two roundings, of the product and of the sum.
      const double magnitude = std::abs(exact) + 2 * std::abs(g.offsets[group]);
      ASSERT_NEAR(decoded[i], exact, magnitude * 0x1p-23) << "value " << i;
    }
  }
}

TEST(WeightTypes, CodesReachBothEndsOfTheirRange) {
  for (const WeightType type : kQuantised) {
    SCOPED_TRACE(InfoOf(type).name);
    const int64_t values = 16 * int64_t{InfoOf(type).block_values};
    const Groups g = Unpack(type, RandomBlocks(type, 16), values);
    const auto [low, high] = std::minmax_element(g.codes.begin(), g.codes.end());
    EXPECT_LE(*low, 2);
    EXPECT_GE(*high, (1 << GroupTraitsOf(type).bits) - 3);
  }
}

TEST(WeightTypes, OffsetsAreZeroOrLeftOutWhereTheTypeHasNone) {
  for (const WeightType type : kQuantised) {
    if (GroupTraitsOf(type).has_offset) continue;
    SCOPED_TRACE(InfoOf(type).name);
    const int64_t values = 2 * int64_t{InfoOf(type).block_values};
    const auto bytes = RandomBlocks(type, 2);
    const Groups g = Unpack(type, bytes, values);
    for (const float offset : g.offsets) EXPECT_EQ(offset, 0.0f);
    std::vector<uint8_t> codes(values);
    std::vector<float> scales(g.scales.size());
    ASSERT_TRUE(
        UnpackGroups(type, bytes.data(), values, codes.data(), scales.data(), nullptr).ok());
    EXPECT_EQ(codes, g.codes);
    EXPECT_EQ(scales, g.scales);
  }
}

TEST(WeightTypes, PartOfABlockIsRefusedAndNothingIsWritten) {
  const auto bytes = RandomBlocks(kQ6_K, 1);
  for (const int64_t values : {int64_t{-256}, int64_t{8}, int64_t{255}, int64_t{300}}) {
    float out = 77.0f, scale = 77.0f;
    uint8_t code = 77;
    const Status decoded = Dequantize(kQ6_K, bytes.data(), values, &out);
    const Status unpacked = UnpackGroups(kQ6_K, bytes.data(), values, &code, &scale, nullptr);
    EXPECT_EQ(decoded.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(unpacked.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(decoded.message().find(std::to_string(values)), std::string::npos);
    EXPECT_EQ(out, 77.0f);
    EXPECT_EQ(scale, 77.0f);
    EXPECT_EQ(code, 77);
  }
  EXPECT_TRUE(Dequantize(kQ6_K, nullptr, 0, nullptr).ok());
  EXPECT_TRUE(Dequantize(kF32, nullptr, 0, nullptr).ok());
}

TEST(WeightTypes, TypesWithoutADecoderAreRefusedByName) {
  const std::byte bytes[256] = {};
  float out[256];
  uint8_t codes[256];
  const Status decoded = Dequantize(kIQ4_NL, bytes, 32, out);
  EXPECT_EQ(decoded.code(), StatusCode::kUnsupported);
  EXPECT_NE(decoded.message().find("IQ4_NL"), std::string::npos);
  const Status unpacked = UnpackGroups(kF16, bytes, 32, codes, out, out);
  EXPECT_EQ(unpacked.code(), StatusCode::kUnsupported);
  EXPECT_NE(unpacked.message().find("F16"), std::string::npos);
}

TEST(WeightTypes, NumbersWithoutATypeAreNotFound) {
  for (const uint32_t number : {4u, 5u, 9u, 15u, 31u, 38u, 42u, 0xffffffffu}) {
    EXPECT_EQ(FindWeightType(number), nullptr) << number;
  }
  for (uint32_t number = 0; number < 64; ++number) {
    const WeightTypeInfo* info = FindWeightType(number);
    if (info == nullptr) continue;
    EXPECT_EQ(static_cast<uint32_t>(info->type), number);
  }
}

std::string BytesError(WeightType type, std::vector<int64_t> dims) {
  const auto bytes = TensorBytes(type, dims);
  if (bytes.ok()) return "ok";
  EXPECT_EQ(bytes.status().code(), StatusCode::kCorrupt);
  return bytes.status().message();
}

TEST(WeightTypes, TensorBytesRefusesShapesThatCannotBe) {
  constexpr int64_t kHuge = int64_t{1} << 32;
  EXPECT_EQ(TensorBytes(kQ4_1, std::vector<int64_t>{576, 3}).value(), 576 * 3 / 32 * 20);
  EXPECT_EQ(TensorBytes(kF32, std::vector<int64_t>{2, 3, 5, 7}).value(), 840);
  EXPECT_EQ(BytesError(kQ6_K, {8}), "has rows of 8 values, not whole Q6_K blocks of 256");
  EXPECT_EQ(BytesError(kF32, {4, 0}), "has a dimension of 0");
  EXPECT_EQ(BytesError(kF32, {4, -1}), "has a dimension of -1");
  EXPECT_EQ(BytesError(kF32, {kHuge, kHuge}), "has more elements than 64 bits can count");
  EXPECT_EQ(BytesError(kF32, {kHuge, kHuge / 4}), "has more bytes than 64 bits can count");
  EXPECT_EQ(BytesError(kF32, {}), "has 0 dimensions, which is not in 1..4");
  EXPECT_EQ(BytesError(kF32, {1, 1, 1, 1, 1}), "has 5 dimensions, which is not in 1..4");
}

}  // namespace
}  // namespace kvant
