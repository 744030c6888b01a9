// The body of the vector levels, shared as text: each per-ISA file defines the primitives on 16
// floats (Vec), 16 int32 (Int) and 16 flags (Mask), then includes this file once. All of it has
// internal linkage, so that no level's copy can be linked into another's path.
//
// Encode takes two passes over the open side, which fits the first-level cache: ranges -> metadata
// (codec_fit-inl.h), then values -> codes with the metadata as stored.
#pragma once

#include "codec/codec_fit-inl.h"

namespace kvant {
namespace {

constexpr int kChunkLanes = 64;
constexpr int kTileUnitBytes = 64;  // 16 lanes x 4 rows

// Group and first scale of the tile (step, lane block).
int TileMetadataByte(const SidePlan& plan, int block, int step, int lane) {
  const int row = step * kTile;
  return plan.along_lanes ? MetadataByte(plan, block, lane / plan.group_extent, row)
                          : MetadataByte(plan, block, row / plan.group_extent, lane);
}

// code = clamp(rint((x - subtract) / scale + add) + centre, first, last): every affine convention.
struct Coder {
  Vec scale, subtract, add, centre;
};

Coder LoadCoder(const SidePlan& plan, const std::byte* scales) {
  const Vec scale = LoadHalves(scales);
  Coder c{Select(Equal(scale, Set(0.0f)), Set(1.0f), scale), Set(0.0f), Set(0.0f),
          Set(plan.centre)};
  if (!plan.has_offset) return c;
  const std::byte* offsets = scales + plan.offsets_from_scales;
  c.centre = Set(0.0f);
  if (plan.offset == Offset::kMin) c.subtract = LoadHalves(offsets);
  if (plan.offset == Offset::kRealZero) c.add = LoadHalves(offsets);
  if (plan.offset == Offset::kIntegerZero) c.centre = ToFloat(LoadShorts(offsets));
  return c;
}

Int CodesOf(const Coder& c, Vec x, Vec first, Vec last) {
  const Vec steps = RoundEven(Add(Div(Sub(x, c.subtract), c.scale), c.add));
  return ToInt(Min(Max(Add(steps, c.centre), first), last));
}

// iq4_nl: the nearest level, the lower of two. Levels are whole, so midpoints are exact.
Int CodebookCodesOf(const Coder& c, Vec x) {
  const Vec unit = Div(x, c.scale);
  Int codes = SetInt(0);
  for (int i = 0; i + 1 < 16; ++i) {
    const float midpoint = 0.5f * static_cast<float>(kIq4NlLevels[i] + kIq4NlLevels[i + 1]);
    codes = AddOneWhere(Less(Set(midpoint), unit), codes);
  }
  return codes;
}

// Where a unit of a plane lies for a lane block, in bytes from the start of the block's codes.
int UnitByte(const SidePlan& plan, const PlanePlan& plane, int lane, int unit) {
  const int first_lane = lane / kChunkLanes * kChunkLanes;  // of the chunk
  const int chunk_blocks = Smaller(plan.lanes - first_lane, kChunkLanes) / kTile;
  return plane.offset_bytes + first_lane / kTile * plane.lane_block_bytes +
         (unit * chunk_blocks + (lane - first_lane) / kTile) * kTileUnitBytes;
}

// The plane's bits of a code, in each of four bytes.
Int MaskOfPlane(const PlanePlan& plane) {
  return SetInt(static_cast<int>(((1u << plane.bits) - 1) * 0x01010101u));
}

// Four bytes a lane, one a row: the quads of a tile, four rows each.
struct Quads {
  Int quad[4];
};

void StorePlane(const SidePlan& plan, const PlanePlan& plane, const Quads& codes, std::byte* block,
                int step, int lane) {
  const Int mask = MaskOfPlane(plane);
  Int q[4];
  for (int i = 0; i < 4; ++i) q[i] = And(ShiftRight(codes.quad[i], plane.first_bit), mask);
  const auto unit = [&](int index) { return block + UnitByte(plan, plane, lane, index); };
  switch (plane.bits) {
    case 8:
      for (int i = 0; i < 4; ++i) StoreInts(unit(step * 4 + i), q[i]);
      break;
    case 4:
      for (int i = 0; i < 2; ++i) {
        StoreInts(unit(step * 2 + i), Or(q[2 * i], ShiftLeft(q[2 * i + 1], 4)));
      }
      break;
    case 2:
      StoreInts(unit(step),
                Or(Or(q[0], ShiftLeft(q[1], 2)), Or(ShiftLeft(q[2], 4), ShiftLeft(q[3], 6))));
      break;
    default: {
      const Int bits = Or(Or(q[0], ShiftLeft(q[1], 1)), Or(ShiftLeft(q[2], 2), ShiftLeft(q[3], 3)));
      std::byte* at = unit(step / 2);
      StoreInts(at, step % 2 == 0 ? bits : Or(LoadInts(at), ShiftLeft(bits, 4)));
    }
  }
}

void EncodeTile(const SidePlan& plan, const std::byte* source, const Extent& extent, int block,
                int step, int lane, std::byte* stored) {
  const Coder coder = LoadCoder(plan, stored + TileMetadataByte(plan, block, step, lane));
  alignas(64) float of_row[4][kTile];
  Store(of_row[0], coder.scale);
  Store(of_row[1], coder.subtract);
  Store(of_row[2], coder.add);
  Store(of_row[3], coder.centre);
  const bool symmetric = plan.offset == Offset::kNone;
  const Vec first = Set(symmetric ? 1.0f : 0.0f), last = Set(plan.last_code);
  const Mask used = MaskOf(extent.first_lane - lane, extent.end_lane - lane);
  Quads quads;
  for (int quad = 0; quad < 4; ++quad) {
    Int bytes = SetInt(0);
    for (int element = 0; element < 4; ++element) {
      const int i = quad * 4 + element, row = step * kTile + i;
      if (row < extent.first_row || row >= extent.end_row) continue;
      const Coder c = plan.along_lanes ? Coder{Set(of_row[0][i]), Set(of_row[1][i]),
                                               Set(of_row[2][i]), Set(of_row[3][i])}
                                       : coder;
      const Vec x = LoadHalves(RowOf(plan, source, block, row) + lane * 2);
      const Int codes = plan.is_codebook ? CodebookCodesOf(c, x) : CodesOf(c, x, first, last);
      bytes = Or(bytes, ShiftLeft(SelectInt(used, codes, SetInt(0)), element * 8));
    }
    quads.quad[quad] = bytes;
  }
  std::byte* codes = stored + plan.codes_offset + block * plan.block_bytes;
  for (const PlanePlan& plane : plan.planes) {
    if (plane.bits != 0) StorePlane(plan, plane, quads, codes, step, lane);
  }
}

void EncodeCoded(const SidePlan& plan, const std::byte* source, int first_token,
                 std::byte* stored) {
  FitSide(plan, source, first_token, stored);
  for (int block = 0; block < plan.blocks; ++block) {
    const Extent extent = CodedExtent(plan, first_token, block);
    for (int step = 0; step < plan.steps; ++step) {
      for (int lane = 0; lane < plan.lanes; lane += kTile) {
        EncodeTile(plan, source, extent, block, step, lane, stored);
      }
    }
  }
}

void LoadPlane(const SidePlan& plan, const PlanePlan& plane, const std::byte* block, int step,
               int lane, Quads* codes) {
  const Int mask = MaskOfPlane(plane);
  const int units_per_step = plane.bits == 1 ? 1 : plane.bits / 2,
            quads_per_unit = 4 / units_per_step;
  for (int i = 0; i < 4; ++i) {
    const int unit = plane.bits == 1 ? step / 2 : step * units_per_step + i / quads_per_unit;
    const int shift = i % quads_per_unit * plane.bits + (plane.bits == 1 ? step % 2 * 4 : 0);
    const Int bytes = LoadInts(block + UnitByte(plan, plane, lane, unit));
    const Int part = And(ShiftRight(bytes, shift), mask);
    codes->quad[i] = Or(codes->quad[i], ShiftLeft(part, plane.first_bit));
  }
}

// Codes of one tile as 16 rows of 16 channels, one row a token.
void RowsOfTokens(const SidePlan& plan, const Quads& quads, Int (&rows)[kTile]) {
  if (plan.lanes_are_tokens) {  // a lane's 16 bytes are 16 channels of one token
    alignas(64) std::byte bytes[kTile * kTile];
    StoreTransposed(bytes, quads.quad);
    for (int i = 0; i < kTile; ++i) rows[i] = LoadBytes(bytes + i % 4 * 64 + i / 4 * 16);
    return;
  }
  for (int i = 0; i < kTile; ++i) {
    rows[i] = And(ShiftRight(quads.quad[i / 4], i % 4 * 8), SetInt(255));
  }
}

// value = scale * level(code) + offset
struct Decoder {
  Vec scale, offset;
};

Decoder LoadDecoder(const SidePlan& plan, const std::byte* scales) {
  const Vec scale = LoadHalves(scales);
  const std::byte* offsets = scales + plan.offsets_from_scales;
  switch (plan.offset) {
    case Offset::kNone:
    case Offset::kExtreme:
      return {scale, Mul(Negate(scale), Set(plan.centre))};
    case Offset::kMin:
      return {scale, LoadHalves(offsets)};
    case Offset::kIntegerZero:
      return {scale, Mul(Negate(ToFloat(LoadShorts(offsets))), scale)};
    case Offset::kRealZero:
      return {scale, Mul(Negate(LoadHalves(offsets)), scale)};
  }
  return {scale, scale};
}

void DecodeTile(const SidePlan& plan, const std::byte* stored, int block, int step, int lane,
                float* out, int64_t out_stride) {
  Quads quads{{SetInt(0), SetInt(0), SetInt(0), SetInt(0)}};
  const std::byte* codes = stored + plan.codes_offset + block * plan.block_bytes;
  for (const PlanePlan& plane : plan.planes) {
    if (plane.bits != 0) LoadPlane(plan, plane, codes, step, lane, &quads);
  }
  Int rows[kTile];
  RowsOfTokens(plan, quads, rows);
  const Decoder decoder = LoadDecoder(plan, stored + TileMetadataByte(plan, block, step, lane));
  alignas(64) float of_token[2][kTile];
  Store(of_token[0], decoder.scale);
  Store(of_token[1], decoder.offset);
  const bool token_axis = plan.along_lanes != plan.lanes_are_tokens;
  const int row = step * kTile;
  const int token = block * kPageTokens + (plan.lanes_are_tokens ? lane : row);
  const int channel = plan.lanes_are_tokens ? row : lane;
  const int head_dim = plan.lanes_are_tokens ? plan.rows : plan.used_lanes;
  const bool whole = head_dim - channel >= kTile;  // masked stores are slow on some AVX2 machines
  const Mask used = MaskOf(0, head_dim - channel);
  for (int i = 0; i < kTile; ++i) {
    const Decoder d = token_axis ? Decoder{Set(of_token[0][i]), Set(of_token[1][i])} : decoder;
    const Vec value = plan.is_codebook ? Mul(d.scale, LookUpIq4Nl(rows[i]))
                                       : Add(Mul(d.scale, ToFloat(rows[i])), d.offset);
    float* at = out + (token + i) * out_stride + channel;
    if (whole) {
      Store(at, value);
    } else {
      StoreWhere(used, at, value);
    }
  }
}

void DecodeCoded(const SidePlan& plan, const std::byte* stored, float* out, int64_t out_stride) {
  for (int block = 0; block < plan.blocks; ++block) {
    for (int step = 0; step < plan.steps; ++step) {
      for (int lane = 0; lane < plan.lanes; lane += kTile) {
        DecodeTile(plan, stored, block, step, lane, out, out_stride);
      }
    }
  }
}

}  // namespace
}  // namespace kvant
