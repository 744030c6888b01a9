#include "kvant/bench_mixed.h"

#include <gtest/gtest.h>

#include "eval/inline_tokens.h"

namespace kvant {
namespace {

MixedBenchOptions SmallBench() {
  MixedBenchOptions o;
  o.geometry = {1, 2, 32, 4};
  o.depth_tokens = 1000;
  o.repetitions = 2;
  return o;
}

TEST(BenchMixed, EveryLayoutAnswersAsThePoolsDo) {
  const std::vector<MixedBenchRow> rows = *BenchMixed(SmallBench());
  ASSERT_EQ(rows.size(), 8u + 2 * 4);
  for (size_t i = 8; i < rows.size(); ++i) {
    const MixedBenchRow &row = rows[i], &pools = rows[i < 12 ? 8 : 12];
    EXPECT_EQ(pools.layout, MixedLayout::kPools);
    EXPECT_EQ(row.is_evicted, i >= 12);
    EXPECT_EQ(row.head_tokens, pools.head_tokens);
    EXPECT_EQ(row.useful_bytes, pools.useful_bytes);
    EXPECT_EQ(row.samples_ns.size(), 2u);
    EXPECT_EQ(row.over_one_width.size(), 2u);
    // The kernels round either side's vector to 8 bits: 0.02, as derived for KernelTolerance of
    // tests/conformance/attention_test.cc. Both readers' codes may differ where a quotient lies
    // between two, in which 2 bits have steps of about 1.3: of one token in hundreds.
    EXPECT_LT(row.answer_difference, 0.04) << i;
  }
  EXPECT_EQ(rows[8].head_tokens, 2 * 1000);
  EXPECT_LT(rows[12].head_tokens, 2 * 700);
  EXPECT_NEAR(
      static_cast<double>(rows[12].useful_bytes) / static_cast<double>(rows[8].useful_bytes),
      static_cast<double>(rows[12].head_tokens) / static_cast<double>(rows[8].head_tokens),
      0.1);  // neither wide nor narrow ones go first
}

TEST(BenchMixed, PoolsFetchWhatTheyUseWhereOthersFetchMore) {
  MixedBenchOptions o = SmallBench();
  o.depth_tokens = 8192;
  o.repetitions = 1;
  const std::vector<MixedBenchRow> rows = *BenchMixed(o);
  const auto waste = [&](size_t i) {
    return static_cast<double>(rows[i].sector_bytes) / static_cast<double>(rows[i].useful_bytes);
  };
  const size_t pools = 8, stream = 9, indexed = 10, slots = 11, evicted = 4;
  EXPECT_LT(waste(pools), 1.1);
  EXPECT_LT(waste(pools + evicted), 1.1);
  EXPECT_LT(waste(stream), 1.1);  // walked from end to end
  EXPECT_LT(waste(indexed), 1.15);
  EXPECT_GT(waste(slots), 1.2);
  EXPECT_GT(waste(stream + evicted), 1.3);  // lines of the holes
  EXPECT_LT(rows[pools].widths_in_32, 1.1);
  EXPECT_GT(rows[stream].widths_in_32, 3);
  EXPECT_GT(rows[stream + evicted].widths_in_32, 3);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rows[4 + i].widths_in_32, 1);
}

TEST(BenchMixed, RefusesImpossibleRequests) {
  const auto code_of = [](auto change) {
    MixedBenchOptions o = SmallBench();
    change(o);
    return BenchMixed(o).status().code();
  };
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code_of([](auto& o) { o.geometry.head_dim = 24; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.geometry.q_heads = 5; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.depth_tokens = 100; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.shares = {0, 0, 0, 0}; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.shares[1] = -1; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.evicted_share = 1; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.repetitions = 0; }), kInvalid);
  EXPECT_EQ(code_of([](auto& o) { o.threads = 0; }), kInvalid);
}

// ---- Counting

TEST(FetchCount, CountsEachLineAndSectorOnce) {
  FetchCount count;
  count.Read(0, 8);
  count.Read(4, 40);    // sectors 0 and 1
  count.Read(31, 2);    // again
  count.Read(1000, 1);  // sector 31, line 15
  const FetchedBytes total = count.Total();
  EXPECT_EQ(total.read, 51);
  EXPECT_EQ(total.in_sectors, 3 * 32);
  EXPECT_EQ(total.in_lines, 2 * 64);
}

// K of an f16 page has its tokens side by side a channel, V its channels a token.
TEST(FetchCount, OfFloatPagesOnlyWhatTokensTouch) {
  const PageLayout layout = MakePageLayout(kFormatF16, kFormatF16, 64, 64);
  alignas(64) static std::byte page[64 * 64 * 2 * 2];
  ASSERT_EQ(layout.page_bytes, static_cast<int>(sizeof page));
  const std::byte* pages[] = {page};
  const auto count_of = [&](int first, int end) {
    FetchCount count;
    count.ReadRun({&layout, pages, 1, 0, first, end});
    return count.Total();
  };
  const int64_t list = sizeof(std::byte*);
  EXPECT_EQ(count_of(0, 64).read, list + 64 * 64 * 2 * 2);
  EXPECT_EQ(count_of(0, 64).in_lines, 64 + 64 * 64 * 2 * 2);
  EXPECT_EQ(count_of(0, 1).read, list + 2 * 64 * 2);
  EXPECT_EQ(count_of(0, 1).in_lines, 64 + 64 * 64 + 128);
  EXPECT_EQ(count_of(30, 34).in_sectors, 32 + 64 * 64 + 4 * 128);
}

TEST(FetchCount, OfTokensInLineTheWholeRecords) {
  const std::vector<float> x(32, 1.0f);
  const auto sectors_of = [&](MixedLayout layout, bool second_is_gone) {
    InlineTokens tokens(layout, 32);
    tokens.Add(16, false, x.data(), x.data());          // 128 bytes
    tokens.Add(8, second_is_gone, x.data(), x.data());  // 72 bytes
    tokens.Add(16, false, x.data(), x.data());
    FetchCount count;
    tokens.CountReads(count);
    return count.Total().in_sectors / 32;
  };
  EXPECT_EQ(sectors_of(MixedLayout::kStream, false), 11);  // 331 bytes
  // The tag at 129 shares the sector of the first record's end; its record of 72 bytes begins
  // there.
  EXPECT_EQ(sectors_of(MixedLayout::kStream, true), 10);
  EXPECT_EQ(sectors_of(MixedLayout::kIndexed, false), 1 + 11);
  EXPECT_EQ(sectors_of(MixedLayout::kIndexed, true), 1 + 4 + 5);
  EXPECT_EQ(sectors_of(MixedLayout::kSlots, false), 1 + 4 + 3 + 4);
  EXPECT_EQ(sectors_of(MixedLayout::kSlots, true), 1 + 4 + 4);
}

}  // namespace
}  // namespace kvant
