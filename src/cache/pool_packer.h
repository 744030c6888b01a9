// PoolPacker: closes the gap that a shift leaves in a pool whose formats share figures over a page.
// Every token of a page that changes is decoded, keys that move are turned, and pages are coded
// again: all values there are rounded once more, but for V of pages that stay whole.
// Thread rules: for one thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/aligned_buffer.h"
#include "cache/mixed_head.h"
#include "cache/pool_edit.h"
#include "kvant/status.h"

namespace kvant {

// Pages of a pool from `first` on change in a shift; `left` tokens stay of all.
struct PackedPages {
  int64_t first = 0, left = 0;

  PackedPages(const TokenGap& gap, const HeadPool& pool);
  int64_t coded() const { return left / kPageTokens; }
  bool has_tail() const { return left % kPageTokens != 0; }
};

class PoolPacker {
 public:
  // open_bytes: of the largest page as written.
  static Result<PoolPacker> Create(int head_dim, int64_t open_bytes);

  // turn: a key that moves. REQUIRES: pages that change are the pool's own, and there is a tail
  // where one will be. The newest page cannot be taken out afterwards.
  void Pack(const PoolPages& pages, const TokenGap& gap, const std::function<void(float*)>& turn,
            HeadPool& pool);

 private:
  explicit PoolPacker(int head_dim) : head_dim_(head_dim) {}
  void Decode(const PageLayout& layout, const std::byte* page);
  void Take(int from, int to);
  void Write(const PageLayout& open, int tokens, std::byte* page);
  float* read_k() { return read_.as<float>(); }
  float* read_v() { return read_k() + int64_t{kPageTokens} * head_dim_; }
  float* packed_k() { return packed_.as<float>(); }
  float* packed_v() { return packed_k() + int64_t{kPageTokens} * head_dim_; }

  int head_dim_;
  AlignedBuffer read_, packed_;  // [K, V][64][head_dim]
  AlignedBuffer open_;           // a page as written
};

}  // namespace kvant
