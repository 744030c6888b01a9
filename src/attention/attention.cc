// Runs a plan: threads take its items, the kernels execute them, and whoever finishes a task merges
// its partial states in the order of positions.
#include "attention/attention.h"

#include <algorithm>
#include <new>
#include <string>

#include "attention/kernels.h"
#include "attention/latent_kernels.h"
#include "attention/segment_window.h"
#include "codec/rotation.h"

namespace kvant {

// Sizes that all tasks of a call have in common. `latent` of them: see HeadView::latent_dim.
struct AttentionWidths {
  AttentionWidths(int head_dim_in, int latent_dim_in)
      : head_dim(head_dim_in),
        out_dim(latent_dim_in == 0 ? head_dim : latent_dim_in),
        rope_key(latent_dim_in == 0 ? 0 : PaddedDim(head_dim - latent_dim_in)),
        out(PaddedDim(out_dim)),
        query(out + rope_key) {}

  bool is_latent() const { return rope_key != 0; }
  // Max and sum of a split state lie behind its weighted sums.
  int64_t state_floats() const { return out + kLaneBlock; }
  int64_t latent_floats() const {
    return is_latent() ? int64_t{kSegmentTokens + 2 * kLatentSpareTokens} * query : 0;
  }

  int head_dim, out_dim;     // values of a query and of what it gets
  int rope_key, out, query;  // padded
};

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
  float* q;        // [kItemRows][query] of tasks cut by rows
  float* running;  // [kItemRows][out] weighted sums
  float* segment;  // [kMaxRows][out]
  LatentTokens latents;
  int decoded = -1;  // the segment that `latents` hold
};
size_t ThreadBytes(const AttentionWidths& w) {
  const int64_t floats =
      int64_t{kItemRows} * w.query + int64_t{kItemRows + kMaxRows} * w.out + w.latent_floats();
  return RoundUp(sizeof(SegmentScratch), kAlignment) + static_cast<size_t>(floats) * sizeof(float);
}
ThreadMemory Carve(AlignedBuffer& buffer, const AttentionWidths& w) {
  ThreadMemory m;
  m.scratch = buffer.as<SegmentScratch>();
  m.q = reinterpret_cast<float*>(buffer.data() + RoundUp(sizeof(SegmentScratch), kAlignment));
  m.running = m.q + kItemRows * w.query;
  m.segment = m.running + kItemRows * w.out;
  m.latents = {m.segment + kMaxRows * w.out + int64_t{kLatentSpareTokens} * w.query, w.out,
               w.rope_key};
  return m;
}

// Probabilities lie by position, but where a run begins before the end of the last one (tokens of
// pools, in no order): then right behind that one's. Calls visit(run's index, run, how much further
// than its positions its tokens lie) for each run that is not empty.
template <typename Visit>
void ForEachRunPlace(const HeadView& view, const Visit& visit) {
  int64_t end = 0;
  for (size_t r = 0; r < view.runs.size(); ++r) {
    const Run& run = view.runs[r];
    if (run.empty()) continue;
    const int64_t shift = std::max<int64_t>(0, end - run.first_position - run.first_token);
    end = run.first_position + run.end_token + shift;
    visit(r, run, shift);
  }
}

int64_t PlaceShift(const HeadView& view, int run) {
  int64_t found = 0;
  ForEachRunPlace(view, [&](size_t r, const Run&, int64_t shift) {
    if (static_cast<int>(r) == run) found = shift;
  });
  return found;
}

class Step {
 public:
  // queries: [plan.split_rows()][query]; states: [plan.states()][state_floats()].
  Step(std::span<const AttentionTask> tasks, AttentionPlan& plan, const AttentionWidths& widths,
       float scale, float* queries, float* states)
      : tasks_(tasks),
        plan_(plan),
        widths_(widths),
        scale_(scale * kLog2E),
        queries_(queries),
        states_(states),
        kernels_(AttentionKernelsFor(ActiveIsa())),
        latent_kernels_(LatentKernelsFor(ActiveIsa())) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const AttentionPlan::PlannedTask& t = plan.tasks()[i];
      for (int row = 0; t.split && row < t.rows; ++row) {
        LoadQuery(tasks[i], row, QueryAt(t.first_row + row));
      }
    }
  }

  void Work(int thread, AlignedBuffer& buffer) {
    ThreadMemory memory = Carve(buffer, widths_);
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
  float* QueryAt(int64_t row) const { return queries_ + row * widths_.query; }
  float* StateAt(int64_t state) const { return states_ + state * widths_.state_floats(); }
  PartialState SplitState(int64_t state) const {
    float* at = StateAt(state);
    return {at[widths_.out], at[widths_.out + 1], at};
  }
  float* Out(const AttentionTask& task, int row) const {
    return task.out + row / task.group_ratio * task.out_query_stride +
           static_cast<int64_t>(row % task.group_ratio) * widths_.out_dim;
  }

  // Scaled copy of one query row, its parts padded with zeros.
  void LoadQuery(const AttentionTask& task, int row, float* q) const {
    const float* from = task.q + row / task.group_ratio * task.q_query_stride +
                        static_cast<int64_t>(row % task.group_ratio) * widths_.head_dim;
    const float scale = scale_;         // in a register: q might be the memory of scale_
    const int first = widths_.out_dim;  // values that come before any padding
    for (int c = 0; c < first; ++c) q[c] = from[c] * scale;
    if (!task.view.to_query.is_identity()) Rotate(task.view.to_query, first, q);
    std::fill(q + first, q + widths_.query, 0.0f);
    for (int c = first; c < widths_.head_dim; ++c) q[widths_.out + c - first] = from[c] * scale;
  }

  void Finish(const AttentionTask& task, int row, const PartialState& state) const {
    float* const out = Out(task, row);
    kernels_.finish(state, widths_.out_dim, out);
    if (!task.view.to_value.is_identity()) RotateBack(task.view.to_value, widths_.out_dim, out);
    if (task.probabilities != nullptr) FinishProbabilities(task, row, state);
  }

  // The segments left the scores of all tokens that the row sees in its place.
  void FinishProbabilities(const AttentionTask& task, int row, const PartialState& state) const {
    float* const to = task.probabilities + row * task.probability_stride;
    const int64_t position = task.PositionOf(row), seen_from = task.VisibleBegin(position);
    int64_t done = 0;
    ForEachRunPlace(task.view, [&](size_t, const Run& run, int64_t shift) {
      const int64_t first = run.first_position;
      const int64_t begin = std::max(first + run.first_token, seen_from);
      const int64_t end = std::min(first + run.end_token, position + 1);
      if (begin >= end) return;
      std::fill(to + done, to + begin + shift, 0.0f);
      kernels_.weigh(state, end - begin, to + begin + shift);
      done = end + shift;
    });
    std::fill(to + done, to + task.view.end_position(), 0.0f);
  }

  // What a row of the task sees of the segment and where its scores go, for row `to` of a kernel
  // call.
  void SetRow(const AttentionTask& task, int row, const BoundSegment& bound, SegmentRows& rows,
              int to) const {
    const int64_t position = task.PositionOf(row);
    const auto slot_of = [&](int64_t at) {
      return static_cast<int>(
          std::clamp<int64_t>(at - bound.segment.first_position, 0, kSegmentTokens));
    };
    rows.begin[to] = slot_of(task.VisibleBegin(position));
    rows.end[to] = slot_of(position + 1);
    if (task.probabilities == nullptr) return;
    const int run = plan_.segments()[static_cast<size_t>(bound.index)].run;  // of all readers
    rows.scores[to] = task.probabilities + row * task.probability_stride +
                      bound.segment.first_position + PlaceShift(task.view, run);
  }

  // Attention of some rows over one segment.
  void Attend(const BoundSegment& bound, SegmentRows& rows, ThreadMemory& m) const {
    if (!widths_.is_latent()) {
      kernels_.segment(bound.segment, rows, *m.scratch);
      return;
    }
    if (m.decoded != bound.index) DecodeLatents(bound.segment, m.latents);
    m.decoded = bound.index;
    latent_kernels_.segment(bound.segment, m.latents, rows, *m.scratch);
  }

  // One segment for all rows of its readers, which leave a state each.
  void RunSplit(const AttentionPlan::Item& item, int next, SegmentWindow& window, ThreadMemory& m) {
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
      Attend(bound, rows, m);
      for (int r = 0; r < rows.rows; ++r) {
        rows.out[r].weighted[widths_.out] = rows.out[r].max;
        rows.out[r].weighted[widths_.out + 1] = rows.out[r].sum;
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
        kernels_.merge(all, SplitState(t.first_state + int64_t{s} * t.rows + row), widths_.out);
      }
      Finish(tasks_[static_cast<size_t>(index)], row, all);
    }
  }

  // Some rows of a task through all of its segments.
  void RunWhole(const AttentionPlan::Item& item, int next, SegmentWindow& window,
                ThreadMemory& m) const {
    const AttentionTask& task = tasks_[static_cast<size_t>(item.task)];
    const AttentionPlan::PlannedTask& t = plan_.tasks()[static_cast<size_t>(item.task)];
    PartialState running[kItemRows];
    const int count = item.end - item.first;
    for (int r = 0; r < count; ++r) {
      LoadQuery(task, item.first + r, m.q + r * widths_.query);
      running[r] = {0.0f, 0.0f, m.running + r * widths_.out};
    }
    for (int i = 0; i < t.num_segments; ++i) {
      const int segment = t.first_segment + i;
      BoundSegment& bound = window.Move(segment, i + 1 < t.num_segments ? segment + 1 : next);
      const Segment* const after = bound.segment.next;
      for (int first = 0; first < count;) {
        SegmentRows rows;
        rows.rows = RowsOfGroup(count - first);
        for (int r = 0; r < rows.rows; ++r) {
          rows.q[r] = m.q + (first + r) * widths_.query;
          SetRow(task, item.first + first + r, bound, rows, r);
          rows.out[r].weighted = m.segment + r * widths_.out;
        }
        const bool last = first + rows.rows == count;
        bound.segment.next = last ? after : nullptr;
        Attend(bound, rows, m);
        for (int r = 0; r < rows.rows; ++r) {
          kernels_.merge(running[first + r], rows.out[r], widths_.out);
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
  const AttentionWidths widths_;
  const float scale_;
  float* const queries_;
  float* const states_;
  const AttentionKernels& kernels_;
  const LatentKernels& latent_kernels_;
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

// How decoded tokens lie is common to a call.
Status CheckLatents(std::span<const AttentionTask> tasks, int head_dim) {
  for (const AttentionTask& task : tasks) {
    const HeadView& view = task.view;
    const int expected_k = head_dim - view.latent_dim;
    const int expected_v = view.latent_dim == 0 ? head_dim : view.latent_dim;
    if (view.latent_dim != tasks[0].view.latent_dim) {
      return Status::InvalidArgument("attention tasks have latents of different sizes");
    }
    if (view.latent_dim != 0 && !(view.to_query.is_identity() && view.to_value.is_identity())) {
      return Status::InvalidArgument(
          "a latent is K and V in one: neither of them can be rotated alone");
    }
    for (const Run& run : view.runs) {
      if (run.empty()) continue;
      const int k = run.layout->k.head_dim, v = run.layout->v.head_dim;
      if (k == expected_k && v == expected_v) continue;
      return Status::InvalidArgument(
          "attention of " + std::to_string(head_dim) + " channels, " +
          std::to_string(view.latent_dim) + " of them a latent, cannot read pages of " +
          std::to_string(k) + " channels of K and " + std::to_string(v) + " of V");
    }
  }
  return Status::Ok();
}

// Probabilities have as many places as the view has positions.
Status CheckProbabilities(std::span<const AttentionTask> tasks) {
  for (const AttentionTask& task : tasks) {
    if (task.probabilities == nullptr) continue;
    int64_t end = 0;
    ForEachRunPlace(task.view, [&](size_t, const Run& run, int64_t shift) {
      end = run.first_position + run.end_token + shift;
    });
    if (end <= task.view.end_position()) continue;
    return Status::InvalidArgument(
        "probabilities of " + std::to_string(end) + " tokens of several runs do not fit the " +
        std::to_string(task.view.end_position()) + " positions of their view");
  }
  return Status::Ok();
}

}  // namespace

Status AttentionWorkspace::Prepare(std::span<const AttentionTask> tasks, int threads,
                                   const AttentionWidths& widths) try {
  plan_.Update(tasks, threads);
  const auto grow = [](AlignedBuffer& buffer, int64_t floats) {
    const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
    if (buffer.bytes() >= bytes) return Status::Ok();
    KVANT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Create(bytes));
    return Status::Ok();
  };
  KVANT_RETURN_IF_ERROR(grow(queries_, plan_.split_rows() * widths.query));
  KVANT_RETURN_IF_ERROR(grow(states_, plan_.states() * widths.state_floats()));
  thread_scratch_.resize(std::max(thread_scratch_.size(), static_cast<size_t>(threads)));
  for (AlignedBuffer& buffer : thread_scratch_) {
    if (buffer.bytes() >= ThreadBytes(widths)) continue;
    KVANT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Create(ThreadBytes(widths)));
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
  KVANT_RETURN_IF_ERROR(CheckLatents(tasks, head_dim));
  KVANT_RETURN_IF_ERROR(CheckProbabilities(tasks));
  const AttentionWidths widths(head_dim, tasks.empty() ? 0 : tasks[0].view.latent_dim);
  KVANT_RETURN_IF_ERROR(workspace.Prepare(tasks, pool.threads(), widths));
  Step step(tasks, workspace.plan_, widths, softmax_scale, workspace.queries_.as<float>(),
            workspace.states_.as<float>());
  pool.Run([&](int thread) {
    step.Work(thread, workspace.thread_scratch_[static_cast<size_t>(thread)]);
  });
  return Status::Ok();
}

}  // namespace kvant
