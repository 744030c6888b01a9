// Layers that see only their newest tokens, saved, restored and shifted: what queries see is what
// they would see if all pages were kept.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cache/cache_window_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::Bytes;
using testing::ExpectPoolsBalance;
using testing::ExtendTo;
using testing::kWindowFormats;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::RandomTwins;
using testing::RestoreInto;
using testing::Saved;
using testing::Timeline;
using testing::Tokens;
using testing::Twins;
using testing::UsedPages;
using testing::UsualRopes;
using testing::Windows;

// ---- Snapshots

TEST(CacheWindowSnapshot, GoesOnAsTheSavedSequenceWouldHave) {
  const KvGeometry geometry{4, 2, 16, 2};
  const Windows windows = {1, 65, 140, 0};
  const Timeline tokens = Tokens(900);
  for (const char* format : kWindowFormats) {
    for (const int window : {0, 64, 128}) {
      for (const int64_t length : {1, 64, 65, 129, 256, 257, 500, 640}) {
        Twins twins(geometry, MakeSpec(format, format, 5, window), windows, 1000);
        const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
        ExtendTo(*twins.narrow, n, tokens, length, 60);
        ExtendTo(*twins.wide, w, tokens, length, 60);
        const Bytes bytes = Saved(*twins.narrow, n);
        const int64_t used = UsedPages(*twins.narrow);
        const int64_t earliest = twins.narrow->earliest_truncate(n);
        ASSERT_TRUE(twins.narrow->Free(n).ok());
        const Result<SequenceId> again = RestoreInto(*twins.narrow, bytes);
        ASSERT_TRUE(again.ok()) << format << ' ' << length << ": " << again.status().message();
        EXPECT_EQ(UsedPages(*twins.narrow), used);
        EXPECT_EQ(twins.narrow->earliest_truncate(*again), earliest);
        EXPECT_EQ(Saved(*twins.narrow, *again), bytes);
        twins.ExpectSame(*again, w);
        for (int step = 0; step < 5; ++step) {
          twins.Step(*again, w, tokens, 47);
          if (HasFatalFailure()) return;
          twins.Commit(*again, w, 47);
        }
        ExpectPoolsBalance(*twins.narrow);
        ASSERT_TRUE(twins.narrow->Free(*again).ok());
        EXPECT_EQ(UsedPages(*twins.narrow), 0);
      }
    }
  }
}

// Once its window is full, a sequence of any length is saved in as many bytes.
TEST(CacheWindowSnapshot, HoldsThePagesOfTheWindowAlone) {
  const Windows windows = {128, 128};
  auto cache = MakeCache({2, 1, 64, 1}, MakeSpec("int4", "int4"), 4096, 0, windows);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(2001), 1001, 100);
  const Bytes shorter = Saved(*cache, seq);
  ExtendTo(*cache, seq, Tokens(2001), 2001 - 40, 100);  // 1001 and 1961 end 41 tokens into a page
  const Bytes longer = Saved(*cache, seq);
  EXPECT_EQ(longer.size(), shorter.size());
  const Result<Snapshot> snapshot = ParseSnapshot(longer);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->header.windows, windows);
  EXPECT_FALSE(snapshot->header.HoldsSinks(0));
}

TEST(CacheWindowSnapshot, OfOtherWindowsIsRefused) {
  const KvGeometry geometry{2, 1, 64, 1};
  const KvSpec spec = MakeSpec("int4", "int4");
  const Windows windows = {128, 0}, others = {0, 0};
  auto narrow = MakeCache(geometry, spec, 4096, 0, windows);
  auto wide = MakeCache(geometry, spec, 4096, 0, others);
  for (const auto& [from, to] : {std::pair{narrow.get(), wide.get()}, {wide.get(), narrow.get()}}) {
    const SequenceId seq = NewSequence(*from);
    ExtendTo(*from, seq, Tokens(700), 700, 100);
    const Status status = RestoreInto(*to, Saved(*from, seq)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_NE(status.message().find("layer 0 with a window of "), std::string::npos)
        << status.message();
    EXPECT_EQ(UsedPages(*to), to == wide.get() ? 0 : UsedPages(*narrow));
  }
}

// Neither fewer pages than the rest of the timeline reads nor any that were passed.
TEST(CacheWindowSnapshot, WithOtherPagesThanItsLengthNeedsIsRefused) {
  const Windows windows = {130, 0};
  for (const char* format : {"int4", "f16"}) {
    auto cache = MakeCache({2, 1, 64, 1}, MakeSpec(format, format), 4096, 0, windows);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, Tokens(600), 600, 100);
    const Bytes bytes = Saved(*cache, seq);
    const Result<Snapshot> good = ParseSnapshot(bytes);
    ASSERT_TRUE(good.ok()) << good.status().message();
    const auto refusal = [&](auto change) {
      SnapshotHeader header = good->header;
      change(header);
      return ParseSnapshot(SnapshotFront(header, {})).status().message();
    };
    const auto expect = [&](auto change, const std::string& what) {
      EXPECT_NE(refusal(change).find(what), std::string::npos) << format << ": " << refusal(change);
    };
    const bool coded = std::string(format) == "int4";
    const auto first_of = [&](SnapshotHeader& h) -> int& {
      return coded ? h.stored[0].first : h.open[0].first;
    };
    expect([](SnapshotHeader&) {},
           "layer 0 claims");  // all is well but for pages that do not follow
    // A cut may have left it one page less.
    expect([&](SnapshotHeader& h) { first_of(h) += 1; }, "layer 0 claims");
    expect([&](SnapshotHeader& h) { first_of(h) += 2; }, "layer 0 lacks pages");
    expect([&](SnapshotHeader& h) { first_of(h) -= 1; }, "layer 0 has pages");
    expect([&](SnapshotHeader& h) { h.open[0].end -= 1; }, "layer 0 lacks pages");
    expect([&](SnapshotHeader& h) { h.stored[1].end += coded ? -1 : 1; }, "layer 1 lacks pages");
    expect([&](SnapshotHeader& h) { h.windows[0] = 0; }, "layer 0 lacks pages");
    expect([&](SnapshotHeader& h) { h.windows[1] = 130; }, "layer 1 has pages");
    expect([&](SnapshotHeader& h) { h.windows[1] = -1; }, "claims a window of -1 tokens");
  }
}

// ---- Shifts

// 1024 tokens with a window of 200 in pages of 64: pages 10 to 15 are held, and the first query of
// page 15 - n sees four pages before its own.
TEST(CacheWindowShift, WhatTheWindowStillHoldsMovesAndWhatItDoesNotIsRefused) {
  for (const char* format : {"int4", "f16", "tq4:n8"}) {
    for (const int64_t keep : {5, 64, 128}) {
      for (int pages = 1; pages < 14; ++pages) {
        Twins twins({2, 1, 16, 1}, MakeSpec(format, format, 5, 64), {200, 0}, 2000);
        const std::vector<Rope> ropes = UsualRopes(twins.narrow->geometry());
        Timeline tokens = Tokens(1500);
        const SequenceId n = NewSequence(*twins.narrow), w = NewSequence(*twins.wide);
        ExtendTo(*twins.narrow, n, tokens, 1024, 100);
        ExtendTo(*twins.wide, w, tokens, 1024, 100);
        if (!twins.wide->CheckShift(1024, keep, pages * 64).ok()) continue;
        ASSERT_TRUE(twins.wide->Shift(w, keep, pages * 64, ropes).ok());
        // The last of the tokens that stay is in page 15 - pages and sees from page 11 - pages on,
        // which must not begin before what was moved, nor with a page that is not whole.
        const int64_t first_whole = (keep + 63) / 64;
        const bool possible = 11 - pages >= first_whole;
        const auto before = PictureOf(*twins.narrow, n);
        EXPECT_EQ(twins.narrow->CheckShift(1024, keep, pages * 64).ok(), possible);
        const Status status = twins.narrow->Shift(n, keep, pages * 64, ropes);
        ASSERT_EQ(status.ok(), possible) << format << ' ' << keep << ' ' << pages;
        if (!possible) {
          EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
          EXPECT_NE(status.message().find("layer 0 sees its newest 200"), std::string::npos)
              << status.message();
          EXPECT_EQ(PictureOf(*twins.narrow, n), before);
          continue;
        }
        twins.ExpectSame(n, w);
        tokens.erase(tokens.begin() + keep, tokens.begin() + keep + pages * 64);
        for (int step = 0; step < 6; ++step) {
          twins.Step(n, w, tokens, 33);
          if (HasFatalFailure()) return;
          twins.Commit(n, w, 33);
        }
        ExpectPoolsBalance(*twins.narrow);
        ASSERT_TRUE(twins.narrow->Free(n).ok());
        EXPECT_EQ(UsedPages(*twins.narrow), 0);
      }
    }
  }
}

// ---- Anything in any order

class CacheWindowTimelines : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CacheWindowTimelines, SavedShiftedAndCutSeeWhatTheyWouldIfAllWereKept) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  Twins twins = RandomTwins(below);
  Cache &narrow = *twins.narrow, &wide = *twins.wide;
  const std::vector<Rope> ropes = UsualRopes(narrow.geometry());
  struct Line {
    SequenceId wide;
    Timeline tokens;
  };
  std::map<SequenceId, Line> live;
  live[NewSequence(narrow)] = {NewSequence(wide), {}};
  int shifted = 0;
  for (int op = 0; op < 300; ++op) {
    const auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(below(live.size())));
    const SequenceId n = it->first, w = it->second.wide;
    Timeline& tokens = it->second.tokens;
    const auto length = static_cast<int64_t>(tokens.size());
    const uint32_t what = below(20);
    if (what < 10) {
      const uint32_t count = 1 + below(below(4) == 0 ? 300 : 30);
      if (length + count > 1500) continue;
      for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<uint32_t>(random()));
      twins.Step(n, w, tokens, count);
      if (HasFatalFailure()) return;
      twins.Commit(n, w, count);
    } else if (what < 12 && live.size() < 4) {
      ASSERT_TRUE(live.emplace(*narrow.Fork(n), Line{*wide.Fork(w), tokens}).second);
    } else if (what < 14) {
      // After a shift either may reach further back: what one has coded the other never codes.
      const int64_t earliest = std::max(narrow.earliest_truncate(n), wide.earliest_truncate(w));
      const int64_t cut = std::min(length, std::max<int64_t>(earliest, length - below(150)));
      ASSERT_TRUE(narrow.Truncate(n, cut).ok());
      ASSERT_TRUE(wide.Truncate(w, cut).ok());
      tokens.resize(static_cast<size_t>(cut));
    } else if (what < 18) {
      const int64_t keep = narrow.PossibleKeep(below(200));
      const int64_t drop = (1 + below(4)) * narrow.page_tokens();
      const Status status = narrow.Shift(n, keep, drop, ropes);
      if (!status.ok()) {
        ASSERT_EQ(status.code(), StatusCode::kOutOfRange) << status.message();
      } else {
        ASSERT_TRUE(wide.Shift(w, keep, drop, ropes).ok());
        tokens.erase(tokens.begin() + keep, tokens.begin() + keep + drop);
        ++shifted;
      }
    } else {
      const Bytes narrow_bytes = Saved(narrow, n), wide_bytes = Saved(wide, w);
      ASSERT_TRUE(narrow.Free(n).ok());
      ASSERT_TRUE(wide.Free(w).ok());
      const Result<SequenceId> n2 = RestoreInto(narrow, narrow_bytes);
      const Result<SequenceId> w2 = RestoreInto(wide, wide_bytes);
      ASSERT_TRUE(n2.ok() && w2.ok()) << n2.status().message() << w2.status().message();
      Line line{*w2, std::move(tokens)};
      live.erase(it);
      live[*n2] = std::move(line);
    }
    if (op % 10 != 0) continue;
    ExpectPoolsBalance(narrow);
    for (const auto& [id, line] : live) twins.ExpectSame(id, line.wide);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(shifted, 0);
  for (const auto& [id, line] : live) ASSERT_TRUE(narrow.Free(id).ok());
  EXPECT_EQ(UsedPages(narrow), 0);
  ExpectPoolsBalance(narrow);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CacheWindowTimelines, ::testing::Range(1u, 13u));

}  // namespace
}  // namespace kvant
