#include "model/unicode_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

namespace kvant {
namespace {

TEST(UnicodeBytes, EveryByteHasItsOwnStandInAndComesBack) {
  std::set<uint32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t stand_in = ByteStandIn(static_cast<uint8_t>(byte));
    EXPECT_TRUE(seen.insert(stand_in).second) << byte;
    EXPECT_EQ(StandInByte(stand_in), byte);
  }
  EXPECT_EQ(ByteStandIn(' '), 0x120u);
  EXPECT_EQ(ByteStandIn('\n'), 0x10au);
  EXPECT_EQ(ByteStandIn('a'), uint32_t{'a'});
  EXPECT_EQ(ByteStandIn(0xad), 0x143u);
}

TEST(UnicodeBytes, CharactersThatStandForNoByteAreRefused) {
  for (const uint32_t c : {0x20u, 0xa0u, 0xadu, 0x144u, 0x4e00u, 0x10ffffu}) {
    EXPECT_EQ(StandInByte(c), -1) << c;
  }
  EXPECT_EQ(SpellingToBytes("Ġthe"), " the");
  EXPECT_EQ(SpellingToBytes("Ã©"), "\xc3\xa9");
  EXPECT_EQ(SpellingToBytes(""), "");
  EXPECT_EQ(SpellingToBytes("a b"), std::nullopt);
  EXPECT_EQ(SpellingToBytes("a\xff"), std::nullopt);
  EXPECT_EQ(SpellingToBytes("\xc4"), std::nullopt);
}

TEST(UnicodeBytes, EveryScalarValueComesBackAndEveryCutOfItIsIncomplete) {
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Char read = ReadUtf8(text + "\x80");
    ASSERT_EQ(read.kind, Utf8Kind::kComplete) << c;
    ASSERT_EQ(read.code_point, c);
    ASSERT_EQ(static_cast<size_t>(read.bytes), text.size());
    for (size_t n = 1; n < text.size(); ++n) {
      const Utf8Char cut = ReadUtf8(std::string_view(text).substr(0, n));
      ASSERT_EQ(cut.kind, Utf8Kind::kIncomplete) << c;
      ASSERT_EQ(static_cast<size_t>(cut.bytes), n);
    }
  }
}

TEST(UnicodeBytes, IllFormedBeginningsNameTheirLongestPart) {
  const struct {
    const char* text;
    int bytes;
  } cases[] = {
      {"\x80", 1},      // continuation without a lead
      {"\xc0\xaf", 1},  // overlong forms
      {"\xc1\xbf", 1},
      {"\xe0\x9f\xbf", 1},
      {"\xf0\x8f\xbf\xbf", 1},
      {"\xed\xa0\x80", 1},      // surrogate
      {"\xf4\x90\x80\x80", 1},  // past U+10FFFF
      {"\xf5\x80", 1},
      {"\xff", 1},
      {"\xc3(", 1},  // cut by something else
      {"\xe2\x82(", 2},
      {"\xf0\x9f\x98(", 3},
  };
  for (const auto& c : cases) {
    const Utf8Char read = ReadUtf8(c.text);
    EXPECT_EQ(read.kind, Utf8Kind::kInvalid) << c.text;
    EXPECT_EQ(read.bytes, c.bytes) << c.text;
  }
}

TEST(UnicodeBytes, QuotedTextIsShortAndOneLine) {
  EXPECT_EQ(Beginning("a\nb\xff"), "a b ");
  EXPECT_EQ(Beginning(std::string(50, 'x')), std::string(40, 'x'));
  std::string accents, expected;
  for (int i = 0; i < 50; ++i) accents += "é";
  for (int i = 0; i < 40; ++i) expected += "é";
  EXPECT_EQ(Beginning(accents), expected);
}

}  // namespace
}  // namespace kvant
