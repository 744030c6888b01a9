// Attention over a CacheView: softmax(q k^T) v for all query heads of a KV head in one pass over
// its bytes, from pages in whatever format they are stored.
//
// The work is cut into segments of at most 512 tokens of one run at absolute positions. Every
// segment gives a PartialState (max, sum, weighted V); the states of a row are merged in the order
// of positions. So neither the number of threads, nor the batch, nor the chunking of a prompt
// changes a single bit of a row's result, and every ISA level gives the same bits. Which thread
// does what, and which tasks share a segment, is planned first: see plan.h.
//
// Arithmetic (interfaces: architecture.md "Kernels"). Scores are kept in base 2: q is scaled by
// softmax_scale * log2(e) once. Coded sides use exact integer dots: the query with the channel
// scales folded in (K), or the probability with the token scales folded in (V), is rounded to one
// signed 8-bit vector a page; codes are centred with the sum of the *rounded* vector, so that the
// rounding error multiplies centred codes only (an uncentred int8 cache is 25 times worse).
// Everything is accumulated in f32.
//
// A task that asks for probabilities gets them from the scores that the kernels wrote, and its
// rows' final states: 2^(score - max) / sum. So they are those of the outputs, and nothing is read
// twice.
//
// Thread rules: one Attend call at a time per AttentionWorkspace.
#pragma once

#include <span>
#include <vector>

#include "attention/plan.h"
#include "attention/task.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kvant/status.h"

namespace kvant {

// The softmax state of some tokens for one row, scores in base 2. Empty: max = -inf, sum = 0,
// weighted = 0; merging with it changes nothing.
struct PartialState {
  float max;
  float sum;
  float* weighted;  // [padded_dim] sum of 2^(score - max) * v
};

struct AttentionWidths;  // attention.cc

// Plan and buffers of Attend, kept between calls; they grow with the largest call seen.
class AttentionWorkspace {
 public:
  // Of the last call.
  const AttentionPlan& plan() const { return plan_; }

 private:
  friend Status Attend(ThreadPool&, std::span<const AttentionTask>, int, float,
                       AttentionWorkspace&);
  Status Prepare(std::span<const AttentionTask> tasks, int threads, const AttentionWidths& widths);

  AttentionPlan plan_;
  AlignedBuffer queries_;  // of split tasks
  AlignedBuffer states_;
  std::vector<AlignedBuffer> thread_scratch_;
};

// Runs all tasks. head_dim is common to all; softmax_scale is usually 1 / sqrt(head_dim). A query
// at position t sees the visible tokens at positions <= t of its view; it must see at least one.
// Where views have a latent (HeadView::latent_dim), head_dim counts it and the RoPE key, and what
// a query gets has the latent's channels.
// kInvalidArgument names what a view of keys before RoPE lacks, and pages of other sizes.
// kOutOfMemory leaves `out` unspecified and the workspace usable.
Status Attend(ThreadPool& pool, std::span<const AttentionTask> tasks, int head_dim,
              float softmax_scale, AttentionWorkspace& workspace);

}  // namespace kvant
