#include "kvant/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace kvant {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

StopMatcher MakeMatcher(std::vector<std::string> stops) {
  Result<StopMatcher> matcher = StopMatcher::Create(std::move(stops));
  EXPECT_TRUE(matcher.ok()) << matcher.status().message();
  return std::move(matcher).value();
}

// What a reader sees of text that arrives in pieces.
std::string Show(const std::vector<std::string>& pieces, std::vector<std::string> stops = {}) {
  Utf8Stream stream;
  StopMatcher matcher = MakeMatcher(std::move(stops));
  std::string shown;
  for (const std::string& piece : pieces) shown += matcher.Append(stream.Append(piece));
  shown += matcher.Append(stream.Flush());
  return shown + matcher.Flush();
}

std::vector<std::string> CutAtRandom(std::string_view text, std::mt19937& random) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t n = std::min<size_t>(1 + random() % 4, text.size());
    pieces.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return pieces;
}

TEST(Utf8Stream, AnEmojiOverFourTokensComesWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Append("a\xf0"), "a");
  EXPECT_EQ(stream.Append("\x9f"), "");
  EXPECT_EQ(stream.Append("\x98"), "");
  EXPECT_EQ(stream.Append("\x80"
                          "b"),
            "😀b");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8Stream, ATextCutInsideACharacterEndsInOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Append("ok\xf0\x9f\x98"), "ok");
  EXPECT_EQ(stream.Flush(), kReplacement);
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Append("new"), "new");
}

TEST(Utf8Stream, AStrayByteDoesNotFreezeTheStream) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Append("\xff"), kReplacement);
  EXPECT_EQ(stream.Append("\xe2\x82"), "");
  EXPECT_EQ(stream.Append("x"), std::string(kReplacement) + "x");
}

TEST(Utf8Stream, ReplacementsAreThoseOfOtherDecoders) {
  // As bytes.decode("utf-8", "replace") gives them in Python.
  const std::string r = kReplacement;
  const std::pair<std::string, std::string> cases[] = {
      {"\xc0\xaf", r + r},
      {"\xe0\x80\x80", r + r + r},
      {"\xed\xa0\x80", r + r + r},
      {"\xf0\x9f\x98z", r + "z"},
      {"\xf0\x9f\xc3\xa9", r + "é"},
      {"\xf4\x90\x80\x80", r + r + r + r},
      {std::string("\0\xe2", 2), std::string(1, '\0') + r},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(Show({bytes}), text);
}

TEST(Utf8Stream, PiecesMakeTheSameTextHoweverItWasCut) {
  std::mt19937 random(9);
  const std::string_view alphabet = "ab\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff";
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 30, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const std::vector<std::string> stops = {"ab", "é", "b€"};
    ASSERT_EQ(Show(CutAtRandom(text, random)), Show({text}));
    ASSERT_EQ(Show(CutAtRandom(text, random), stops), Show({text}, stops));
  }
}

TEST(StopMatcher, AStopStringOverThreeTokensIsNeverShown) {
  StopMatcher matcher = MakeMatcher({"<stop>"});
  EXPECT_EQ(matcher.Append("Hi <s"), "Hi ");
  EXPECT_EQ(matcher.Append("to"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Append("p> more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Append("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, WhatTurnsOutToBeNoStopIsShown) {
  StopMatcher matcher = MakeMatcher({"<stop>"});
  EXPECT_EQ(matcher.Append("a<st"), "a");
  EXPECT_EQ(matcher.Append("<st"), "<st");
  EXPECT_EQ(matcher.Append("ar"), "<star");
  EXPECT_EQ(matcher.Append("<"), "");
  EXPECT_EQ(matcher.Flush(), "<");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, TextThatCannotBeginAStopIsNotHeldBack) {
  StopMatcher matcher = MakeMatcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Append("abc"), "abc");
  EXPECT_EQ(matcher.Append("\n"), "");
  EXPECT_EQ(matcher.Append("x\n\n\n"), "\nx\n");  // the last two line ends may still begin one
  EXPECT_EQ(matcher.Append("User:"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, TheStopThatIsCompleteFirstCountsHoweverTheTextWasCut) {
  const std::vector<std::vector<std::string>> cuts = {
      {"xabcd"}, {"x", "a", "b", "c", "d"}, {"xab", "cd"}};
  for (const std::vector<std::string>& pieces : cuts) {
    // "bc" ends with "c" and is longer.
    EXPECT_EQ(Show(pieces, {"abcd", "c", "bc"}), "xa");
    EXPECT_EQ(Show(pieces, {"bc", "c", "abcd"}), "xa");
  }
}

TEST(StopMatcher, ImpossibleStopStringsAreRefused) {
  for (const char* stop : {"", "\xff", "\xe2\x82"}) {
    const Result<StopMatcher> matcher = StopMatcher::Create({"ok", stop});
    ASSERT_FALSE(matcher.ok());
    EXPECT_EQ(matcher.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(StopMatcher, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(4);
  const std::vector<std::string> stops = {"aab", "ba", "abab"};
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = "abc"[random() % 3];
    size_t first_end = text.size() + 1, begin = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == text.npos) continue;
      const size_t end = at + stop.size();
      if (end < first_end || (end == first_end && at < begin)) begin = at;
      first_end = std::min(first_end, end);
    }
    ASSERT_EQ(Show(CutAtRandom(text, random), stops), text.substr(0, begin)) << text;
  }
}

}  // namespace
}  // namespace kvant
