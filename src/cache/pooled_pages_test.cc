// Where the tokens of one width lie: coded as they come where their format allows it, in pages that
// are neighbours.
#include <gtest/gtest.h>

#include "cache/mixed_testing.h"

namespace kvant {
namespace {

using testing::ExtendMixed;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::SoloMixedPictureOf;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kHeads{3, 2, 64, 2};

// The runs of coded pages and of tails of one width in a view.
struct PoolRuns {
  const Run &coded, &tail;
};
PoolRuns RunsOf(const HeadView& view, size_t pool) {
  return {view.runs[1 + 2 * pool], view.runs[2 + 2 * pool]};
}

TEST(PooledPages, TokensWaitOnlyWhereTheirFormatSharesFiguresAmongThem) {
  constexpr char kPools[] = "8=int8:token/int8:token+4=int4/int4+2=int2:token/int2:token";
  const auto width_of = [](int64_t position, int64_t) { return 2 << HashOf(position) % 3; };
  auto cache = MakeCache(kHeads, MakeMixedSpec(kPools, width_of, true));
  const SequenceId seq = NewSequence(*cache);
  for (const int64_t length : {150, 193, 700, 1000}) {
    ExtendMixed(*cache, seq, Tokens(1000), length);
    const HeadView view = cache->View(seq, 1, 1, (length - 1) / 64);
    for (const size_t by_token : {size_t{0}, size_t{2}}) {
      EXPECT_GT(RunsOf(view, by_token).coded.tokens(), 0);
      EXPECT_TRUE(RunsOf(view, by_token).tail.empty()) << length;
    }
    EXPECT_EQ(RunsOf(view, 1).coded.tokens() % 64, 0);
    EXPECT_FALSE(RunsOf(view, 1).tail.empty()) << length;
  }
}

// Heads take turns as their pages come, and are read one by one.
TEST(PooledPages, OfAHeadBecomeNeighbours) {
  const KvSpec spec = MakeMixedSpec(kTokenPools, HashedWidth);
  auto cache = MakeCache(kHeads, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(4000), 4000);
  for (int layer = 0; layer < kHeads.layers; ++layer) {
    const HeadView view = cache->View(seq, layer, 1, 3999 / 64);
    for (size_t pool = 0; pool < cache->spec().mixed->pools.size(); ++pool) {
      const kvant::Run& run = RunsOf(view, pool).coded;
      ASSERT_GT(run.num_pages, 8);
      for (int page = 1; page < 8; ++page) {
        EXPECT_EQ(run.pages[page] - run.pages[page - 1], run.layout->page_bytes)
            << "layer " << layer << ", pool " << pool << ", page " << page;
      }
    }
  }
  EXPECT_EQ(MixedPictureOf(*cache, seq), SoloMixedPictureOf(kHeads, spec, Tokens(4000), 4000, 9));
}

TEST(PooledPages, ThatAForkSharesStayWhereTheyAre) {
  const KvSpec spec = MakeMixedSpec(kTokenPools, HashedWidth);
  auto cache = MakeCache(kHeads, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(4000), 1500);
  const Result<SequenceId> fork = cache->Fork(seq);
  ASSERT_TRUE(fork.ok());
  ExtendMixed(*cache, seq, Tokens(4000), 3000);
  EXPECT_EQ(MixedPictureOf(*cache, *fork), SoloMixedPictureOf(kHeads, spec, Tokens(4000), 1500));
  ExtendMixed(*cache, *fork, Tokens(4000), 3000);
  EXPECT_EQ(MixedPictureOf(*cache, *fork), MixedPictureOf(*cache, seq));
  ASSERT_TRUE(cache->Free(seq).ok());
  ASSERT_TRUE(cache->Free(*fork).ok());
  EXPECT_EQ(UsedPages(*cache), 0);
}

}  // namespace
}  // namespace kvant
