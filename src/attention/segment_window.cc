#include "attention/segment_window.h"

#include <algorithm>

namespace kvant {
namespace {

void Bind(const AttentionPlan& plan, std::span<const AttentionTask> tasks, int index,
          BoundSegment& bound) {
  const AttentionPlan::PlannedSegment& planned = plan.segments()[static_cast<size_t>(index)];
  const Run& run =
      tasks[static_cast<size_t>(planned.task)].view.runs[static_cast<size_t>(planned.run)];
  const int block_tokens = run.layout->k.block_tokens, page_tokens = run.layout->tokens;
  const int begin = static_cast<int>(planned.begin - run.first_position);
  const int end = static_cast<int>(planned.end - run.first_position);
  const std::byte* const* page = run.pages + begin / page_tokens;
  int block = begin % page_tokens / block_tokens;
  int token = begin / block_tokens * block_tokens;
  bound.index = index;
  bound.segment.first_position = run.first_position + token;
  bound.segment.rope = &tasks[static_cast<size_t>(planned.task)].view.rope;
  bound.segment.layout = run.layout;
  bound.segment.num_blocks = 0;
  for (; token < end; token += block_tokens) {
    BlockRef& ref = bound.segment.blocks[bound.segment.num_blocks++];
    ref.page = *page;
    ref.block = block;
    ref.begin = std::max(begin - token, 0);
    ref.end = std::min(end - token, block_tokens);
    if (++block * block_tokens < page_tokens) continue;
    block = 0;
    ++page;
  }
}

}  // namespace

void PrefetchAddresses(const AttentionPlan& plan, std::span<const AttentionTask> tasks, int index) {
  const AttentionPlan::PlannedSegment& planned = plan.segments()[static_cast<size_t>(index)];
  const Run& run =
      tasks[static_cast<size_t>(planned.task)].view.runs[static_cast<size_t>(planned.run)];
  const int page_tokens = run.layout->tokens;
  __builtin_prefetch(run.pages + (planned.begin - run.first_position) / page_tokens);
  __builtin_prefetch(run.pages + (planned.end - 1 - run.first_position) / page_tokens);
}

BoundSegment& SegmentWindow::Move(int index, int next) {
  if (bound_[now_].index != index) now_ = 1 - now_;
  if (bound_[now_].index != index) Bind(plan_, tasks_, index, bound_[now_]);
  BoundSegment &now = bound_[now_], &then = bound_[1 - now_];
  if (next == index) next = -1;
  if (next >= 0 && then.index != next) Bind(plan_, tasks_, next, then);
  now.segment.next = next < 0 ? nullptr : &then.segment;
  return now;
}

}  // namespace kvant
