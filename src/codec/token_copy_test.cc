// A token that changes its place decodes to the same values, and its neighbours do not move.
#include "codec/token_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/test_pages.h"

namespace kvant {
namespace {

class TokenCopy : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenCopy, MovesOneTokenAndNothingElse) {
  for (const Side side : {Side::kK, Side::kV}) {
    for (const int head_dim : {64, 72, 100}) {
      const Result<Format> format = ParseFormat(GetParam(), side);
      ASSERT_TRUE(format.ok()) << format.status().message();
      if (!CheckFormat(*format, side, head_dim).ok()) continue;
      ASSERT_TRUE(format->by_token());
      const PageLayout page = MakePageLayout(*format, *format, head_dim, 64);
      const PageLayout open = MakePageLayout(kFormatF16, kFormatF16, head_dim, 64);
      const SideLayout& s = side == Side::kK ? page.k : page.v;
      const SideLayout& o = side == Side::kK ? open.k : open.v;
      const auto make = [&](uint32_t seed) {
        std::vector<std::byte> source(static_cast<size_t>(o.bytes)),
            stored(static_cast<size_t>(s.bytes));
        uint32_t state = seed;
        for (int t = 0; t < 64; ++t) {
          for (int c = 0; c < head_dim; ++c) {
            state = state * 1664525u + 1013904223u;
            const float value = static_cast<float>(state >> 8) * 0x1p-22f - 2.0f;
            StoreFloatValue(o, source.data(), t, c, c == 7 ? 9 * value : value);
          }
        }
        EncodeSide(o, source.data(), s, 0, stored.data());
        return stored;
      };
      const auto decode = [&](const std::vector<std::byte>& stored) {
        std::vector<float> values(static_cast<size_t>(64 * head_dim));
        DecodeSide(s, stored.data(), values.data(), head_dim);
        return values;
      };
      const std::vector<std::byte> from = make(1);
      std::vector<std::byte> to = make(2);
      std::vector<float> wanted = decode(to);
      const std::vector<float> moved = decode(from);
      for (const auto& [a, b] : {std::pair(0, 63), std::pair(17, 2), std::pair(63, 31)}) {
        CopyToken(s, from.data(), a, to.data(), b);
        std::copy_n(moved.begin() + a * head_dim, head_dim, wanted.begin() + b * head_dim);
        ASSERT_EQ(decode(to), wanted) << GetParam() << ", head_dim " << head_dim << ", " << a;
      }
      CopyToken(s, to.data(), 2, to.data(), 3);  // inside one page
      std::copy_n(wanted.begin() + 2 * head_dim, head_dim, wanted.begin() + 3 * head_dim);
      ASSERT_EQ(decode(to), wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TokenCopy,
                         ::testing::Values("f16", "int8:token", "int8:token:none",
                                           "int6:token:g32:zero", "int5:token:g16:ext",
                                           "int4:token:g32:rzero", "int3:token:g64:min",
                                           "int2:token:g16", "int4:token:out2", "q4_0", "q5_1",
                                           "iq4_nl", "fp8_e4m3", "fp8_e5m2", "mxfp4", "nvfp4",
                                           "tq4", "tq3", "nest4", "nest3"));

TEST(TokenCopy, FormatsThatShareAmongTokensAreKnown) {
  for (const char* spec : {"int4:channel", "tq4:mean", "tq4:n8", "tc3", "tcx4"}) {
    EXPECT_FALSE(ParseFormat(spec, Side::kK)->by_token()) << spec;
  }
}

}  // namespace
}  // namespace kvant
