// SideShape and SidePlan: one coded side in the terms of the vector levels. The fast axis of the
// open side is the lanes (tokens for K, channels for V), the other one the rows; a tile is 16 rows
// x 16 lanes, which is one step of one lane block.
//
// Plain numbers, computed once a call in a file that is built for every CPU: the per-ISA files must
// not instantiate the inline functions of page_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvant/format.h"

namespace kvant {

struct SideLayout;

inline constexpr int kMaxSidePlanes = 3;

// One bit plane of a block of codes.
struct PlanePlan {
  int bits = 0;              // 0: no such plane
  int first_bit = 0;         // of the code that lies in the plane's lowest bit
  int offset_bytes = 0;      // from the start of the block's codes
  int lane_block_bytes = 0;  // all units of one block of 16 lanes
};

// What both families of coded sides tell their levels: the open side [blocks][rows][lanes] and
// where codes go.
struct SideShape {
  int blocks = 0;
  int rows = 0;        // K: head_dim, V: 64
  int lanes = 0;       // K: 64, V: head_dim rounded up to 16
  int used_lanes = 0;  // K: 64, V: head_dim
  int steps = 0;       // of 16 rows, padding rows included
  bool lanes_are_tokens = false;
  int codes_offset = 0;  // from the start of the stored side
  int block_bytes = 0;
  PlanePlan planes[kMaxSidePlanes];
};
SideShape ShapeOf(const SideLayout& layout);

struct SidePlan : SideShape {
  int64_t source_block_bytes = 0;  // of the open f16 side

  // Convention.
  bool is_codebook = false;
  Offset offset = Offset::kNone;
  bool has_offset = false;  // stored behind the scales
  float last_code = 0;      // 2^bits - 1
  float centre = 0;         // 2^(bits - 1)

  // Groups. Along lanes a group has one scale a row; along rows one scale a lane.
  bool along_lanes = false;
  int group_blocks = 0;  // consecutive blocks that share their groups
  int groups_per_block = 0;
  int group_extent = 0;  // lanes or rows of a group inside one block; the last may be short

  // Scale of group g of block b for row or lane p, in bytes from the start of the side:
  // b / group_blocks * group_blocks_bytes + g * group_bytes + 2 * p.
  int group_blocks_bytes = 0;
  int group_bytes = 0;
  int offsets_from_scales = 0;
};

// What each level implements; the same bytes as EncodeSideReference and DecodeSideReference.
using EncodeCodedFn = void (*)(const SidePlan& plan, const std::byte* source, int first_token,
                               std::byte* stored);
using DecodeCodedFn = void (*)(const SidePlan& plan, const std::byte* stored, float* out,
                               int64_t out_stride);

void EncodeCodedAvx2(const SidePlan& plan, const std::byte* source, int first_token,
                     std::byte* stored);
void DecodeCodedAvx2(const SidePlan& plan, const std::byte* stored, float* out, int64_t out_stride);
void EncodeCodedAvx512(const SidePlan& plan, const std::byte* source, int first_token,
                       std::byte* stored);
void DecodeCodedAvx512(const SidePlan& plan, const std::byte* stored, float* out,
                       int64_t out_stride);
void EncodeCodedNeon(const SidePlan& plan, const std::byte* source, int first_token,
                     std::byte* stored);
void DecodeCodedNeon(const SidePlan& plan, const std::byte* stored, float* out, int64_t out_stride);

}  // namespace kvant
