// Runs a plan: threads take its items, the kernels execute them, and whoever finishes a task merges
// its partial states in the order of positions.
#include "attention/attention.h"

#include <algorithm>
#include <new>
#include <string>

#include "attention/kernels.h"
#include "attention/segment_window.h"
#include "codec/rotation.h"

namespace kvant {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Rows of a group are balanced: 9 rows go as 3 + 3 + 3, not 4 + 4 + 1.
int RowsOfGroup(int rows_left) {
  const int groups = (rows_left + kMaxRows - 1) / kMaxRows;
  return (rows_left + groups - 1) / groups;
}

// A thread's memory: kernel scratch, scaled queries, and the states of one item's rows.
struct ThreadMemory {
  SegmentScratch* scratch;
  float* q;        // [kItemRows][padded_dim] of tasks cut by rows
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
  // queries: [plan.split_rows()][padded_dim]; states: [plan.states()][StateFloats()].
  Step(std::span<const AttentionTask> tasks, AttentionPlan& plan, int head_dim, float scale,
       float* queries, float* states)
      : tasks_(tasks),
        plan_(plan),
        head_dim_(head_dim),
        padded_dim_(PaddedDim(head_dim)),
        scale_(scale * kLog2E),
        queries_(queries),
        states_(states),
        kernels_(AttentionKernelsFor(ActiveIsa())) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const AttentionPlan::PlannedTask& t = plan.tasks()[i];
      for (int row = 0; t.split && row < t.rows; ++row) {
        LoadQuery(tasks[i], row, QueryAt(t.first_row + row));
      }
    }
  }

  void Work(int thread, AlignedBuffer& buffer) {
    const ThreadMemory memory = Carve(buffer, padded_dim_);
    SegmentWindow window(plan_, tasks_);
    for (int i; (i = plan_.shares().Take(thread)) >= 0;) {
      const AttentionPlan::Item& item = plan_.items()[static_cast<size_t>(i)];
      const int peek = plan_.shares().Peek(thread), next = FirstSegment(peek);
      if (peek >= 0 && peek + 1 < static_cast<int>(plan_.items().size())) {
        PrefetchAddresses(plan_, tasks_, FirstSegment(peek + 1));
      }
      item.segment >= 0 ? RunSplit(item, next, window, memory)
                        : RunWhole(item, next, window, memory);
    }
  }

 private:
  int FirstSegment(int item) const {
    if (item < 0) return -1;
    const AttentionPlan::Item& i = plan_.items()[static_cast<size_t>(item)];
    return i.segment >= 0 ? i.segment : plan_.tasks()[static_cast<size_t>(i.task)].first_segment;
  }
  float* QueryAt(int64_t row) const { return queries_ + row * padded_dim_; }
  float* StateAt(int64_t state) const { return states_ + state * StateFloats(padded_dim_); }
  PartialState SplitState(int64_t state) const {
    float* at = StateAt(state);
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
    const float scale = scale_;  // in a register: q might be the memory of scale_
    for (int c = 0; c < head_dim_; ++c) q[c] = from[c] * scale;
    if (!task.view.to_query.is_identity()) Rotate(task.view.to_query, head_dim_, q);
    for (int c = head_dim_; c < padded_dim_; ++c) q[c] = 0.0f;
  }

  void Finish(const AttentionTask& task, int row, const PartialState& state) const {
    float* const out = Out(task, row);
    kernels_.finish(state, head_dim_, out);
    if (!task.view.to_value.is_identity()) RotateBack(task.view.to_value, head_dim_, out);
    if (task.probabilities != nullptr) FinishProbabilities(task, row, state);
  }

  // The segments left the scores of all tokens that the row sees in its place.
  void FinishProbabilities(const AttentionTask& task, int row, const PartialState& state) const {
    float* const to = task.probabilities + row * task.probability_stride;
    const int64_t position = task.PositionOf(row), seen_from = task.VisibleBegin(position);
    int64_t done = 0;
    for (const Run& run : task.view.runs) {
      const int64_t first = run.first_position;
      const int64_t begin = std::max(first + run.first_token, seen_from);
      const int64_t end = std::min(first + run.end_token, position + 1);
      if (begin >= end) continue;
      std::fill(to + done, to + begin, 0.0f);
      kernels_.weigh(state, end - begin, to + begin);
      done = end;
    }
    std::fill(to + done, to + task.view.end_position(), 0.0f);
  }

  // What a row of the task sees of the segment and where its scores go, for row `to` of a kernel
  // call.
  static void SetRow(const AttentionTask& task, int row, const BoundSegment& bound,
                     SegmentRows& rows, int to) {
    const int64_t position = task.PositionOf(row);
    const auto slot_of = [&](int64_t at) {
      return static_cast<int>(
          std::clamp<int64_t>(at - bound.segment.first_position, 0, kSegmentTokens));
    };
    rows.begin[to] = slot_of(task.VisibleBegin(position));
    rows.end[to] = slot_of(position + 1);
    if (task.probabilities == nullptr) return;
    rows.scores[to] =
        task.probabilities + row * task.probability_stride + bound.segment.first_position;
  }

  // One segment for all rows of its readers, which leave a state each.
  void RunSplit(const AttentionPlan::Item& item, int next, SegmentWindow& window,
                const ThreadMemory& m) {
    BoundSegment& bound = window.Move(item.segment, next);
    const Segment* const after = bound.segment.next;
    const auto readers = plan_.readers().subspan(static_cast<size_t>(item.first),
                                                 static_cast<size_t>(item.end - item.first));
    int left = 0;
    for (const auto& reader : readers) left += plan_.tasks()[static_cast<size_t>(reader.task)].rows;
    auto reader = readers.begin();
    for (int row = 0; left > 0;) {
      SegmentRows rows;
      rows.rows = RowsOfGroup(left);
      for (int r = 0; r < rows.rows; ++r) {
        const AttentionTask& task = tasks_[static_cast<size_t>(reader->task)];
        const AttentionPlan::PlannedTask& t = plan_.tasks()[static_cast<size_t>(reader->task)];
        rows.q[r] = QueryAt(t.first_row + row);
        SetRow(task, row, bound, rows, r);
        rows.out[r].weighted = StateAt(reader->first_state + row);
        if (++row < t.rows) continue;
        ++reader;
        row = 0;
      }
      left -= rows.rows;
      bound.segment.next = left > 0 ? nullptr : after;  // the last rows ask for it
      kernels_.segment(bound.segment, rows, *m.scratch);
      for (int r = 0; r < rows.rows; ++r) {
        rows.out[r].weighted[padded_dim_] = rows.out[r].max;
        rows.out[r].weighted[padded_dim_ + 1] = rows.out[r].sum;
      }
    }
    for (const auto& done : readers) {
      if (plan_.FinishSegment(done.task)) MergeSplit(done.task);
    }
  }

  void MergeSplit(int index) const {
    const AttentionPlan::PlannedTask& t = plan_.tasks()[static_cast<size_t>(index)];
    for (int row = 0; row < t.rows; ++row) {
      PartialState all = SplitState(t.first_state + row);
      for (int s = 1; s < t.num_segments; ++s) {
        kernels_.merge(all, SplitState(t.first_state + int64_t{s} * t.rows + row), padded_dim_);
      }
      Finish(tasks_[static_cast<size_t>(index)], row, all);
    }
  }

  // Some rows of a task through all of its segments.
  void RunWhole(const AttentionPlan::Item& item, int next, SegmentWindow& window,
                const ThreadMemory& m) const {
    const AttentionTask& task = tasks_[static_cast<size_t>(item.task)];
    const AttentionPlan::PlannedTask& t = plan_.tasks()[static_cast<size_t>(item.task)];
    PartialState running[kItemRows];
    const int count = item.end - item.first;
    for (int r = 0; r < count; ++r) {
      LoadQuery(task, item.first + r, m.q + r * padded_dim_);
      running[r] = {0.0f, 0.0f, m.running + r * padded_dim_};
    }
    for (int i = 0; i < t.num_segments; ++i) {
      const int segment = t.first_segment + i;
      BoundSegment& bound = window.Move(segment, i + 1 < t.num_segments ? segment + 1 : next);
      const Segment* const after = bound.segment.next;
      for (int first = 0; first < count;) {
        SegmentRows rows;
        rows.rows = RowsOfGroup(count - first);
        for (int r = 0; r < rows.rows; ++r) {
          rows.q[r] = m.q + (first + r) * padded_dim_;
          SetRow(task, item.first + first + r, bound, rows, r);
          rows.out[r].weighted = m.segment + r * padded_dim_;
        }
        const bool last = first + rows.rows == count;
        bound.segment.next = last ? after : nullptr;
        kernels_.segment(bound.segment, rows, *m.scratch);
        for (int r = 0; r < rows.rows; ++r) {
          kernels_.merge(running[first + r], rows.out[r], padded_dim_);
        }
        first += rows.rows;
      }
    }
    for (int r = 0; r < count; ++r) {
      Finish(task, item.first + r, running[r]);
    }
  }

  std::span<const AttentionTask> tasks_;
  AttentionPlan& plan_;
  const int head_dim_, padded_dim_;
  const float scale_;
  float* const queries_;
  float* const states_;
  const AttentionKernels& kernels_;
};

// Pages before RoPE are read with the tables of their positions, or not at all.
Status CheckRope(std::span<const AttentionTask> tasks, int head_dim) {
  for (const AttentionTask& task : tasks) {
    const KeyRope& rope = task.view.rope;
    for (const Run& run : task.view.runs) {
      if (run.empty() || !run.layout->k.format.pre_rope) continue;
      if (rope.starts == nullptr || 2 * rope.count > head_dim) {
        return Status::InvalidArgument(
            "keys are stored before RoPE (prerope), but the view has no RoPE tables for heads of " +
            std::to_string(head_dim) + " channels");
      }
      if (run.first_position % kPageTokens != 0) {
        return Status::InvalidArgument(
            "keys are stored before RoPE (prerope), but their pages begin at position " +
            std::to_string(run.first_position) + ", not at a multiple of 64");
      }
    }
  }
  return Status::Ok();
}

// Probabilities have places by position.
Status CheckProbabilities(std::span<const AttentionTask> tasks) {
  for (const AttentionTask& task : tasks) {
    int64_t end = 0;
    for (const Run& run : task.view.runs) {
      if (task.probabilities == nullptr || run.empty()) continue;
      if (run.first_position + run.first_token < end) {
        return Status::Unsupported(
            "attention cannot tell the probabilities of tokens that lie in no order of position");
      }
      end = run.first_position + run.end_token;
    }
  }
  return Status::Ok();
}

}  // namespace

Status AttentionWorkspace::Prepare(std::span<const AttentionTask> tasks, int threads,
                                   int padded_dim) try {
  plan_.Update(tasks, threads);
  const auto grow = [](AlignedBuffer& buffer, int64_t floats) {
    const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
    if (buffer.bytes() >= bytes) return Status::Ok();
    KVANT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Create(bytes));
    return Status::Ok();
  };
  KVANT_RETURN_IF_ERROR(grow(queries_, plan_.split_rows() * padded_dim));
  KVANT_RETURN_IF_ERROR(grow(states_, plan_.states() * StateFloats(padded_dim)));
  thread_scratch_.resize(std::max(thread_scratch_.size(), static_cast<size_t>(threads)));
  for (AlignedBuffer& buffer : thread_scratch_) {
    if (buffer.bytes() >= ThreadBytes(padded_dim)) continue;
    KVANT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Create(ThreadBytes(padded_dim)));
    std::fill_n(buffer.data(), buffer.bytes(), std::byte{0});
  }
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the plan of " + std::to_string(tasks.size()) +
                             " attention tasks");
}

Status Attend(ThreadPool& pool, std::span<const AttentionTask> tasks, int head_dim,
              float softmax_scale, AttentionWorkspace& workspace) {
  KVANT_RETURN_IF_ERROR(CheckRope(tasks, head_dim));
  KVANT_RETURN_IF_ERROR(CheckProbabilities(tasks));
  KVANT_RETURN_IF_ERROR(workspace.Prepare(tasks, pool.threads(), PaddedDim(head_dim)));
  Step step(tasks, workspace.plan_, head_dim, softmax_scale, workspace.queries_.as<float>(),
            workspace.states_.as<float>());
  pool.Run([&](int thread) {
    step.Work(thread, workspace.thread_scratch_[static_cast<size_t>(thread)]);
  });
  return Status::Ok();
}

}  // namespace kvant
