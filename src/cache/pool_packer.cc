#include "cache/pool_packer.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "cache/token_writer.h"
#include "codec/codec.h"

namespace kvant {

PackedPages::PackedPages(const TokenGap& gap, const HeadPool& pool) {
  const auto changed = std::find_if(pool.positions.begin(), pool.positions.end(),
                                    [&](int32_t position) { return position >= gap.keep_tokens; });
  first = (changed - pool.positions.begin()) / kPageTokens;
  left = std::count_if(pool.positions.begin(), pool.positions.end(),
                       [&](int32_t position) { return !gap.Drops(position); });
}

Result<PoolPacker> PoolPacker::Create(int head_dim, int64_t open_bytes) {
  PoolPacker packer(head_dim);
  const size_t bytes = 2 * sizeof(float) * kPageTokens * static_cast<size_t>(head_dim);
  KVANT_ASSIGN_OR_RETURN(packer.read_, AlignedBuffer::Create(bytes));
  KVANT_ASSIGN_OR_RETURN(packer.packed_, AlignedBuffer::Create(bytes));
  KVANT_ASSIGN_OR_RETURN(packer.open_, AlignedBuffer::Create(static_cast<size_t>(open_bytes)));
  return packer;
}

void PoolPacker::Decode(const PageLayout& layout, const std::byte* page) {
  DecodeSide(layout.k, page, read_k(), head_dim_);
  DecodeSide(layout.v, page + layout.v_offset_bytes, read_v(), head_dim_);
}

void PoolPacker::Take(int from, int to) {
  std::copy_n(read_k() + int64_t{from} * head_dim_, head_dim_,
              packed_k() + int64_t{to} * head_dim_);
  std::copy_n(read_v() + int64_t{from} * head_dim_, head_dim_,
              packed_v() + int64_t{to} * head_dim_);
}

// A decoded value may lie half a step above the largest f16.
void PoolPacker::Write(const PageLayout& open, int tokens, std::byte* page) {
  for (float* rows : {packed_k(), packed_v()}) {
    std::transform(rows, rows + int64_t{tokens} * head_dim_, rows,
                   [](float value) { return std::clamp(value, -kF16Max, kF16Max); });
  }
  WriteTokens(open.k, page, 0, tokens, packed_k(), head_dim_);
  WriteTokens(open.v, page + open.v_offset_bytes, 0, tokens, packed_v(), head_dim_);
}

// A page is written when all tokens that it will hold have been read, and those of its old place
// lie before what is read next.
void PoolPacker::Pack(const PoolPages& pages, const TokenGap& gap,
                      const std::function<void(float*)>& turn, HeadPool& pool) {
  const PackedPages packed(gap, pool);
  const PageLayout &open = pages.open, &layout = pages.layout;
  const int64_t tokens = pool.tokens();
  int64_t to = packed.first * kPageTokens;
  int64_t first_gap = 0;  // between old and new place, of the first token of the page
  int filled = 0;
  for (int64_t from = to; from < tokens; ++from) {
    const auto slot = static_cast<int>(from % kPageTokens);
    if (slot == 0) {
      const bool is_tail = from >= pool.coded_tokens;
      Decode(is_tail ? open : layout,
             is_tail ? pool.tail : pool.pages[static_cast<size_t>(from / kPageTokens)]);
    }
    const int32_t position = pool.positions[static_cast<size_t>(from)];
    if (gap.Drops(position)) continue;
    const bool moves = position >= gap.end();
    Take(slot, filled);
    if (moves) turn(packed_k() + int64_t{filled} * head_dim_);
    pool.positions[static_cast<size_t>(to)] =
        position - (moves ? static_cast<int32_t>(gap.drop_tokens) : 0);
    if (filled == 0) first_gap = from - to;
    // Tokens that were a page stay one: its V is what it was.
    const bool is_whole = first_gap == from - to && first_gap % kPageTokens == 0;
    ++to;
    if (++filled < kPageTokens) continue;
    Write(open, kPageTokens, open_.data());
    std::byte* const page = pool.pages[static_cast<size_t>(to / kPageTokens - 1)];
    EncodeSide(open.k, open_.data(), layout.k, 0, page);
    std::byte* const v = page + layout.v_offset_bytes;
    if (!is_whole) {
      EncodeSide(open.v, open_.data() + open.v_offset_bytes, layout.v, 0, v);
    } else if (first_gap > 0) {
      std::memcpy(v, pool.pages[static_cast<size_t>(from / kPageTokens)] + layout.v_offset_bytes,
                  static_cast<size_t>(layout.v.bytes));
    }
    filled = 0;
  }
  pool.positions.resize(static_cast<size_t>(packed.left));
  pool.coded_tokens = packed.coded() * kPageTokens;
  if (filled > 0) Write(open, filled, pool.tail);
  pool.tokens_before = packed.left;
  pool.coded_before = pool.coded_tokens;
  DropBehind(pages, pool);
  DropSpare(pages, pool);
}

}  // namespace kvant
