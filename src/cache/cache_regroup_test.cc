// Token-by-token growth ends with each head's pages side by side, and with the same bytes.
#include <gtest/gtest.h>

#include <set>

#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;

constexpr KvGeometry kHeads{3, 2, 64, 2};

// Bytes from page p to page p + 1 of a head.
std::ptrdiff_t Distance(const Cache& cache, SequenceId seq, int layer, int head, int64_t page) {
  return cache.StoredPage(seq, layer, head, page + 1) - cache.StoredPage(seq, layer, head, page);
}

class CacheRegroup : public ::testing::TestWithParam<const char*> {};

TEST_P(CacheRegroup, PagesOfAHeadThatGrewTokenByTokenAreNeighbours) {
  const KvSpec spec = MakeSpec(GetParam(), GetParam());
  auto cache = MakeCache(kHeads, spec);
  const SequenceId seq = NewSequence(*cache);
  const Timeline tokens = Tokens(1300);
  ExtendTo(*cache, seq, tokens, 1300, 1);
  const std::ptrdiff_t page_bytes = cache->stored_layout(0).page_bytes;
  for (int layer = 0; layer < kHeads.layers; ++layer) {
    for (int head = 0; head < kHeads.kv_heads; ++head) {
      for (int64_t page = 0; page < 16; ++page) {
        if (page % 8 == 7) continue;
        EXPECT_EQ(Distance(*cache, seq, layer, head, page), page_bytes)
            << "layer " << layer << ", head " << head << ", page " << page;
      }
    }
  }
  EXPECT_EQ(PictureOf(*cache, seq), SoloPicture(kHeads, spec, tokens, 1300));
}

INSTANTIATE_TEST_SUITE_P(Formats, CacheRegroup, ::testing::Values("int4", "f16", "int4:out1"));

TEST(CacheRegroup, PagesThatAForkHoldsStayWhereTheyAre) {
  auto cache = MakeCache(kHeads, MakeSpec("int4", "int4"));
  const SequenceId seq = NewSequence(*cache);
  const Timeline tokens = Tokens(900);
  ExtendTo(*cache, seq, tokens, 500, 1);
  const Result<SequenceId> fork = cache->Fork(seq);
  ASSERT_TRUE(fork.ok());
  std::set<const std::byte*> shared;
  for (int64_t page = 0; page < 5; ++page) shared.insert(cache->StoredPage(*fork, 0, 0, page));
  ExtendTo(*cache, seq, tokens, 900, 1);
  for (int64_t page = 0; page < 5; ++page) {
    EXPECT_EQ(cache->StoredPage(*fork, 0, 0, page), cache->StoredPage(seq, 0, 0, page));
    EXPECT_TRUE(shared.contains(cache->StoredPage(*fork, 0, 0, page)));
  }
}

}  // namespace
}  // namespace kvant
