// StreamingLLM and full: the worked examples, and what a budget does to them.
#include "policy/compaction.h"
#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Kept;
using testing::Limits;
using testing::WrittenTokens;
using Positions = std::vector<int32_t>;

TEST(Streaming, KeepsTheFirstAndTheNewest) {
  EXPECT_EQ(Kept("streaming:4,3", WrittenTokens(9), Limits(9)), (Positions{0, 1, 2, 3, 6, 7, 8}));
  EXPECT_EQ(Kept("streaming:4,3", WrittenTokens(7), Limits(7)), (Positions{0, 1, 2, 3, 4, 5, 6}));
}

// Room for two tokens that come next: the rule at the length that there will be.
TEST(Streaming, MakesRoomBeforeTokensCome) {
  EXPECT_EQ(Kept("streaming:4,3", WrittenTokens(7), Limits(7 + 2)), (Positions{0, 1, 2, 3, 6}));
}

TEST(Streaming, SlotsOfWhatStaysArePositionsWithoutGaps) {
  const auto width = testing::Chosen("streaming:4,3", WrittenTokens(9), Limits(9));
  std::vector<int32_t> slot(9);
  EXPECT_EQ(KeepDestinations(width, slot), 7);
  EXPECT_EQ(slot, (Positions{0, 1, 2, 3, kDroppedItem, kDroppedItem, 4, 5, 6}));
}

TEST(Streaming, ABudgetTakesTheOldestOfTheNewestFirst) {
  const int64_t token = testing::UsualTokenBytes()[16];
  EXPECT_EQ(Kept("streaming:2,4", WrittenTokens(9), Limits(9, 0, 0, 4 * token)),
            (Positions{0, 1, 7, 8}));
  EXPECT_EQ(Kept("streaming:2,4", WrittenTokens(9), Limits(9, 0, 0, token)), (Positions{0}));
}

TEST(Full, KeepsAllUntilTheBudgetSaysOtherwise) {
  const int64_t token = testing::UsualTokenBytes()[16];
  EXPECT_EQ(Kept("full", WrittenTokens(5), Limits(5)), (Positions{0, 1, 2, 3, 4}));
  EXPECT_EQ(Kept("full", WrittenTokens(5), Limits(5, 1, 1, 3 * token + 1)), (Positions{0, 3, 4}));
  // Sinks and window stay, whatever the budget.
  EXPECT_EQ(Kept("full", WrittenTokens(5), Limits(5, 1, 1, 1)), (Positions{0, 4}));
}

}  // namespace
}  // namespace kvant
