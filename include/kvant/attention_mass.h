// What attention gave each cached token: the probabilities of a layer's queries as a session
// computes them, and their sums, by which policies tell the tokens that matter.
//
// They come from the scores that the kernels computed for the outputs, in whatever formats the
// cache has; nothing is read a second time. So they depend, as the outputs do, on neither chunks,
// threads nor batch: the same tokens give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

// The queries of one page of one timeline, in one layer.
struct LayerAttention {
  int layer = 0;
  int part = 0;                // of a DecodeBatch: its place among the sessions; otherwise 0
  int64_t first_position = 0;  // of the queries
  int queries = 0;
  int q_heads = 0, kv_heads = 0;
  int64_t tokens = 0;  // positions that a row tells of: [0, tokens), the queries' own included
  const float* probabilities = nullptr;  // [kv_heads][queries][q_heads / kv_heads][stride]
  int64_t stride = 0;

  // [tokens] by absolute position. A row sums to 1; what the query does not see (later tokens,
  // those before a layer's window, those that a policy dropped) has exactly 0.
  std::span<const float> Row(int query, int q_head) const {
    const int group_ratio = q_heads / kv_heads;
    const int64_t row =
        (int64_t{q_head / group_ratio} * queries + query) * group_ratio + q_head % group_ratio;
    return {probabilities + row * stride, static_cast<size_t>(tokens)};
  }
};
// Valid for the call.
using AttentionObserver = std::function<void(const LayerAttention&)>;

// How the query heads that share a KV head make one score of a token.
enum class GroupMass {
  kSum,  // H2O (arXiv 2306.14048)
  kMax,  // DiffKV (arXiv 2412.03131)
};

// Sums over the queries of one timeline, in f32, in the order of their positions: a token's share
// of all attention so far, the column sum of H2O. Tokens that came early have more queries behind
// them; length() - position of them.
class AttentionMass {
 public:
  // Holds layers * q_heads * context_tokens floats. kOutOfMemory.
  static Result<AttentionMass> Create(const KvGeometry& geometry, int64_t context_tokens);

  // REQUIRES: queries come in the order of position in each layer, and fit the context.
  void Add(const LayerAttention& attention);
  void Clear();

  // Positions that were told of; 0 at first.
  int64_t length() const { return length_; }
  // [length()]
  std::span<const float> OfQueryHead(int layer, int q_head) const;
  // [length()]
  std::vector<float> OfKvHead(int layer, int kv_head, GroupMass group) const;

 private:
  AttentionMass() = default;

  KvGeometry geometry_;
  int64_t context_tokens_ = 0, length_ = 0;
  std::vector<float> sums_;  // [layers][q_heads][context_tokens]
};

}  // namespace kvant
