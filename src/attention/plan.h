// AttentionPlan: the work of one Attend call, cut up before a thread touches a page.
//
// Tasks of few rows (decode) are split: each segment of their pages is an item of its own and
// leaves one partial state a row. Tasks of many rows (a chunk of a prompt) are cut by rows: an item
// takes some of them through all segments and keeps one state a row.
//
// Split tasks that see the same pages (sequences forked from one, at the same KV head) share them:
// a segment that consists of the same pages for several tasks is planned once, for the rows of all;
// segments that begin with the same pages and then differ follow each other, so that one thread
// finds those pages in its cache. What a row gets is what it would get alone.
//
// Items lie in the order in which memory is read best: shared segments of a head by position, then
// each task's own. A plan knows places, not addresses, so it fits every layer of a step: Update
// makes a new one only where the tasks differ in more than their pages. Once warm it does not
// allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention/task.h"
#include "attention/work_shares.h"

namespace kvant {

// Tokens of one segment; also the longest row of the score buffer.
inline constexpr int kSegmentTokens = 512;

// Rows of one item: enough items for the threads, few enough states for the second-level cache.
inline constexpr int kItemRows = 48;

class AttentionPlan {
 public:
  // A task that reads a segment; its rows leave their states at first_state, one after another.
  struct Reader {
    int task = 0;
    int64_t first_state = 0;
  };
  // Tokens [begin, end), absolute, of a run of the task. All readers see the same pages there.
  struct PlannedSegment {
    int task = 0, run = 0;
    int64_t begin = 0, end = 0;
    int first_reader = 0, end_reader = 0;  // into readers(); none in tasks cut by rows
  };
  struct PlannedTask {
    bool split = false;
    int rows = 0;
    int num_segments = 0;
    int first_segment = 0;    // cut by rows: into segments()
    int64_t first_row = 0;    // split: of the rows of all split tasks
    int64_t first_state = 0;  // split: states [segment][row], segments in order of position
  };
  struct Item {
    int task = -1;     // cut by rows: [first, end) are its rows
    int segment = -1;  // split: [first, end) are readers of this segment
    int first = 0, end = 0;
  };

  // Makes the plan fit the tasks and all items available. Not while a thread works on it. Throws
  // std::bad_alloc; the plan is then good for another Update only. It refers to nothing of the
  // tasks.
  void Update(std::span<const AttentionTask> tasks, int threads);

  std::span<const PlannedTask> tasks() const { return tasks_; }
  std::span<const PlannedSegment> segments() const { return segments_; }
  std::span<const Reader> readers() const { return readers_; }
  std::span<const Item> items() const { return items_; }
  // Of all split tasks.
  int64_t split_rows() const { return split_rows_; }
  int64_t states() const { return states_; }

  // Taking items, as WorkShares says.
  WorkShares& shares() { return shares_; }

  // Counts a segment of a split task as done. True for the last one, once: all states of the task
  // are then visible to the calling thread. Any thread.
  bool FinishSegment(int task);

  // Bytes of pages that the plan's items read from memory: shared pages once, and pages of tasks
  // that are cut by rows once an item.
  int64_t read_bytes() const { return read_bytes_; }
  // Plans made so far, by this object.
  int64_t plans_made() const { return plans_made_; }

 private:
  // What decides the plan, of one run and of one task.
  struct RunShape {
    int first_position = 0, first_token = 0, end_token = 0, page_tokens = 0;
    int unit_tokens = 1, unit_bytes = 0;  // what is read in one piece: a token, or a coded page

    bool empty() const { return end_token <= first_token; }
    // Bytes of absolute positions [begin, end), whole units.
    int64_t Bytes(int64_t begin, int64_t end) const;
    bool operator==(const RunShape&) const = default;
  };
  struct TaskShape {
    RunShape runs[kMaxRuns];
    int queries = 0, group_ratio = 0;
    bool operator==(const TaskShape&) const = default;
  };
  // A segment of one split task, as long as it is not known who shares it.
  struct Candidate {
    PlannedSegment segment;
    int64_t first_state = 0;
    int64_t common_end = 0;  // tokens before it lie in pages that the candidate before has too
    bool same = false;       // as the candidate before
    bool shares = false;     // a page with a neighbour
  };

  static TaskShape ShapeOf(const AttentionTask& task);
  const RunShape& ShapeOf(const PlannedSegment& segment) const {
    return shapes_[static_cast<size_t>(segment.task)].runs[segment.run];
  }
  bool Fits(std::span<const AttentionTask> tasks, int threads);
  // Distinct first pages of the tasks: forks of one sequence have the same.
  int CountFirstPages(std::span<const AttentionTask> tasks);
  void Make(std::span<const AttentionTask> tasks, int threads);
  template <typename Visit>
  void ForEachSegment(int task, const Visit& visit) const;
  int RowsOf(int reader) const {
    return tasks_[static_cast<size_t>(readers_[static_cast<size_t>(reader)].task)].rows;
  }
  void AddRowTask(int index);
  void AddSplitTasks(std::span<const AttentionTask> tasks);
  void AddFamily(std::span<const AttentionTask> tasks);
  void FindShared(std::span<const AttentionTask> tasks);
  void AddCandidates(int task);
  void AddSplitSegment(const Candidate& candidate);
  void AddItems(int segment);
  void Restart();

  std::vector<TaskShape> shapes_;
  std::vector<const std::byte*> scratch_pages_;
  int first_pages_ = 0;
  std::vector<PlannedTask> tasks_;
  std::vector<PlannedSegment> segments_;
  std::vector<Reader> readers_;
  std::vector<Item> items_;
  std::vector<int64_t> costs_;  // of items
  std::vector<int> left_;       // of each task: segments that are not done
  WorkShares shares_;
  int64_t split_rows_ = 0, states_ = 0, read_bytes_ = 0, plans_made_ = 0;
  bool complete_ = false;  // false: an allocation failed on the way

  // While a plan is made.
  std::vector<std::pair<const std::byte*, int>> by_first_page_;  // split tasks
  std::vector<Candidate> candidates_, own_;                      // of one family
};

}  // namespace kvant
