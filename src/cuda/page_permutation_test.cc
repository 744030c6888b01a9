// Device pages: a permutation of codes, and back to the same stored bytes.
#include "cuda/page_permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/code_place.h"
#include "codec/test_pages.h"
#include "cuda/device_page.h"
#include "cuda/kernel_table.h"

namespace kvant {
namespace {

constexpr int kHeadDims[] = {64, 80, 96, 128, 256};
constexpr cuda::SideCode kSideCodes[] = {cuda::SideCode::kF16,  cuda::SideCode::kInt8,
                                         cuda::SideCode::kInt4, cuda::SideCode::kInt2,
                                         cuda::SideCode::kE4M3, cuda::SideCode::kLevels4};

struct Page {
  PageLayout layout;
  std::vector<std::byte> stored, payload, metadata;
};

Page MakePage(const std::string& k, const std::string& v, int head_dim) {
  Page page;
  page.layout = MakePageLayout(*ParseFormat(k, Side::kK), *ParseFormat(v, Side::kV), head_dim, 64);
  page.stored.resize(static_cast<size_t>(page.layout.page_bytes));
  for (const SideLayout* s : {&page.layout.k, &page.layout.v}) {
    const OpenSide open(s->side, head_dim, 64, [&](int t, int c) {
      return MixUnit(static_cast<uint64_t>((s->side == Side::kK ? 0 : 1 << 20) + t * 1000 + c)) -
             .3f;
    });
    const CodedSide coded = CodeByReference(open, s->format, 0);
    std::memcpy(page.stored.data() + (s->side == Side::kK ? 0 : page.layout.v_offset_bytes),
                coded.bytes.data(), coded.bytes.size());
  }
  const DevicePageBytes bytes = *DevicePageBytesOf(page.layout);
  page.payload.assign(static_cast<size_t>(bytes.payload), std::byte{0xee});
  page.metadata.assign(static_cast<size_t>(bytes.metadata), std::byte{0xee});
  const Status status = PackDevicePage(page.layout, page.stored, page.payload, page.metadata);
  EXPECT_TRUE(status.ok()) << status.message();
  return page;
}

TEST(DevicePage, PlacesAreBijections) {
  for (const int dim : kHeadDims) {
    for (const cuda::SideCode code : kSideCodes) {
      const int bits = cuda::BitsOf(code);
      std::set<int> places, v_places;
      for (int i = 0; i < 64 * dim; ++i) {
        places.insert(cuda::BitOf(true, code, dim, i / dim, i % dim));
        v_places.insert(cuda::BitOf(false, code, dim, i / dim, i % dim));
      }
      EXPECT_EQ(v_places, places);
      EXPECT_EQ(std::ssize(places), 64 * dim) << bits << " bits, " << dim;
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin(), (64 * dim - 1) * bits);
    }
    std::set<int> token_scales;
    for (int token = 0; token < 64; ++token) token_scales.insert(cuda::TokenOrder(token));
    EXPECT_EQ(std::ssize(token_scales), 64);
    EXPECT_EQ(*token_scales.rbegin(), 63);
    for (const int tiles : {dim / 16, 4}) {
      std::set<int> scales, offsets;
      for (int i = 0; i < tiles * 16; ++i) {
        scales.insert(cuda::PairOrder(tiles, i));
        offsets.insert(cuda::OffsetOrder(tiles, i));
      }
      EXPECT_EQ(std::ssize(scales), tiles * 16);
      EXPECT_EQ(*scales.rbegin(), tiles * 16 - 1);
      EXPECT_EQ(offsets, scales);
    }
  }
}

TEST(DevicePage, GivesTheStoredBytesBack) {
  const struct {
    const char *k, *v;
    bool common_sizes_only = false;
  } pairs[] = {{"f16", "f16"},
               {"int8:channel:g64:min", "int8:token:none"},
               {"int4:channel:g64:min", "int4:token:g64:min"},
               {"int4:channel:g64:min", "int4:token:min"},
               {"int2:channel:g64:min", "int2:token:g64:min"},
               {"fp8_e4m3", "fp8_e4m3"},
               {"tq4", "tq4", true},
               {"nest4:bal", "nest4", true},
               {"int8:channel:g64:min", "int4:token:g64:min", true},
               {"int4:channel:g64:min", "int2:token:g64:min", true}};
  for (const auto& pair : pairs) {
    for (const int dim : kHeadDims) {
      if (pair.common_sizes_only && dim != 64 && dim != 128) continue;
      const Page page = MakePage(pair.k, pair.v, dim);
      std::vector<std::byte> back(page.stored.size(), std::byte{0xee});
      ASSERT_TRUE(UnpackDevicePage(page.layout, page.payload, page.metadata, back).ok());
      // f16 pages hold poison between the halves of values, codes' pages zeros: DecodeSide reads
      // neither.
      if (page.layout.k.format.is_float()) {
        for (int i = 0; i < 64 * dim; ++i) {
          ASSERT_EQ(LoadFloatValue(page.layout.k, back.data(), i / dim, i % dim),
                    LoadFloatValue(page.layout.k, page.stored.data(), i / dim, i % dim));
        }
        continue;
      }
      EXPECT_EQ(back, page.stored) << pair.k << " " << pair.v << " " << dim;
    }
  }
}

// By hand: token 9 is row g + 8 = 1 + 8 of token block 0; channel 3 is columns 2 t, 2 t + 1 of t =
// 1, half 1 of channel tile 0: pair 1, half 1 of fragment 0 of lane 5; nibble 5 of its first word.
TEST(DevicePage, AKnownCodeLiesWhereTheHeaderSays) {
  Page page = MakePage("int4:channel:g64:min", "int4:token:g64:min", 128);
  const int code = LoadCode(page.layout.k, page.stored.data(), 9, 3);
  const int byte = static_cast<int>(page.payload[5 * 16 + 2]);
  EXPECT_EQ(byte >> 4, code);
  // V: channel 9 of tile 0 is row g + 8 of g = 1; token 16 + 10 is column 2 t + 8 of t = 1 of block
  // 1: pair 3, half 0 of fragment 1: nibble 3 of the second word of lane 5.
  const int v_code =
      LoadCode(page.layout.v, page.stored.data() + page.layout.v_offset_bytes, 26, 9);
  const int v_side = cuda::SidePayloadBytes(cuda::SideCode::kInt4, 128);
  EXPECT_EQ(static_cast<int>(page.payload[static_cast<size_t>(v_side + 5 * 16 + 4 + 1)]) >> 4,
            v_code);
}

// By hand: of K, token 9 is row 1 + 8 of token block 0, so its scale is the second of the first
// word of g = 1; channel 3 is byte 3 of word 0 of lane 5. Of V, token 18 is column 2 t of t = 1 of
// block 1: half 0 of the third of the four words that t loads at once. Scales come 256 times as
// large.
TEST(DevicePage, AKnownScaleOfFp8LiesWhereTheHeaderSays) {
  const Page page = MakePage("fp8_e4m3", "fp8_e4m3", 128);
  const PageLayout& layout = page.layout;
  EXPECT_EQ(static_cast<int>(page.payload[5 * 16 + 3]),
            LoadCode(layout.k, page.stored.data(), 9, 3));
  const auto scale_of = [&](const SideLayout& s, int side_at, int token) {
    return 256 * F16ToF32(LoadU16(page.stored.data() + side_at + ScaleByte(s, token, 0)));
  };
  const auto device_scale = [&](int at) { return F16ToF32(LoadU16(page.metadata.data() + at)); };
  EXPECT_EQ(device_scale(1 * 16 + 2), scale_of(layout.k, 0, 9));
  EXPECT_EQ(device_scale(128 + 1 * 16 + 2 * 4), scale_of(layout.v, layout.v_offset_bytes, 18));
  EXPECT_GT(device_scale(2), 0.0f);
}

// Byte p of a word holds both codes of pair p; a value is its norm, the unit and the level's half.
TEST(DevicePage, ATableAndItsCodesGiveTheValues) {
  const Page page = MakePage("tq4", "tq4", 128);
  const DeviceLevels levels = DeviceLevelsOf(page.layout.k);
  std::vector<float> decoded(64 * 128);
  DecodeSideReference(page.layout.k, page.stored.data(), decoded.data(), 128);
  const int code = static_cast<int>(page.payload[5 * 16 + 1]) >> 4;  // token 9, channel 3
  EXPECT_EQ(code, LoadCode(page.layout.k, page.stored.data(), 9, 3));
  const float norm = F16ToF32(LoadU16(page.metadata.data() + 1 * 16 + 2));
  const float value = norm * levels.unit * F16ToF32(levels.halves[static_cast<size_t>(code)]);
  EXPECT_NEAR(value, decoded[9 * 128 + 3], 4 * 0x1p-24f * std::fabs(value));  // roundings of floats
}

TEST(DevicePage, RefusesWhatNoKernelReads) {
  const auto refused = [](const char* k, const char* v, int dim, int tokens) {
    const Result<DevicePageBytes> bytes = DevicePageBytesOf(
        MakePageLayout(*ParseFormat(k, Side::kK), *ParseFormat(v, Side::kV), dim, tokens));
    return bytes.ok() ? std::string() : bytes.status().message();
  };
  EXPECT_NE(refused("f16", "f16", 72, 64).find("72 channels"), std::string::npos);
  EXPECT_NE(refused("int4", "int8", 64, 64).find("int8"), std::string::npos);
  EXPECT_NE(refused("int3", "int3", 64, 64).find("int3"), std::string::npos);
  EXPECT_NE(refused("fp8_e5m2", "fp8_e5m2", 64, 64).find("fp8_e5m2"), std::string::npos);
  EXPECT_NE(refused("fp8_e4m3", "int8", 64, 64), "");
  EXPECT_NE(refused("int8", "int4", 80, 64).find("two widths"), std::string::npos);
  EXPECT_NE(refused("tq4", "tq4", 256, 64).find("only of 64 and 128"), std::string::npos);
  EXPECT_NE(refused("tq4:mean", "tq4", 64, 64), "");
  EXPECT_NE(refused("tq4", "tq4:n8", 64, 64), "");
  EXPECT_NE(refused("tq3", "tq3", 64, 64), "");
  EXPECT_NE(refused("int4:channel:g32:min", "int4", 64, 64), "");
  EXPECT_NE(refused("int4:channel:g128:min", "int4", 64, 128).find("128 tokens"),
            std::string::npos);
  EXPECT_NE(refused("int4", "int4:token:g32:min", 64, 64), "");
  EXPECT_EQ(refused("int4", "int4", 64, 64), "");
}

TEST(DevicePage, RefusesBuffersOfAnotherSize) {
  Page page = MakePage("int4", "int4", 64);
  page.metadata.pop_back();
  const Status status = PackDevicePage(page.layout, page.stored, page.payload, page.metadata);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the metadata has"), std::string::npos) << status.message();
}

TEST(DevicePage, RefusesAnOffsetThatF16DoesNotHold) {
  Page page = MakePage("int8", "int8:token:none", 64);
  const uint16_t scale = F32ToF16(515.5f);
  std::memcpy(page.stored.data() + page.layout.v_offset_bytes, &scale, 2);
  const Status status = PackDevicePage(page.layout, page.stored, page.payload, page.metadata);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace kvant
