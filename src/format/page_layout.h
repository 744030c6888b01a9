// PageLayout: where each byte of a page lies. The same on every host and instruction set.
//
// A page is 64 consecutive tokens of one KV head of one layer, K side then V side, each starting on
// a 64-byte boundary. A channel group of 128 or 256 tokens makes the page that long; it is then a
// row of 64-token blocks that share the metadata in front.
//
// Float side, per 64-token block:
//   K  [head_dim][block_tokens]        token is the fastest: a kernel's lanes are tokens
//   V  [block_tokens][padded_dim]      channel is the fastest: lanes are channels
//
// Coded side:  metadata, then per 64-token block and per bit plane the codes.
//   metadata, axis channel: scales [tokens / group][padded_dim] f16, then offsets, same shape
//   metadata, axis token:   per block, scales [channel groups][64] f16, then offsets, same shape
//   side-band, behind the metadata of all blocks: places u16, then deltas f16, both
//     axis channel [tokens / group][slots][padded_dim]: the place is a token of the group
//     axis token   [blocks][slots][64]: the place is a channel
//     a slot that nothing needs holds place 0 and delta 0
//   codes: "lanes" and "reduce" are tokens and channels for K, channels and tokens for V. A unit is
//   64 bytes = 16 lanes x 4 consecutive reduce elements, byte = 4 * lane + element: one integer-dot
//   step. Lanes lie in chunks of at most 4 blocks of 16; a step is 16 reduce elements:
//     plane of 8 bits  [chunk][step][4 units][blocks][64 B]   unit u = elements 4u .. 4u+3
//     plane of 4 bits  [chunk][step][2 units][blocks][64 B]   low nibble quad 2u, high quad 2u+1
//     plane of 2 bits  [chunk][step][blocks][64 B]            bits 2i,2i+1 of a byte: quad i
//     plane of 1 bit   [chunk][step / 2][blocks][64 B]        bit 4 * (step % 2) + i: quad i
//   3 bits = planes 2 + 1, 5 = 4 + 1, 6 = 4 + 2; the first plane holds the low bits. Nested codes
//   are stored from the top: 4 bits = planes 2 + 1 + 1, 3 = 2 + 1, the first plane holds the upper
//   bits, so that the codes of a block begin with those of its narrower forms.
// Padding lanes and channels hold code 0 and scale 0.
//
// FP8 side:  metadata as of axis token, one group a head; then per block the values like those of a
// float side, a byte each.
//
// FP4 side:  like other coded sides of axis token, but scales of one byte: [channel groups][64] u8.
// Codes and scale bytes are those of the published formats, whose order is a row of codes a token
// (two a byte, the even channel in the low nibble) and a row of scales; ExportPublished and
// ImportPublished (kvant/codec.h) turn one order into the other.
//
// Normed side (tq, tc, nest): K ends and V begins with its metadata, so that what the two need
// beside whole lines shares one.
//   K  codes per block, norms [tokens] f16 or u8, mean [blocks][padded_dim] s8 (page_mean only),
//      parameters [blocks]{mean step, least norm, norm step} f16, up to a multiple of 16 bytes
//   V  parameters [blocks], padding, norms, codes per block; codes begin on a line
// Parameters that a format does not use are not stored. Trellis codes lie as other codes; the
// chain of an element's window is told in codec/normed_codec.h.
#pragma once

#include <array>
#include <cstdint>

#include "kvant/format.h"

namespace kvant {

struct LevelTable;  // codec/level_tables.h

inline constexpr int kLaneBlock = 16;   // lanes of one accumulator
inline constexpr int kChunkBlocks = 4;  // lane blocks of one chunk
inline constexpr int kStep = 16;        // reduce elements of one step
inline constexpr int kPlaneUnitBytes = 64;

// The bit planes of a format's codes, in the order in which they are stored.
struct Plane {
  int bits = 0;       // 0: no such plane
  int first_bit = 0;  // of the code: where the plane's lowest bit belongs
};
inline constexpr int kMaxPlanes = 3;
using Planes = std::array<Plane, kMaxPlanes>;
constexpr Planes PlanesOf(const Format& format) {
  const int bits = format.bits;
  if (format.levels == Levels::kNested) {
    return bits == 2   ? Planes{{{2, 0}, {}, {}}}
           : bits == 3 ? Planes{{{2, 1}, {1, 0}, {}}}
                       : Planes{{{2, 2}, {1, 1}, {1, 0}}};
  }
  switch (bits) {
    case 6:
      return {{{4, 0}, {2, 4}, {}}};
    case 5:
      return {{{4, 0}, {1, 4}, {}}};
    case 3:
      return {{{2, 0}, {1, 2}, {}}};
    default:
      return {{{bits, 0}, {}, {}}};
  }
}

constexpr int DivideUp(int a, int b) { return (a + b - 1) / b; }
constexpr int PaddedDim(int head_dim) { return DivideUp(head_dim, kLaneBlock) * kLaneBlock; }

// Bytes of one plane of one 64-token block: `lanes` and `reduce` are multiples of 16.
constexpr int PlaneBytes(int plane_bits, int lanes, int reduce) {
  const int steps = plane_bits == 1 ? DivideUp(reduce / kStep, 2) : reduce / kStep;
  const int units_per_step = plane_bits == 1 ? 1 : plane_bits / 2;
  return steps * units_per_step * (lanes / kLaneBlock) * kPlaneUnitBytes;
}

// Where a code lies inside a plane.
struct CodePlace {
  int byte;   // from the start of the plane
  int shift;  // of the code's lowest bit in that byte
};
constexpr CodePlace PlaceOf(int plane_bits, int lanes, int reduce, int lane, int element) {
  const int chunk = lane / (kLaneBlock * kChunkBlocks);
  const int first_lane = chunk * kLaneBlock * kChunkBlocks;
  const int chunk_lanes = lanes - first_lane < kLaneBlock * kChunkBlocks
                              ? lanes - first_lane
                              : kLaneBlock * kChunkBlocks;
  const int blocks = chunk_lanes / kLaneBlock, block = (lane - first_lane) / kLaneBlock;
  const int step = element / kStep, quad = element / 4 % 4;
  int unit = 0, shift = 0;
  switch (plane_bits) {
    case 8:
      unit = step * 4 + quad;
      break;
    case 4:
      unit = step * 2 + quad / 2;
      shift = quad % 2 * 4;
      break;
    case 2:
      unit = step;
      shift = quad * 2;
      break;
    default:
      unit = step / 2;
      shift = step % 2 * 4 + quad;
      break;
  }
  return {PlaneBytes(plane_bits, first_lane, reduce) + (unit * blocks + block) * kPlaneUnitBytes +
              lane % kLaneBlock * 4 + element % 4,
          shift};
}

// One side of a page. All offsets in bytes from the start of the side.
struct SideLayout {
  Format format;
  Side side = Side::kK;
  // Levels::kFitted: the layer's levels, which the owner of the layout keeps. Where bytes lie does
  // not depend on it.
  const LevelTable* fitted = nullptr;
  int head_dim = 0;
  int padded_dim = 0;         // head_dim rounded up to 16
  int tokens = 0;             // of the page: 64, 128 or 256 (16..64 in steps of 16 for a sink page)
  int block_tokens = 0;       // min(64, tokens)
  int group = 0;              // as stored: clamped to the head (axis token)
  int channel_groups = 0;     // axis token: groups along a head, the last may be short
  int token_groups = 0;       // axis channel: groups along the page
  int metadata_bytes = 0;     // padding included
  int codes_offset = 0;       // from the start of the side
  int norms_offset = 0;       // normed: [tokens]
  int mean_offset = 0;        // normed with page_mean: [blocks][padded_dim]
  int parameters_offset = 0;  // normed: [blocks][parameter_count] f16
  int scale_bytes = 2;        // of one scale
  int offsets_from_scales = 0;       // bytes from a scale to its offset
  int block_metadata_bytes = 0;      // axis token: metadata of one block
  int band_offset = 0;               // side-band: from the start of the side
  int band_rows = 0;                 // groups along the page (axis channel) or blocks
  int band_width = 0;                // vectors of a row
  int deltas_from_places = 0;        // bytes from a place to its delta
  int block_bytes = 0;               // codes (or values) of one 64-token block
  int plane_bytes[kMaxPlanes] = {};  // of one block
  int bytes = 0;                     // the side; a multiple of 64, of a normed K of 16

  int blocks() const { return tokens / block_tokens; }
  int lanes() const { return side == Side::kK ? block_tokens : padded_dim; }
  int reduce() const { return side == Side::kK ? padded_dim : block_tokens; }

  // Normed: f16 parameters of a block, in the order mean step, least norm, norm step.
  int parameter_count() const { return (format.page_mean ? 1 : 0) + (format.norms_8bit ? 2 : 0); }

  // Of the whole side, for the ledger: codes of real values, metadata of real groups, the rest.
  int64_t code_bytes() const;
  int64_t used_metadata_bytes() const;
  int64_t padding_bytes() const { return bytes - code_bytes() - used_metadata_bytes(); }
};

// Channels of a head on each side of a page. Made of one number where both have as many.
struct HeadChannels {
  HeadChannels(int both) : k(both), v(both) {}  // NOLINT: a head size stands for itself
  HeadChannels(const KvGeometry& g) : k(g.k_channels()), v(g.v_channels()) {}  // NOLINT

  int k, v;
};

struct PageLayout {
  SideLayout k, v;
  int tokens = 0;
  int v_offset_bytes = 0;  // of the V side
  int page_bytes = 0;

  bool is_float() const { return k.format.is_float() && v.format.is_float(); }
  // Of one token's values. REQUIRES: is_float().
  int64_t token_bytes() const {
    return (int64_t{k.head_dim} * k.format.bits + int64_t{v.head_dim} * v.format.bits) / 8;
  }

  bool operator==(const PageLayout& other) const {
    return k.format == other.k.format && v.format == other.v.format && tokens == other.tokens &&
           k.head_dim == other.k.head_dim && v.head_dim == other.v.head_dim;
  }
};

// Tokens that a page needs for its channel groups: 64, or the larger group of the two sides.
int PageTokensFor(const Format& k, const Format& v);

// REQUIRES: CheckFormat() holds for both sides; page_tokens >= PageTokensFor() and a multiple of
// 64, or (float formats only) a multiple of 16 below 64.
PageLayout MakePageLayout(const Format& k, const Format& v, HeadChannels channels, int page_tokens);

// The formats of pages that are still open or inside the window: a float side is written in its own
// type at once, a coded side waits in f16.
FormatPair OpenFormats(const FormatPair& stored);

}  // namespace kvant
