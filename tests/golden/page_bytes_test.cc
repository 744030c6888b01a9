// The stored layout is a file format: the bytes of these pages must never move. The input comes
// from integer arithmetic alone and is exact in f16, so that a hash that differs means that the
// codec or the layout has changed, never the host. The hashes also came out of a second
// implementation, written from the comments of format.h and page_layout.h.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/codec.h"
#include "format/page_layout.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

// Multiples of 1/256 of 11 bits, eight times larger on every fifth channel. xorshift-multiply.
float GoldenValue(int token, int channel) {
  uint32_t x =
      static_cast<uint32_t>(token) * 2654435761u + static_cast<uint32_t>(channel) * 40503u + 1u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  x ^= x >> 16;
  const int eleven_bits = static_cast<int>(x & 2047) - 1024;
  return static_cast<float>(eleven_bits) / (channel % 5 == 0 ? 32.0f : 256.0f);
}

// FNV-1a, 64 bits.
uint64_t HashOf(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

void EncodeGoldenSide(const SideLayout& open, const SideLayout& stored, int first_token,
                      std::byte* out) {
  std::vector<std::byte> source(static_cast<size_t>(open.bytes));
  for (int t = 0; t < open.tokens; ++t) {
    for (int c = 0; c < open.head_dim; ++c) {
      StoreFloatValue(open, source.data(), t, c, GoldenValue(t, c));
    }
  }
  EncodeSide(open, source.data(), stored, first_token, out);
}

struct GoldenPage {
  const char* k;
  const char* v;
  int head_dim;
  int first_token;
  int page_bytes;
  uint64_t hash;
};

constexpr GoldenPage kPages[] = {
    {"int8:channel:g64:min", "int8:token:none", 64, 0, 8576, 0xfe93e6cb3f1701ecu},
    {"int4:channel:g64:min", "int4:token:g64:min", 64, 4, 4608, 0x734d926e6c80d1c1u},
    {"int4:channel:g32:zero", "int4:token:g32:rzero", 100, 4, 9088, 0xb4e9212b3925cbf3u},
    {"int4:channel:g128:min", "int4:token:g128:min", 128, 4, 17408, 0x0b56a75c9e805257u},
    {"int3:channel:g64:min", "int3:token:g64:min", 80, 0, 4800, 0x75c912f1032b01abu},
    {"int2:channel:g32:min", "int2:token:g32:min", 96, 4, 4608, 0xaa56766a112689a9u},
    {"int5:token:g16:zero", "int5:channel:g16:rzero", 72, 0, 9088, 0x654990c417725a2eu},
    {"int6:token:ext", "int6:channel:g256:none", 64, 4, 25216, 0x827c389d3e4c77b1u},
    {"q8_0", "q8_0", 64, 0, 8704, 0x863ae981ef6df3edu},
    {"q4_0", "q4_1", 64, 0, 4864, 0xcead83fb25c80af8u},
    {"q5_0", "q5_1", 112, 4, 10624, 0xfab2ba7f30b2f7aeu},
    {"iq4_nl", "iq4_nl", 64, 0, 4608, 0xa0848870fc4d9a6eu},
    {"int4:channel:g64:min:out1", "int4:token:min:out1", 64, 4, 5120, 0x6138149e84270ad7u},
    {"int3:channel:g128:min:out2", "int2:token:g32:min:out3", 80, 0, 10688, 0x3b6b3e0737e89b13u},
    {"int2:token:min:out2", "int5:channel:g16:min:out1", 100, 4, 10624, 0x9af8e5fb7d5de223u},
    {"f16", "bf16", 100, 0, 27136, 0xaf7aa66ec1d115b1u},
};

TEST(PageBytes, NeverMoveOnAnyLevel) {
  const Isa before = ActiveIsa();
  for (const GoldenPage& golden : kPages) {
    const Format k = *ParseFormat(golden.k, Side::kK), v = *ParseFormat(golden.v, Side::kV);
    const int tokens = PageTokensFor(k, v);
    const FormatPair open = OpenFormats({k, v});
    const PageLayout open_page = MakePageLayout(open.k, open.v, golden.head_dim, tokens);
    const PageLayout page = MakePageLayout(k, v, golden.head_dim, tokens);
    EXPECT_EQ(page.page_bytes, golden.page_bytes) << golden.k << " " << golden.v;
    for (Isa isa : AvailableIsas()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      std::vector<std::byte> bytes(static_cast<size_t>(page.page_bytes), std::byte{0xff});
      EncodeGoldenSide(open_page.k, page.k, golden.first_token, bytes.data());
      EncodeGoldenSide(open_page.v, page.v, golden.first_token, bytes.data() + page.v_offset_bytes);
      EXPECT_EQ(HashOf(bytes), golden.hash)
          << golden.k << " " << golden.v << " head " << golden.head_dim << " " << IsaName(isa)
          << std::hex << " 0x" << HashOf(bytes);
    }
  }
  ASSERT_TRUE(SetActiveIsa(before).ok());
}

}  // namespace
}  // namespace kvant
