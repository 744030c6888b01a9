// InlineTokens: the tokens of one head in one run, of mixed widths, which nothing but a benchmark
// reads: what pools of one width are compared with.
//
// The record of a token: K then V, each f16 values (width 16) or scale and minimum in f16 and its
// codes, as int8:token:min, int4:token:min and int2:token:min have them.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/fetch_count.h"
#include "kvant/bench_mixed.h"

namespace kvant {

class InlineTokens {
 public:
  static constexpr int kMaxHeadDim = 256, kMaxQueries = 16;

  // layout: other than kPools. head_dim: a multiple of 16, at most kMaxHeadDim.
  InlineTokens(MixedLayout layout, int head_dim) : layout_(layout), head_dim_(head_dim) {}

  static int64_t RecordBytes(int width, int head_dim);

  // A token of width 16, 8, 4 or 2. One that has gone leaves its place behind.
  void Add(int width, bool is_gone, const float* k, const float* v);

  // q, out: [rows][head_dim]. Softmax over all tokens that are there. rows: at most kMaxQueries.
  void Attend(const float* q, int rows, float scale, float* out) const;

  // Everything that Attend reads but q, at addresses of its own.
  void CountReads(FetchCount& count) const;
  // Of the tokens that are there, in the order of reading.
  std::vector<uint8_t> Widths() const;

 private:
  // visit(width, offset of the record) for each token that is there, found as the layout says.
  template <typename Visit>
  void ForEach(const Visit& visit) const;
  void AddRecord(int width, const float* x);

  const MixedLayout layout_;
  const int head_dim_;
  std::vector<uint8_t> bytes_;    // records; kStream: a tag before each
  std::vector<uint8_t> tags_;     // kSlots: [tokens]
  std::vector<uint32_t> places_;  // kIndexed: offset and tag of each token that is there
};

}  // namespace kvant
