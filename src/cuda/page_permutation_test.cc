// Device pages: a permutation of codes, and back to the same stored bytes.
#include "cuda/page_permutation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/float16.h"
#include "codec/code_place.h"
#include "codec/test_pages.h"
#include "cuda/device_page.h"
#include "cuda/kernel_table.h"

namespace kvant {
namespace {

constexpr int kHeadDims[] = {64, 80, 96, 128, 256};

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
    for (const int bits : {16, 8, 4, 2}) {
      std::set<int> places, v_places;
      for (int i = 0; i < 64 * dim; ++i) {
        places.insert(cuda::BitOf(true, bits, dim, i / dim, i % dim));
        v_places.insert(cuda::BitOf(false, bits, dim, i / dim, i % dim));
      }
      EXPECT_EQ(v_places, places);
      EXPECT_EQ(std::ssize(places), 64 * dim) << bits << " bits, " << dim;
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin(), (64 * dim - 1) * bits);
    }
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
  const char* pairs[][2] = {{"f16", "f16"},
                            {"int8:channel:g64:min", "int8:token:none"},
                            {"int4:channel:g64:min", "int4:token:g64:min"},
                            {"int4:channel:g64:min", "int4:token:min"},
                            {"int2:channel:g64:min", "int2:token:g64:min"}};
  for (const auto& pair : pairs) {
    for (const int dim : kHeadDims) {
      const Page page = MakePage(pair[0], pair[1], dim);
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
      EXPECT_EQ(back, page.stored) << pair[0] << " " << pair[1] << " " << dim;
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
  const int v_side = cuda::SidePayloadBytes(4, 128);
  EXPECT_EQ(static_cast<int>(page.payload[static_cast<size_t>(v_side + 5 * 16 + 4 + 1)]) >> 4,
            v_code);
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
