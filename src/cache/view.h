// CacheView: what an attention kernel sees of a cache. Plain data, valid until the next change of
// the cache (append, close, truncate, free).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/rotation.h"
#include "format/page_layout.h"

namespace kvant {

// Consecutive tokens of one KV head in pages of one layout. The pages need not be adjacent.
struct Run {
  const PageLayout* layout = nullptr;
  const std::byte* const* pages = nullptr;  // [num_pages], in order of position
  int num_pages = 0;
  int first_position = 0;  // absolute position of the first token of pages[0]; need not be visible
  int first_token = 0;  // visible tokens are [first_token, end_token) counted from first_position
  int end_token = 0;

  int tokens() const { return end_token - first_token; }
  bool empty() const { return end_token <= first_token; }
};

// Which channels of a head turn together: (2i, 2i + 1), or (i, i + turning channels / 2).
enum class RopePairs { kNeighbours, kHalves };

// Tables of the rotation that a layer's keys take by their position, for pages that hold keys
// before it (Format::pre_rope). Position p turns pair i by p * frequency(i); what is multiplied is
// split: a block of 64 tokens begins at a multiple of 64.
struct KeyRope {
  int count = 0;                   // of pairs: the first 2 * count channels turn; 0: no tables
  int step = 1, to_partner = 0;    // pair i: channels step * i and step * i + to_partner
  const float* starts = nullptr;   // [blocks of 64][2][count] cos, sin at positions 64 * block
  const float* offsets = nullptr;  // [count][2][64] cos, sin at positions 0 .. 63
};

// All that one query page sees of one KV head: sinks, stored pages, window. Runs may be empty. The
// window's run holds the open page: its end_token is the number of tokens written, and a query at
// position t sees positions <= t only.
//
// Tokens of several widths stand in two runs a width, coded pages and the tail as written, between
// sinks and window, which is then the last run. The runs of a width begin at position 0 and count
// tokens, which lie in any order: all of them are older than every query of the view, and layers
// that see a window only have none.
//
// What K and V hold may be rotated (codec/rotation.h): then queries are rotated with to_query first
// and outputs turned back with to_value. Runs whose K format is pre_rope need `rope`, and begin at
// a multiple of 64.
inline constexpr int kMaxRuns = 2 + 2 * 5;  // sinks, window, and two of widths 16, 8, 4, 3, 2
struct HeadView {
  std::array<Run, kMaxRuns> runs;
  // 0, or the V side of all pages is a latent of this many channels (KvGeometry::latent_dim): K is
  // that and the K side behind it.
  int latent_dim = 0;
  Rotation to_query, to_value;
  KeyRope rope;

  // Behind the last visible token.
  int64_t end_position() const {
    int64_t end = 0;
    for (const Run& run : runs) {
      if (!run.empty()) end = int64_t{run.first_position} + run.end_token;
    }
    return end;
  }
};

}  // namespace kvant
