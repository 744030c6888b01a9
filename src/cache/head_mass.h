// HeadMass: what attention gave each token that a head of several widths holds, as its policy
// scores tokens (ScoreKind). Queries are added one by one in the order of their positions, so a sum
// has the same bits for every chunking.
//
// Tokens are counted by place: sinks, the pools one behind another, open pages. So lie the
// probabilities that attention writes (AttentionTask), but for a gap that dropped tokens leave.
//
// Recent queries are those of the page before the one that begins: sums over them start at 0 with
// each page. They take as long as the policy is asked, when a page begins, so none is kept twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/mixed_head.h"
#include "kvant/policy.h"

namespace kvant {

// Sums a token: one, or one a query head.
int SumsOf(ScoreKind kind, int group_ratio);

// Where the tokens of a head lie: [0, closed) sinks and pools, then open pages from a position on.
struct HeldPlaces {
  int64_t closed = 0;
  int64_t open_begin = 0;  // position
  int64_t length = 0;      // of the sequence

  // sealed: pages whose tokens are in pools
  HeldPlaces(const MixedHead& head, int64_t sinks_tokens, int64_t sealed, int64_t length);
  int64_t count() const { return closed + length - open_begin; }
};

// What one step's queries gave the tokens of one head.
struct StepProbabilities {
  const float* rows = nullptr;  // [queries][group_ratio] rows, as AttentionTask has them
  int64_t stride = 0;
  int64_t first_position = 0;  // of the queries
  int queries = 0, group_ratio = 1;
};
// Sets mass->next from mass->now. places: at the length after the step. Throws std::bad_alloc.
void AddStep(ScoreKind kind, const HeldPlaces& places, const StepProbabilities& step,
             HeadMass* mass);

// The score of the token at `position` and `place` when page length / 64 begins.
// REQUIRES: now has the tokens of that length, of which there are `tokens`.
float ScoreOf(ScoreKind kind, int group_ratio, std::span<const float> now, int64_t tokens,
              int64_t place, int64_t position, int64_t length);

}  // namespace kvant
