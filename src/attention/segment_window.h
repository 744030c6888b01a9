// Planned segments as the kernels take them, with the addresses of their pages.
#pragma once

#include <span>

#include "attention/kernels.h"
#include "attention/plan.h"
#include "attention/task.h"

namespace kvant {

struct BoundSegment {
  int index = -1;  // into the plan's segments
  Segment segment;
};

// Asks for the page addresses that the window will read: in a large batch they come from far away.
void PrefetchAddresses(const AttentionPlan& plan, std::span<const AttentionTask> tasks, int index);

// The segment that a thread reads and the one that it will read next, whose first bytes the kernels
// ask for ahead. plan and tasks must outlive it.
class SegmentWindow {
 public:
  SegmentWindow(const AttentionPlan& plan, std::span<const AttentionTask> tasks)
      : plan_(plan), tasks_(tasks) {}

  // next: -1 if unknown.
  BoundSegment& Move(int index, int next);

 private:
  const AttentionPlan& plan_;
  std::span<const AttentionTask> tasks_;
  BoundSegment bound_[2];
  int now_ = 0;
};

}  // namespace kvant
