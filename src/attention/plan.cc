#include "attention/plan.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "attention/kernels.h"

namespace kvant {
namespace {

// Tasks with more rows than this are cut by rows, unless they hold one query: many states would
// otherwise be written and read again.
constexpr int kMaxSplitRows = 16;

// The pages of tokens [begin, end) of a run.
std::span<const std::byte* const> PagesOf(const Run& run, int64_t begin, int64_t end) {
  const int64_t page_tokens = run.layout->tokens;
  const int64_t first = (begin - run.first_position) / page_tokens;
  const int64_t last = (end - 1 - run.first_position) / page_tokens;
  return {run.pages + first, run.pages + last + 1};
}

std::span<const std::byte* const> PagesOf(std::span<const AttentionTask> tasks,
                                          const AttentionPlan::PlannedSegment& s) {
  const Run& run = tasks[static_cast<size_t>(s.task)].view.runs[static_cast<size_t>(s.run)];
  return PagesOf(run, s.begin, s.end);
}

// The first page that a task reads; tasks that share pages share this one.
const std::byte* FirstPage(const AttentionTask& task) {
  for (const Run& run : task.view.runs) {
    if (!run.empty()) return run.pages[run.first_token / run.layout->tokens];
  }
  return nullptr;
}

int RowGroups(int rows) { return (rows + kMaxRows - 1) / kMaxRows; }

}  // namespace

int64_t AttentionPlan::RunShape::Bytes(int64_t begin, int64_t end) const {
  if (end <= begin) return 0;
  const int64_t first = (begin - first_position) / unit_tokens;
  const int64_t last = (end - 1 - first_position) / unit_tokens;
  return (last - first + 1) * unit_bytes;
}

AttentionPlan::TaskShape AttentionPlan::ShapeOf(const AttentionTask& task) {
  TaskShape shape;
  shape.queries = task.queries;
  shape.group_ratio = task.group_ratio;
  const int64_t window_begin = task.VisibleBegin(task.first_position);
  for (int i = 0; i < kMaxRuns; ++i) {
    const Run& run = task.view.runs[static_cast<size_t>(i)];
    const int first_token =
        static_cast<int>(std::max<int64_t>(run.first_token, window_begin - run.first_position));
    if (run.end_token <= first_token) continue;
    RunShape& r = shape.runs[i];
    r.first_position = run.first_position;
    r.first_token = first_token;
    r.end_token = run.end_token;
    r.page_tokens = run.layout->tokens;
    const bool by_token = run.layout->is_float();
    r.unit_tokens = by_token ? 1 : run.layout->tokens;
    r.unit_bytes = by_token ? static_cast<int>(run.layout->token_bytes()) : run.layout->page_bytes;
  }
  return shape;
}

void AttentionPlan::Update(std::span<const AttentionTask> tasks, int threads) {
  if (!Fits(tasks, threads)) Make(tasks, threads);
  Restart();
}

bool AttentionPlan::Fits(std::span<const AttentionTask> tasks, int threads) {
  if (!complete_ || threads != shares_.threads() || tasks.size() != shapes_.size()) return false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!(ShapeOf(tasks[i]) == shapes_[i])) return false;
  }
  if (CountFirstPages(tasks) != first_pages_) return false;  // more is shared than before, or less
  for (const PlannedSegment& s : segments_) {
    for (int r = s.first_reader + 1; r < s.end_reader; ++r) {
      PlannedSegment other = s;
      other.task = readers_[static_cast<size_t>(r)].task;
      if (!std::ranges::equal(PagesOf(tasks, s), PagesOf(tasks, other))) return false;
    }
  }
  return true;
}

int AttentionPlan::CountFirstPages(std::span<const AttentionTask> tasks) {
  scratch_pages_.clear();
  for (const AttentionTask& task : tasks) scratch_pages_.push_back(FirstPage(task));
  std::sort(scratch_pages_.begin(), scratch_pages_.end());
  const auto end = std::unique(scratch_pages_.begin(), scratch_pages_.end());
  return static_cast<int>(end - scratch_pages_.begin());
}

void AttentionPlan::Make(std::span<const AttentionTask> tasks, int threads) {
  complete_ = false;
  ++plans_made_;
  shapes_.clear();
  tasks_.clear();
  segments_.clear();
  readers_.clear();
  items_.clear();
  costs_.clear();
  split_rows_ = states_ = read_bytes_ = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const int rows = tasks[i].rows();
    shapes_.push_back(ShapeOf(tasks[i]));
    tasks_.push_back({.split = rows <= kMaxSplitRows || tasks[i].queries == 1, .rows = rows});
    if (!tasks_[i].split) AddRowTask(static_cast<int>(i));
  }
  left_.resize(tasks.size());
  AddSplitTasks(tasks);
  shares_.Cut(costs_, threads);
  first_pages_ = CountFirstPages(tasks);
  complete_ = true;
}

// visit(segment without readers) for each segment of the task, in order of position.
template <typename Visit>
void AttentionPlan::ForEachSegment(int task, const Visit& visit) const {
  for (int run = 0; run < kMaxRuns; ++run) {
    const RunShape& shape = shapes_[static_cast<size_t>(task)].runs[run];
    if (shape.empty()) continue;
    const int64_t end = shape.first_position + int64_t{shape.end_token};
    for (int64_t at = shape.first_position + int64_t{shape.first_token}; at < end;) {
      const int64_t stop = std::min(end, (at / kSegmentTokens + 1) * kSegmentTokens);
      visit(PlannedSegment{.task = task, .run = run, .begin = at, .end = stop});
      at = stop;
    }
  }
}

void AttentionPlan::AddRowTask(int index) {
  PlannedTask& task = tasks_[static_cast<size_t>(index)];
  task.first_segment = static_cast<int>(segments_.size());
  int64_t bytes = 0;
  ForEachSegment(index, [&](const PlannedSegment& segment) {
    segments_.push_back(segment);
    bytes += ShapeOf(segment).Bytes(segment.begin, segment.end);
  });
  task.num_segments = static_cast<int>(segments_.size()) - task.first_segment;
  for (int row = 0; row < task.rows; row += kItemRows) {
    const int end = std::min(row + kItemRows, task.rows);
    items_.push_back({.task = index, .first = row, .end = end});
    costs_.push_back(bytes * RowGroups(end - row));
    read_bytes_ += bytes;
  }
}

void AttentionPlan::AddSplitTasks(std::span<const AttentionTask> tasks) {
  by_first_page_.clear();
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks_[i].split) by_first_page_.push_back({FirstPage(tasks[i]), static_cast<int>(i)});
  }
  std::sort(by_first_page_.begin(), by_first_page_.end());
  const int first_segment = static_cast<int>(segments_.size());
  for (size_t begin = 0, end = 0; begin < by_first_page_.size(); begin = end) {
    candidates_.clear();
    for (; end < by_first_page_.size() && by_first_page_[end].first == by_first_page_[begin].first;
         ++end) {
      AddCandidates(by_first_page_[end].second);
    }
    if (end - begin > 1) FindShared(tasks);
    for (const Candidate& candidate : candidates_) AddSplitSegment(candidate);
  }
  for (int s = first_segment; s < static_cast<int>(segments_.size()); ++s) AddItems(s);
}

void AttentionPlan::AddCandidates(int index) {
  PlannedTask& task = tasks_[static_cast<size_t>(index)];
  task.first_row = split_rows_;
  split_rows_ += task.rows;
  task.first_state = states_;
  ForEachSegment(index, [&](const PlannedSegment& segment) {
    candidates_.push_back({.segment = segment, .first_state = states_});
    states_ += task.rows;
    ++task.num_segments;
  });
}

// Puts the candidates of one family in the order of items and marks what they have in common.
// Sorted by their pages, those that have the most in common are neighbours.
void AttentionPlan::FindShared(std::span<const AttentionTask> tasks) {
  std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    const PlannedSegment &x = a.segment, &y = b.segment;
    if (x.begin != y.begin) return x.begin < y.begin;
    if (x.run != y.run) return x.run < y.run;
    const auto x_pages = PagesOf(tasks, x), y_pages = PagesOf(tasks, y);
    const auto order = std::lexicographical_compare_three_way(x_pages.begin(), x_pages.end(),
                                                              y_pages.begin(), y_pages.end());
    if (order != 0) return order < 0;
    return x.end != y.end ? x.end < y.end : x.task < y.task;
  });
  for (size_t i = 1; i < candidates_.size(); ++i) {
    Candidate &last = candidates_[i - 1], &now = candidates_[i];
    if (last.segment.begin != now.segment.begin || last.segment.run != now.segment.run) continue;
    const auto a = PagesOf(tasks, last.segment), b = PagesOf(tasks, now.segment);
    const auto common = std::ranges::mismatch(a, b).in2 - b.begin();
    if (common == 0) continue;
    const RunShape& shape = ShapeOf(now.segment);
    const int64_t first_page = (now.segment.begin - shape.first_position) / shape.page_tokens;
    last.shares = now.shares = true;
    now.common_end = std::min({shape.first_position + (first_page + common) * shape.page_tokens,
                               last.segment.end, now.segment.end});
    now.same = now.common_end == now.segment.end && now.segment.end == last.segment.end;
  }
  // Shared ones come first, then what each task has for itself, in order of its positions.
  own_.clear();
  std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(own_),
               [](const Candidate& c) { return !c.shares; });
  std::erase_if(candidates_, [](const Candidate& c) { return !c.shares; });
  std::sort(own_.begin(), own_.end(),
            [](const Candidate& a, const Candidate& b) { return a.first_state < b.first_state; });
  candidates_.insert(candidates_.end(), own_.begin(), own_.end());
}

void AttentionPlan::AddSplitSegment(const Candidate& candidate) {
  const PlannedSegment& segment = candidate.segment;
  if (!candidate.same) {
    segments_.push_back(segment);
    segments_.back().first_reader = static_cast<int>(readers_.size());
    read_bytes_ +=
        ShapeOf(segment).Bytes(std::max(segment.begin, candidate.common_end), segment.end);
  }
  readers_.push_back({segment.task, candidate.first_state});
  segments_.back().end_reader = static_cast<int>(readers_.size());
}

// One item, or several where there are many readers.
void AttentionPlan::AddItems(int index) {
  const PlannedSegment& segment = segments_[static_cast<size_t>(index)];
  const int64_t bytes = ShapeOf(segment).Bytes(segment.begin, segment.end);
  for (int reader = segment.first_reader; reader < segment.end_reader;) {
    const int first = reader;
    int rows = 0;
    do {
      rows += RowsOf(reader++);
    } while (reader < segment.end_reader && rows + RowsOf(reader) <= kItemRows);
    items_.push_back({.segment = index, .first = first, .end = reader});
    costs_.push_back(bytes * RowGroups(rows));
  }
}

void AttentionPlan::Restart() {
  for (size_t i = 0; i < tasks_.size(); ++i) left_[i] = tasks_[i].num_segments;
  shares_.Restart();
}

bool AttentionPlan::FinishSegment(int task) {
  // Released by each thread that wrote states, acquired by the one that merges them.
  return std::atomic_ref<int>(left_[static_cast<size_t>(task)])
             .fetch_sub(1, std::memory_order_acq_rel) == 1;
}

}  // namespace kvant
