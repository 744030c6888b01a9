// How a plan cuts and orders work, on made-up pages that nobody reads.
#include "attention/plan.h"

#include <gtest/gtest.h>

#include <deque>

namespace kvant {
namespace {

const PageLayout kLayout = MakePageLayout(kFormatF16, kFormatF16, 64, 64);
constexpr int64_t kTokenBytes = 2 * 64 * 2;

// One task over a run of `tokens` tokens whose first `shared` pages are the same in all tasks.
class Pages {
 public:
  AttentionTask Task(int tokens, int shared_pages, int queries = 1, int group_ratio = 1) {
    std::vector<const std::byte*>& pages = tables_.emplace_back();
    for (int p = 0; p * 64 < tokens; ++p) {
      pages.push_back(p < shared_pages ? &common_[p] : &own_[next_own_++]);
    }
    AttentionTask task;
    task.view.runs[2] = {&kLayout, pages.data(), static_cast<int>(pages.size()), 0, 0, tokens};
    task.first_position = tokens - queries;
    task.queries = queries;
    task.group_ratio = group_ratio;
    return task;
  }

 private:
  std::byte common_[64], own_[256];
  int next_own_ = 0;
  std::deque<std::vector<const std::byte*>> tables_;
};

// (task, begin) of the segments in the order of items.
using Places = std::vector<std::pair<int, int64_t>>;
Places OrderOf(const AttentionPlan& plan) {
  Places order;
  for (const AttentionPlan::Item& item : plan.items()) {
    const auto& segment = plan.segments()[static_cast<size_t>(item.segment)];
    order.push_back({segment.task, segment.begin});
  }
  return order;
}

TEST(AttentionPlan, SharedSegmentsComeFirstThenEachTaskReadsItsOwnStraightOn) {
  Pages pages;
  const std::vector<AttentionTask> tasks = {pages.Task(1600, 16), pages.Task(1600, 16)};
  AttentionPlan plan;
  plan.Update(tasks, 1);
  EXPECT_EQ(OrderOf(plan), (Places{{0, 0}, {0, 512}, {0, 1024}, {0, 1536}, {1, 1024}, {1, 1536}}));
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * (1024 + 2 * 576));
  EXPECT_EQ(plan.states(), 8);  // both tasks have four segments each
}

TEST(AttentionPlan, TasksOfTheSameShapeThatNowSharePagesArePlannedAnew) {
  Pages pages;
  const std::vector<AttentionTask> apart = {pages.Task(1024, 0), pages.Task(1024, 0)};
  const std::vector<AttentionTask> forks = {pages.Task(1024, 16), pages.Task(1024, 16)};
  AttentionPlan plan;
  plan.Update(apart, 1);
  plan.Update(forks, 1);
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * 1024);
  EXPECT_EQ(plan.plans_made(), 2);
}

// Pages shared up to the middle of a segment: its readers do not merge, but follow each other.
TEST(AttentionPlan, SegmentsThatShareOnlyTheirFirstPagesAreNeighbours) {
  Pages pages;
  const std::vector<AttentionTask> tasks = {pages.Task(1024, 6), pages.Task(1024, 6)};
  AttentionPlan plan;
  plan.Update(tasks, 1);
  EXPECT_EQ(OrderOf(plan), (Places{{0, 0}, {1, 0}, {0, 512}, {1, 512}}));
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * (2 * 1024 - 6 * 64));
}

// A fork of a fork: what the first two share is not what the last two share.
TEST(AttentionPlan, ATreeOfForksIsCountedPageByPage) {
  Pages pages;
  std::vector<AttentionTask> tasks = {pages.Task(512, 2), pages.Task(512, 5), pages.Task(512, 5)};
  AttentionPlan plan;
  plan.Update(tasks, 1);
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * 64 * (8 + 6 + 3));
}

TEST(AttentionPlan, ManyReadersAreCutIntoItemsOfFewRowsAndEachReaderIsServedOnce) {
  Pages pages;
  std::vector<AttentionTask> tasks;
  for (int i = 0; i < 16; ++i) tasks.push_back(pages.Task(512, 8, 1, 8));
  AttentionPlan plan;
  plan.Update(tasks, 2);
  std::vector<int> served(tasks.size(), 0);
  for (const AttentionPlan::Item& item : plan.items()) {
    EXPECT_LE((item.end - item.first) * 8, kItemRows);
    for (int r = item.first; r < item.end; ++r) {
      ++served[static_cast<size_t>(plan.readers()[static_cast<size_t>(r)].task)];
    }
  }
  EXPECT_EQ(served, std::vector<int>(tasks.size(), 1));
  EXPECT_EQ(plan.segments().size(), 1u);
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * 512);
}

// 40 queries of a group of 3 make 120 rows: cut by rows, through all segments.
TEST(AttentionPlan, TasksOfManyRowsAreCutByRows) {
  Pages pages;
  const std::vector<AttentionTask> tasks = {pages.Task(1000, 0, 40, 3), pages.Task(70, 0)};
  AttentionPlan plan;
  plan.Update(tasks, 2);
  ASSERT_FALSE(plan.tasks()[0].split);
  ASSERT_TRUE(plan.tasks()[1].split);
  EXPECT_EQ(plan.tasks()[0].num_segments, 2);
  int rows = 0;
  for (const AttentionPlan::Item& item : plan.items()) {
    if (item.segment >= 0) continue;
    EXPECT_EQ(std::exchange(rows, item.end), item.first);
  }
  EXPECT_EQ(rows, 120);
  EXPECT_EQ(plan.states(), 1);
}

TEST(AttentionPlan, ATaskIsFinishedByItsLastSegmentOnlyAndAgainAfterAnUpdate) {
  Pages pages;
  const std::vector<AttentionTask> tasks = {pages.Task(1200, 0), pages.Task(600, 0)};
  AttentionPlan plan;
  for (int round = 0; round < 2; ++round) {
    plan.Update(tasks, 1);
    EXPECT_FALSE(plan.FinishSegment(0));
    EXPECT_FALSE(plan.FinishSegment(1));
    EXPECT_FALSE(plan.FinishSegment(0));
    EXPECT_TRUE(plan.FinishSegment(1));
    EXPECT_TRUE(plan.FinishSegment(0));
  }
  EXPECT_EQ(plan.plans_made(), 1);
}

TEST(AttentionPlan, AnotherNumberOfThreadsTokensOrTasksNeedsAnotherPlan) {
  Pages pages;
  std::vector<AttentionTask> tasks = {pages.Task(1200, 0), pages.Task(600, 0)};
  AttentionPlan plan;
  plan.Update(tasks, 1);
  plan.Update(tasks, 2);
  EXPECT_EQ(plan.plans_made(), 2);
  tasks[1] = pages.Task(601, 0);
  plan.Update(tasks, 2);
  EXPECT_EQ(plan.plans_made(), 3);
  EXPECT_EQ(plan.read_bytes(), kTokenBytes * 1801);
  tasks.pop_back();
  plan.Update(tasks, 2);
  EXPECT_EQ(plan.plans_made(), 4);
  plan.Update({}, 2);
  EXPECT_EQ(plan.items().size(), 0u);
}

}  // namespace
}  // namespace kvant
