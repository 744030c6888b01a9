// What kernels take, by value. Pointers are to device memory that the caller owns.
//
// A row is one KV head of one sequence; its queries are the group_ratio heads that share it. A call
// of a decode kernel reads one run of pages of one format and leaves partial states; runs of other
// formats, sinks and window are further calls that fill further slots; kvant_merge joins all.
#pragma once

#include <stdint.h>

namespace kvant::cuda {

// Visible tokens of a row, counted from the first token of its first page.
struct TokenRange {
  int32_t first, end;  // empty where end <= first
};

struct DecodeArguments {
  const unsigned char* payload;   // [pages][PagePayloadBytes], 16-byte aligned
  const unsigned char* metadata;  // [pages][PageMetadataBytes], 16-byte aligned; null for f16
  const uint32_t* page_table;  // [rows][page_table_stride] numbers of pages, in order of position
  const TokenRange* ranges;    // [rows]
  const float* queries;        // [rows][group_ratio][head_dim]
  float* partial_out;          // [rows][group_ratio][slots][head_dim], sums not divided
  float* partial_state;        // [rows][group_ratio][slots][2]: max (base 2), sum
  int32_t page_table_stride;
  int32_t group_ratio;
  int32_t slots;       // of the whole step
  int32_t first_slot;  // of this call: split x of the grid writes first_slot + x
  int32_t pages_per_split;
  float score_scale;  // of a query's product, log2(e) included
  // Of tq4 pages (DeviceLevelsOf, page_permutation.h).
  const uint16_t* levels = nullptr;  // [16] halves
  float level_unit = 0;              // a value is its scale * level_unit * half
};
// Grid: splits x rows. Block: kBlockThreads. A split without visible tokens leaves the empty state:
// max -inf, sum 0, output 0.

struct MergeArguments {
  const float* partial_out;    // as above
  const float* partial_state;  // as above
  float* out;                  // [rows][group_ratio][head_dim]; 0 where a row sees nothing
  int32_t group_ratio;
  int32_t slots;
  int32_t head_dim;
};
// Grid: group_ratio x rows. Block: kBlockThreads.

struct EncodeArguments {
  const unsigned char* f16_payload;  // [pages][PagePayloadBytes(kF16Page, head_dim)]
  unsigned char* payload;            // of the coded pages; each page is written whole
  unsigned char* metadata;           // the same
  const uint32_t* from_pages;        // [grid] numbers in the f16 pool
  const uint32_t* to_pages;          // [grid] numbers in the coded pool
  const int32_t* first_tokens;       // [grid] 0 .. 63; earlier tokens belong to the sinks: codes 0
  // V by the convention `none` instead of `min`. Its magnitudes must be below 65504 * (1 - 2 /
  // 2^bits), or the offset of their group is infinite and outputs become NaN.
  int32_t symmetric_v;
  // Of tq4 pages (DeviceLevelsOf, page_permutation.h): the table by which codes are found.
  const uint16_t* levels = nullptr;  // [16] halves
  float level_sigma = 0;             // standard deviation of 128 times those
};
// Grid: pages. Block: kBlockThreads.

struct AppendArguments {
  unsigned char* f16_payload;  // [pages][PagePayloadBytes(kF16Page, head_dim)]
  const uint32_t* pages;       // [rows] of the open page
  const int32_t* slots;        // [rows] the token's place in it, 0 .. 63
  const float *k, *v;          // [rows][head_dim], within f16's range
  int32_t head_dim;
};
// Grid: rows. Block: kBlockThreads.

struct FreeListArguments {
  uint32_t* free_pages;   // [capacity], circular
  int32_t* state;         // [3]: first free place, free pages, pages lacking at the last call
  const int32_t* counts;  // [rows] pages that each takes or gives back
  uint32_t* pages;        // [rows][pages_stride]
  int32_t capacity, rows, pages_stride;
};
// Grid: 1. Block: kBlockThreads.

struct ScoreArguments {
  const unsigned char* payload;   // [pages], int4
  const unsigned char* metadata;  // [pages]
  const float* query;             // [head_dim]
  float* scores;                  // [pages * 64], not scaled
  uint32_t* scratch;              // [kBlockWarps][64][head_dim / 2]; of the scratch kernel only
  int32_t pages;
};
// Grid: 1. Block: kBlockThreads.

}  // namespace kvant::cuda
