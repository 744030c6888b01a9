// The ring of free pages: the worked example, no page lost or given out twice, rows that part.
#include "policy/free_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>

namespace kvant {
namespace {

using Pages = std::vector<int32_t>;

class FreeRingTest : public ::testing::Test {
 protected:
  const std::unique_ptr<ThreadPool> pool_ = ThreadPool::Create(3).value();

  Pages Take(FreeRing& ring, const Pages& wanted) {
    Pages taken(static_cast<size_t>(std::accumulate(wanted.begin(), wanted.end(), 0)), -1);
    EXPECT_TRUE(ring.Take(wanted, *pool_, taken));
    return taken;
  }
};

// Eight pages, the first free one 5; heads that want 2, 0, 3 and 1.
TEST_F(FreeRingTest, TheWorkedExample) {
  FreeRing ring(8, 5);
  EXPECT_EQ(Take(ring, {2, 0, 3, 1}), (Pages{5, 6, 7, 0, 1, 2}));
  EXPECT_EQ(ring.free_pages(), 2);
  EXPECT_EQ(Take(ring, {1, 1}), (Pages{3, 4}));
}

TEST_F(FreeRingTest, TooMuchIsRefusedWhole) {
  FreeRing ring(4);
  Pages taken(5, -1);
  EXPECT_FALSE(ring.Take(Pages{2, 3}, *pool_, taken));
  EXPECT_EQ(taken, Pages(5, -1));
  EXPECT_EQ(ring.free_pages(), 4);
  EXPECT_EQ(Take(ring, {}), Pages{});
  EXPECT_EQ(Take(ring, {0, 4}), (Pages{0, 1, 2, 3}));
}

// What is given back comes last; a step that gives before it takes can use its own pages.
TEST_F(FreeRingTest, GivingBeforeTakingServesAFullRing) {
  FreeRing ring(3);
  const Pages all = Take(ring, {3});
  EXPECT_EQ(ring.free_pages(), 0);
  ring.Give(Pages{all[2], all[0]});
  EXPECT_EQ(Take(ring, {2}), (Pages{2, 0}));
}

TEST_F(FreeRingTest, FreeAndUsedAreAllPagesAndNoneIsGivenTwice) {
  std::mt19937 random(9);
  FreeRing ring(37, 30);
  std::set<int32_t> used;
  for (int step = 0; step < 400; ++step) {
    Pages wanted(random() % 5);
    for (int32_t& w : wanted) w = static_cast<int32_t>(random() % 6);
    const int32_t sum = std::accumulate(wanted.begin(), wanted.end(), 0);
    if (sum <= ring.free_pages()) {
      for (const int32_t page : Take(ring, wanted)) {
        ASSERT_TRUE(page >= 0 && page < 37 && used.insert(page).second) << page;
      }
    }
    Pages back;
    while (!used.empty() && random() % 4 != 0) {
      const auto at = std::next(used.begin(), static_cast<int64_t>(random() % used.size()));
      back.push_back(*at);
      used.erase(at);
    }
    ring.Give(back);
    ASSERT_EQ(ring.free_pages() + static_cast<int32_t>(used.size()), ring.total_pages());
  }
}

// Of seven pages that a prompt took, two stay wide and three narrow; the narrow ones end at the
// right, the first outermost, and exactly the two others are free again.
TEST_F(FreeRingTest, ARowGivesBackWhatItDoesNotNeedBeforeItMoves) {
  FreeRing ring(8);
  Pages row(8, -1);
  const Pages taken = Take(ring, {7});
  std::copy(taken.begin(), taken.end(), row.begin());
  PartRow(7, {.pages = row, .wide = 2, .narrow = 3}, &ring);
  EXPECT_EQ((Pages{row[0], row[1]}), (Pages{0, 1}));
  EXPECT_EQ((Pages{row[7], row[6], row[5]}), (Pages{2, 3, 4}));
  EXPECT_EQ(ring.free_pages(), 3);
  EXPECT_EQ(Take(ring, {3}), (Pages{7, 5, 6}));
}

}  // namespace
}  // namespace kvant
