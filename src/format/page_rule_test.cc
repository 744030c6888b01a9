// The rule's arithmetic against its definition, query by query.
#include "format/page_rule.h"

#include <gtest/gtest.h>

#include <string>

namespace kvant {
namespace {

constexpr int kPage = 64;

enum class Form { kUnseen, kStored, kWritten };

// How a query at `position` reads page p, said token by token.
Form FormOf(int64_t position, int64_t p, bool coded, int64_t window, int64_t layer_window) {
  const int64_t page = position / kPage;
  const int64_t first_seen = layer_window == 0 ? 0 : position + 1 - layer_window;
  if ((p + 1) * kPage <= first_seen) return Form::kUnseen;
  return coded && p + (window + kPage - 1) / kPage < page ? Form::kStored : Form::kWritten;
}

struct Case {
  bool coded;
  int64_t window, layer_window;
};

template <typename Visit>
void ForEachCase(const Visit& visit) {
  for (const bool coded : {true, false}) {
    for (const int64_t window : {0, 1, 64, 65, 256}) {
      for (const int64_t layer_window : {0, 1, 2, 64, 65, 66, 128, 129, 130, 193, 500, 5000}) {
        const testing::ScopedTrace trace(__FILE__, __LINE__,
                                         "coded " + std::to_string(coded) + " window " +
                                             std::to_string(window) + " layer window " +
                                             std::to_string(layer_window));
        visit(Case{coded, window, layer_window}, PageRule::Of(kPage, coded, window, layer_window));
      }
    }
  }
}

TEST(PageRule, EveryQueryFindsWhatItReads) {
  ForEachCase([](const Case& c, const PageRule& rule) {
    for (int64_t position = 0; position < 1000; ++position) {
      const int page = static_cast<int>(position / kPage);
      for (int p = 0; p <= page; ++p) {
        const Form form = FormOf(position, p, c.coded, c.window, c.layer_window);
        if (form == Form::kUnseen) continue;
        ASSERT_GE(p, rule.FirstSeen(page)) << position;
        ASSERT_EQ(form == Form::kStored, p < rule.StoredEnd(page)) << position << " page " << p;
      }
    }
  });
}

// What is held serves every query of the newest page and of the one before it, in their forms; the
// first page that is held serves one.
TEST(PageRule, WhatIsHeldIsWhatACutOfAPageNeeds) {
  ForEachCase([](const Case& c, const PageRule& rule) {
    for (int64_t length = 1; length < 1000; ++length) {
      const int last = rule.LastPage(length), first_held = rule.FirstHeld(length);
      ASSERT_EQ(rule.PagesOf(length), last + 1);
      bool first_is_read = first_held == 0;
      for (int64_t position = std::max(0, last - 1) * int64_t{kPage};
           position < (last + 1) * int64_t{kPage}; ++position) {
        for (int p = 0; p <= position / kPage; ++p) {
          const Form form = FormOf(position, p, c.coded, c.window, c.layer_window);
          if (form == Form::kUnseen) continue;
          first_is_read |= p == first_held;
          if (form == Form::kStored) {
            ASSERT_LT(p, rule.DuePages(length)) << length;
            ASSERT_GE(p, rule.FirstStored(length)) << length;
          } else {
            ASSERT_GE(p, rule.FirstOpen(length)) << length;
          }
        }
      }
      // A window of 1 mod 64 tokens reaches back to the last token of a page: the page of the
      // first query alone, at the very start of its page.
      ASSERT_TRUE(first_is_read) << length;
      ASSERT_EQ(first_held,
                rule.DuePages(length) > 0 ? rule.FirstStored(length) : rule.FirstOpen(length));
    }
  });
}

TEST(PageRule, EarliestCutIsAsFarBackAsWhatIsHeldAllows) {
  ForEachCase([](const Case& c, const PageRule& rule) {
    for (int64_t length = 1; length < 1000; ++length) {
      const int first_open = rule.FirstOpen(length), first_stored = rule.FirstStored(length);
      const int64_t earliest = rule.EarliestCut(first_open, first_stored);
      ASSERT_LE(earliest, std::max<int64_t>(0, length - kPage)) << length;
      const auto serves = [&](int64_t position) {
        const int page = static_cast<int>(position / kPage);
        const int open = rule.StoredEnd(page);
        return open >= first_open &&
               (open == rule.FirstSeen(page) || rule.FirstSeen(page) >= first_stored);
      };
      if (earliest == 0) {
        ASSERT_EQ(first_open, 0) << length;
        continue;
      }
      ASSERT_TRUE(serves(earliest - 1)) << length;
      ASSERT_FALSE(serves(earliest - 2)) << length;
    }
    (void)c;
  });
}

// Every head codes a page while the last page of its window is written: before a query reads it.
TEST(PageRule, HeadsTakeTurnsWithCodesThatAreSearchedFor) {
  for (const int window : {1, 64, 65, 200}) {
    for (const int layer_window : {0, 500}) {
      PageRule rule = PageRule::Of(kPage, true, window, layer_window);
      rule.takes_turns = true;
      for (const int heads : {1, 3, 18, 64, 90, 1000}) {
        for (int64_t length = 1; length < 400; ++length) {
          int coded = 0;  // by the token that makes it `length`
          for (int head = 0; head < heads; ++head) {
            const int sealed = rule.SealedPages(length, head, heads);
            ASSERT_GE(sealed, rule.DuePages(length)) << length;
            // Neither the newest page nor a page of the window before it.
            ASSERT_LE(sealed, std::max(0, rule.LastPage(length) + 1 - rule.window_pages));
            coded += sealed - rule.SealedPages(length - 1, head, heads);
          }
          ASSERT_LE(coded, (heads + kPage - 1) / kPage) << length << ", heads " << heads;
        }
      }
    }
  }
}

// A query may read a page as stored as soon as it is full, or never does.
TEST(PageRule, NobodyTakesTurnsWithoutAWindowOrWithoutReaders) {
  for (const PageRule& plain : {PageRule::Of(kPage, true, 0, 0), PageRule::Of(kPage, true, 64, 65),
                                PageRule::Of(kPage, true, 64, 0)}) {
    PageRule rule = plain;
    rule.takes_turns = plain.window_pages == 0 || !plain.reads_stored();
    for (int64_t length = 1; length < 400; ++length) {
      ASSERT_EQ(rule.SealedPages(length, 0, 3), plain.DuePages(length)) << length;
    }
  }
}

TEST(PageRule, AShortWindowOfALayerReadsNothingAsStored) {
  EXPECT_FALSE(PageRule::Of(kPage, true, 64, 65).reads_stored());
  EXPECT_TRUE(PageRule::Of(kPage, true, 64, 66).reads_stored());
  EXPECT_FALSE(PageRule::Of(kPage, false, 64, 0).reads_stored());
  EXPECT_FALSE(PageRule::Of(kPage, false, 0, 500).reads_stored());
}

}  // namespace
}  // namespace kvant
