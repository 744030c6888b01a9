// Split: the pages of one row that a block reads, and how its warps leave one partial state.
#pragma once

#include "cuda/arguments.h"
#include "cuda/device_page.h"
#include "cuda/isa.h"

namespace kvant::cuda {

struct Split {
  TokenRange range;
  int first_page, end_page;  // of the row's table
  const uint32_t* table;

  KVANT_DEVICE static Split Of(const DecodeArguments& args) {
    Split split;
    const int row = BlockY();
    split.range.first = static_cast<int32_t>(Load4(&args.ranges[row].first));
    split.range.end = static_cast<int32_t>(Load4(&args.ranges[row].end));
    split.table = args.page_table + static_cast<int64_t>(row) * args.page_table_stride;
    split.first_page = split.range.first / kDevicePageTokens + BlockX() * args.pages_per_split;
    const int pages_end = (split.range.end + kDevicePageTokens - 1) / kDevicePageTokens;
    const int limit = split.first_page + args.pages_per_split;
    split.end_page = split.range.end <= split.range.first ? 0
                     : limit < pages_end                  ? limit
                                                          : pages_end;
    return split;
  }
};

// Where the sides of page `page` of the split's row lie.
struct StoredPage {
  const unsigned char *k, *v, *k_metadata, *v_metadata;

  template <PageCode kPage, int kDim>
  KVANT_DEVICE static StoredPage Of(const DecodeArguments& args, const Split& split, int page) {
    const auto number = static_cast<int64_t>(Load4(split.table + page));
    const unsigned char* k = args.payload + number * PagePayloadBytes(kPage, kDim);
    const unsigned char* metadata = args.metadata + number * PageMetadataBytes(kPage, kDim);
    return {k, k + SidePayloadBytes(kPage.k, kDim), metadata,
            metadata + KMetadataBytes(kPage.k, kDim)};
  }
};

// The visible tokens of one page, of 0 .. 63.
struct Visible {
  int first, end;

  KVANT_DEVICE static Visible Of(const Split& split, int page) {
    return {split.range.first - page * kDevicePageTokens,
            split.range.end - page * kDevicePageTokens};
  }
  KVANT_DEVICE bool all() const { return first <= 0 && end >= kDevicePageTokens; }
  KVANT_DEVICE bool Has(int token) const { return token >= first && token < end; }

  // Keeps the visible ones of the halves of tokens `token` and `token` + 1.
  KVANT_DEVICE uint32_t PairMask(int token) const {
    return (Has(token) ? 0x0000ffffu : 0u) | (Has(token + 1) ? 0xffff0000u : 0u);
  }
  // Of a fragment of V as halves whose columns begin at `token`: what lies in slots that nobody
  // sees may be NaN, which a probability of 0 does not take away.
  KVANT_DEVICE void ClearOthers(int token, uint32_t (&a)[4]) const {
    KVANT_UNROLL
    for (int pair = 0; pair < 4; ++pair) a[pair] &= PairMask(token + pair / 2 * 8);
  }
};

// Shared memory in which the warps of a block join their states.
template <int kHeads, int kDim>
struct BlockState {
  float* max;  // [kBlockWarps][kHeads], base 2
  float* sum;  // [kBlockWarps][kHeads]
  float* out;  // [kHeads][kDim]

  // -inf where no warp has seen a token.
  KVANT_DEVICE float Max(int head) const {
    float all = max[head];
    KVANT_UNROLL
    for (int w = 1; w < kBlockWarps; ++w) all = cuda::Max(all, max[w * kHeads + head]);
    return all;
  }
  // What a warp's sums count for.
  KVANT_DEVICE float Weight(int warp, int head) const {
    const float own = max[warp * kHeads + head];
    return own == NegativeInfinity() ? 0.0f : Exp2(own - Max(head));
  }
  // Every thread of the block calls it, behind a barrier that follows the last addition to `out`.
  KVANT_DEVICE void Write(const DecodeArguments& args) const {
    const int64_t row = static_cast<int64_t>(BlockY()) * args.group_ratio;
    const int slot = args.first_slot + BlockX();
    for (int i = ThreadIndex(); i < args.group_ratio * kDim; i += kBlockThreads) {
      const int64_t place = (row + i / kDim) * args.slots + slot;
      args.partial_out[place * kDim + i % kDim] = out[i];
    }
    const int head = ThreadIndex();
    if (head < args.group_ratio) {
      float total = 0;
      KVANT_UNROLL
      for (int w = 0; w < kBlockWarps; ++w)
        total = Fma(Weight(w, head), sum[w * kHeads + head], total);
      const int64_t place = (row + head) * args.slots + slot;
      args.partial_state[place * 2] = Max(head);
      args.partial_state[place * 2 + 1] = total;
    }
  }
};

// The queries of the block's row as halves: [kHeads][kDim / 2] words, in PairOrder. Heads from
// group_ratio on are 0.
template <int kHeads, int kDim>
KVANT_DEVICE void StoreQueries(const DecodeArguments& args, uint32_t* shared) {
  constexpr int kWords = kDim / 2;
  const float* queries = args.queries + static_cast<int64_t>(BlockY()) * args.group_ratio * kDim;
  for (int i = ThreadIndex(); i < kHeads * kWords; i += kBlockThreads) {
    const int head = i / kWords, channel = i % kWords * 2;
    const bool real = head < args.group_ratio;
    const float low = real ? queries[head * kDim + channel] : 0.0f;
    const float high = real ? queries[head * kDim + channel + 1] : 0.0f;
    shared[head * kWords + PairOrder(kDim / 16, channel) / 2] = PackHalves(low, high);
  }
}

}  // namespace kvant::cuda
