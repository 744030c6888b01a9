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

}  // namespace kvant::cuda
