// Plan, then run: cuts the tasks of a step into items of about equal bytes, lets the threads take
// them in order, and merges partial states in the order of positions.
#include "attention/attention.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>

#include "attention/kernels.h"

namespace kvant {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Tasks with more rows than this walk their segments themselves, one state a row; smaller ones
// (decode) are split over segments, one state a row and segment.
constexpr int kMaxSplitRows = 16;
// Rows of one item of a large task: enough items for the threads, few enough states for L2.
constexpr int kItemRows = 48;

// Everything about one task that does not depend on the thread.
struct TaskPlan {
  int first_segment = 0, num_segments = 0;  // into Plan::segments
  int first_state = 0;                      // split tasks: into Plan::states, [segment][row]
  bool split = false;
  int rows = 0;
};

struct SegmentPlan {
  Segment segment;
  int64_t first_slot_position = 0;  // absolute position of slot 0 of the segment
};

struct Item {
  int task;
  int segment;             // split tasks
  int first_row, end_row;  // others
};

struct Plan {
  std::vector<TaskPlan> tasks;
  std::vector<SegmentPlan> segments;
  std::vector<Item> items;
  int64_t split_states = 0;
};

void PlanRun(const Run& run, std::vector<SegmentPlan>& segments) {
  if (run.empty()) return;
  const int block_tokens = run.layout->k.block_tokens, page_tokens = run.layout->tokens;
  const int64_t begin = run.first_position + run.first_token;
  const int64_t end = run.first_position + run.end_token;
  for (int64_t at = begin; at < end;) {
    SegmentPlan plan;
    plan.segment.layout = run.layout;
    const int64_t segment_end = std::min(end, (at / kSegmentTokens + 1) * kSegmentTokens);
    const int64_t first_block = (at - run.first_position) / block_tokens;
    plan.first_slot_position = run.first_position + first_block * block_tokens;
    for (int64_t block = first_block; at < segment_end; ++block) {
      const int64_t block_position = run.first_position + block * block_tokens;
      BlockRef& ref = plan.segment.blocks[plan.segment.num_blocks++];
      const int64_t token = block * block_tokens;
      ref.page = run.pages[token / page_tokens];
      ref.block = static_cast<int>(token % page_tokens / block_tokens);
      ref.begin = static_cast<int>(at - block_position);
      ref.end = static_cast<int>(std::min<int64_t>(segment_end - block_position, block_tokens));
      at = block_position + ref.end;
    }
    segments.push_back(plan);
  }
}

Plan MakePlan(std::span<const AttentionTask> tasks) {
  Plan plan;
  for (const AttentionTask& task : tasks) {
    TaskPlan t;
    t.rows = task.queries * task.group_ratio;
    t.split = t.rows <= kMaxSplitRows;
    t.first_segment = static_cast<int>(plan.segments.size());
    for (const Run& run : task.view.runs) PlanRun(run, plan.segments);
    t.num_segments = static_cast<int>(plan.segments.size()) - t.first_segment;
    const int index = static_cast<int>(plan.tasks.size());
    if (t.split) {
      t.first_state = static_cast<int>(plan.split_states);
      plan.split_states += static_cast<int64_t>(t.rows) * t.num_segments;
      for (int i = 0; i < t.num_segments; ++i) plan.items.push_back({index, i, 0, t.rows});
    } else {
      for (int r = 0; r < t.rows; r += kItemRows) {
        plan.items.push_back({index, 0, r, std::min(r + kItemRows, t.rows)});
      }
    }
    plan.tasks.push_back(t);
  }
  for (size_t i = 0; i + 1 < plan.segments.size(); ++i) {
    plan.segments[i].segment.next = &plan.segments[i + 1].segment;
  }
  return plan;
}

// Rows of a group are balanced: 9 rows go as 3 + 3 + 3, not 4 + 4 + 1.
int RowsOfGroup(int rows_left) {
  const int groups = (rows_left + kMaxRows - 1) / kMaxRows;
  return (rows_left + groups - 1) / groups;
}

// A thread's memory: kernel scratch, scaled queries, and the states of one item's rows.
struct ThreadMemory {
  SegmentScratch* scratch;
  float* q;        // [kItemRows][padded_dim]
  float* running;  // [kItemRows][padded_dim] weighted sums
  float* segment;  // [kMaxRows][padded_dim]
};
size_t ThreadBytes(int padded_dim) {
  return RoundUp(sizeof(SegmentScratch), kAlignment) +
         static_cast<size_t>(2 * kItemRows + kMaxRows) * static_cast<size_t>(padded_dim) * 4;
}
ThreadMemory Carve(AlignedBuffer& buffer, int padded_dim) {
  ThreadMemory m;
  m.scratch = buffer.as<SegmentScratch>();
  m.q = reinterpret_cast<float*>(buffer.data() + RoundUp(sizeof(SegmentScratch), kAlignment));
  m.running = m.q + kItemRows * padded_dim;
  m.segment = m.running + kItemRows * padded_dim;
  return m;
}

// Max and sum of a split state lie behind its weighted sums.
int64_t StateFloats(int padded_dim) { return padded_dim + kLaneBlock; }

class Step {
 public:
  Step(std::span<const AttentionTask> tasks, const Plan& plan, int head_dim, float scale,
       float* states)
      : tasks_(tasks),
        plan_(plan),
        head_dim_(head_dim),
        padded_dim_(PaddedDim(head_dim)),
        scale_(scale * kLog2E),
        states_(states),
        kernels_(AttentionKernelsFor(ActiveIsa())) {}

  void Work(AlignedBuffer& buffer) {
    const ThreadMemory memory = Carve(buffer, padded_dim_);
    const int count = static_cast<int>(plan_.items.size());
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) {
      const Item& item = plan_.items[static_cast<size_t>(i)];
      plan_.tasks[static_cast<size_t>(item.task)].split ? RunSplit(item, memory)
                                                        : RunWhole(item, memory);
    }
  }

  // Merges the split states of every row; after all threads have finished.
  void MergeSplit() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const TaskPlan& t = plan_.tasks[i];
      if (!t.split) continue;
      for (int row = 0; row < t.rows; ++row) {
        PartialState all = SplitState(t, 0, row);
        for (int s = 1; s < t.num_segments; ++s) {
          kernels_.merge(all, SplitState(t, s, row), padded_dim_);
        }
        kernels_.finish(all, head_dim_, Out(tasks_[i], row));
      }
    }
  }

 private:
  float* SplitFloats(const TaskPlan& t, int segment, int row) const {
    return states_ + (t.first_state + static_cast<int64_t>(segment) * t.rows + row) *
                         StateFloats(padded_dim_);
  }
  PartialState SplitState(const TaskPlan& t, int segment, int row) const {
    float* at = SplitFloats(t, segment, row);
    return {at[padded_dim_], at[padded_dim_ + 1], at};
  }
  float* Out(const AttentionTask& task, int row) const {
    return task.out + row / task.group_ratio * task.out_query_stride +
           static_cast<int64_t>(row % task.group_ratio) * head_dim_;
  }

  // Scaled copy of one query row, padded with zeros.
  void LoadQuery(const AttentionTask& task, int row, float* q) const {
    const float* from = task.q + row / task.group_ratio * task.q_query_stride +
                        static_cast<int64_t>(row % task.group_ratio) * head_dim_;
    for (int c = 0; c < head_dim_; ++c) q[c] = from[c] * scale_;
    for (int c = head_dim_; c < padded_dim_; ++c) q[c] = 0.0f;
  }

  // Slots of the segment that the row may see.
  static int RowEnd(const AttentionTask& task, int row, const SegmentPlan& segment) {
    const int64_t position = task.first_position + row / task.group_ratio;
    return static_cast<int>(
        std::clamp<int64_t>(position + 1 - segment.first_slot_position, 0, kSegmentTokens));
  }

  void RunSplit(const Item& item, const ThreadMemory& m) const {
    const AttentionTask& task = tasks_[static_cast<size_t>(item.task)];
    const TaskPlan& t = plan_.tasks[static_cast<size_t>(item.task)];
    const SegmentPlan& segment =
        plan_.segments[static_cast<size_t>(t.first_segment + item.segment)];
    for (int first = 0; first < t.rows;) {
      SegmentRows rows;
      rows.rows = RowsOfGroup(t.rows - first);
      for (int r = 0; r < rows.rows; ++r) {
        LoadQuery(task, first + r, m.q + r * padded_dim_);
        rows.q[r] = m.q + r * padded_dim_;
        rows.end[r] = RowEnd(task, first + r, segment);
        rows.out[r].weighted = SplitFloats(t, item.segment, first + r);
      }
      kernels_.segment(segment.segment, rows, *m.scratch);
      for (int r = 0; r < rows.rows; ++r) {
        rows.out[r].weighted[padded_dim_] = rows.out[r].max;
        rows.out[r].weighted[padded_dim_ + 1] = rows.out[r].sum;
      }
      first += rows.rows;
    }
  }

  void RunWhole(const Item& item, const ThreadMemory& m) const {
    const AttentionTask& task = tasks_[static_cast<size_t>(item.task)];
    const TaskPlan& t = plan_.tasks[static_cast<size_t>(item.task)];
    PartialState running[kItemRows];
    const int count = item.end_row - item.first_row;
    for (int r = 0; r < count; ++r) {
      LoadQuery(task, item.first_row + r, m.q + r * padded_dim_);
      running[r] = {0.0f, 0.0f, m.running + r * padded_dim_};
    }
    for (int i = 0; i < t.num_segments; ++i) {
      const SegmentPlan& segment = plan_.segments[static_cast<size_t>(t.first_segment + i)];
      for (int first = 0; first < count;) {
        SegmentRows rows;
        rows.rows = RowsOfGroup(count - first);
        for (int r = 0; r < rows.rows; ++r) {
          rows.q[r] = m.q + (first + r) * padded_dim_;
          rows.end[r] = RowEnd(task, item.first_row + first + r, segment);
          rows.out[r].weighted = m.segment + r * padded_dim_;
        }
        kernels_.segment(segment.segment, rows, *m.scratch);
        for (int r = 0; r < rows.rows; ++r) {
          kernels_.merge(running[first + r], rows.out[r], padded_dim_);
        }
        first += rows.rows;
      }
    }
    for (int r = 0; r < count; ++r) {
      kernels_.finish(running[r], head_dim_, Out(task, item.first_row + r));
    }
  }

  std::span<const AttentionTask> tasks_;
  const Plan& plan_;
  const int head_dim_, padded_dim_;
  const float scale_;
  float* states_;
  const AttentionKernels& kernels_;
  std::atomic<int> next_{0};
};

}  // namespace

const AttentionKernels& AttentionKernelsFor(Isa isa) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
  switch (isa) {
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kAvxVnni:
      return kAttentionAvxVnni;
    case Isa::kAvx512:
      return kAttentionAvx512;
    case Isa::kScalar:
      break;
  }
#endif
  (void)isa;
  return kAttentionScalar;
}

Status Attend(ThreadPool& pool, std::span<const AttentionTask> tasks, int head_dim,
              float softmax_scale, AttentionWorkspace& workspace) try {
  const Plan plan = MakePlan(tasks);
  const int padded_dim = PaddedDim(head_dim);
  const size_t state_bytes = static_cast<size_t>(plan.split_states * StateFloats(padded_dim)) * 4;
  if (workspace.states_.bytes() < state_bytes) {
    KVANT_ASSIGN_OR_RETURN(workspace.states_, AlignedBuffer::Create(state_bytes));
  }
  workspace.thread_scratch_.resize(
      std::max(workspace.thread_scratch_.size(), static_cast<size_t>(pool.threads())));
  for (AlignedBuffer& buffer : workspace.thread_scratch_) {
    if (buffer.bytes() >= ThreadBytes(padded_dim)) continue;
    KVANT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Create(ThreadBytes(padded_dim)));
    std::fill_n(buffer.data(), buffer.bytes(), std::byte{0});
  }
  Step step(tasks, plan, head_dim, softmax_scale, workspace.states_.as<float>());
  pool.Run([&](int thread) { step.Work(workspace.thread_scratch_[static_cast<size_t>(thread)]); });
  step.MergeSplit();
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the plan of " + std::to_string(tasks.size()) +
                             " attention tasks");
}

}  // namespace kvant
