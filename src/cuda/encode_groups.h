// Sides of int codes from f16, exactly as the CPU's codec makes them (src/codec/group.cc), bit for
// bit: the stored scale and offset decide the code, by a true division and rounding half to even.
//
// Pages of every width hold an element in the same lane, fragment, pair and half. So a lane codes
// its own values, and only the range of a group crosses lanes. A group runs along the rows of the
// fragments on both sides: K's channels along tokens, V's tokens along 64 channels.
#pragma once

#include "cuda/arguments.h"
#include "cuda/device_page.h"
#include "cuda/encode_step.h"
#include "cuda/isa.h"

namespace kvant::cuda {

// Scale and offset of one group, as stored and as a decoder sees them.
struct Range {
  uint32_t scale_bits, offset_bits;
  float scale, offset;

  KVANT_DEVICE static Range OfMin(float min, float max, int bits) {
    Range r;
    r.scale_bits = StepHalf(Divide(max - min, static_cast<float>((1 << bits) - 1)));
    r.offset_bits = PackHalves(min + 0.0f, 0.0f);  // -0 becomes 0
    r.scale = LowHalf(r.scale_bits);
    r.offset = LowHalf(r.offset_bits);
    return r;
  }
  KVANT_DEVICE static Range OfSymmetric(float min, float max, int bits) {
    const float centre = static_cast<float>(1 << (bits - 1));
    Range r;
    r.scale_bits = StepHalf(Divide(Max(-min, max), centre - 1.0f));
    r.scale = LowHalf(r.scale_bits);
    r.offset_bits = PackHalves(0.0f - r.scale * centre, 0.0f);
    r.offset = 0;
    return r;
  }

  KVANT_DEVICE uint32_t CodeOfMin(float value, int bits) const {
    if (scale == 0.0f) return 0;
    const float code = RoundToEven(Divide(value - offset, scale));
    return static_cast<uint32_t>(Min(Max(code, 0.0f), static_cast<float>((1 << bits) - 1)));
  }
  KVANT_DEVICE uint32_t CodeOfSymmetric(float value, int bits) const {
    const float centre = static_cast<float>(1 << (bits - 1)), limit = centre - 1.0f;
    if (scale == 0.0f) return 1u << (bits - 1);
    const float code = RoundToEven(Divide(value, scale));
    return static_cast<uint32_t>(Min(Max(code, -limit), limit) + centre);
  }
};

template <SideCode kCode, int kDim, bool kIsK>
struct GroupEncoder {
  static constexpr int kBits = BitsOf(kCode);
  static constexpr int kTiles = kDim / 16;
  static constexpr int kColumnTiles = kIsK ? kTiles : kTokenBlocks;
  static constexpr int kGroups = kIsK ? 1 : VGroups(kDim);

  const EncodeArguments& args;
  const unsigned char* source;
  unsigned char *payload, *scales, *offsets;
  int first_token, lane, g, t;

  // The fragment of row tile i of a group.
  KVANT_DEVICE static int FragmentOf(int group, int i, int column_tile) {
    return (group * 4 + i) * kColumnTiles + column_tile;
  }
  KVANT_DEVICE static int RowTiles(int group) {
    return kIsK || group * 4 + 4 <= kTiles ? 4 : kTiles - group * 4;
  }
  // Column `column` (half + 2 * (pair / 2)) of the lane, and its row `row` of tile i, as token.
  KVANT_DEVICE int ColumnOf(int column_tile, int column) const {
    return column_tile * 16 + 2 * t + column % 2 + column / 2 * 8;
  }
  KVANT_DEVICE bool Has(int i, int column_tile, int row, int column) const {
    return (kIsK ? i * 16 + g + 8 * row : ColumnOf(column_tile, column)) >= first_token;
  }

  // The groups of one column tile: four a lane, shared by the lanes of equal t.
  KVANT_DEVICE void Encode(int group, int column_tile) const {
    float values[4][2][4], min[4], max[4];  // [row tile][row][column]
    KVANT_UNROLL
    for (int column = 0; column < 4; ++column) {
      min[column] = -NegativeInfinity();
      max[column] = NegativeInfinity();
    }
    KVANT_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i >= RowTiles(group)) continue;
      const Words4 words =
          Load16(source + (FragmentOf(group, i, column_tile) * kWarpLanes + lane) * 16);
      KVANT_UNROLL
      for (int row = 0; row < 2; ++row) {
        KVANT_UNROLL
        for (int column = 0; column < 4; ++column) {
          const uint32_t pair = words.word[row + column / 2 * 2];
          const float value = column % 2 == 0 ? LowHalf(pair) : HighHalf(pair);
          values[i][row][column] = value;
          if (!Has(i, column_tile, row, column)) continue;
          min[column] = Min(min[column], value);
          max[column] = Max(max[column], value);
        }
      }
    }
    Range ranges[4];
    KVANT_UNROLL
    for (int column = 0; column < 4; ++column) {
      KVANT_UNROLL
      for (int mask = 4; mask < kWarpLanes; mask *= 2) {
        min[column] = Min(min[column], ShuffleXor(min[column], mask));
        max[column] = Max(max[column], ShuffleXor(max[column], mask));
      }
      ranges[column] = RangeOf(min[column], max[column]);
      if (g == 0) StoreRange(group, ColumnOf(column_tile, column), ranges[column]);
    }
    KVANT_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < RowTiles(group)) StoreCodes(group, i, column_tile, values[i], ranges);
    }
  }

  // A token that belongs to the sinks has an empty group: scale and offset 0.
  KVANT_DEVICE Range RangeOf(float min, float max) const {
    if (min > max) return {0, 0, 0, 0};
    return !kIsK && args.symmetric_v != 0 ? Range::OfSymmetric(min, max, kBits)
                                          : Range::OfMin(min, max, kBits);
  }
  KVANT_DEVICE void StoreRange(int group, int column, const Range& range) const {
    const int base = group * 2 * kDevicePageTokens;
    *reinterpret_cast<uint16_t*>(scales + base + PairOrder(kColumnTiles, column) * 2) =
        static_cast<uint16_t>(range.scale_bits);
    *reinterpret_cast<uint16_t*>(offsets + base + OffsetOrder(kColumnTiles, column) * 2) =
        static_cast<uint16_t>(range.offset_bits);
  }

  KVANT_DEVICE void StoreCodes(int group, int i, int column_tile, const float (&values)[2][4],
                               const Range (&ranges)[4]) const {
    const int fragment = FragmentOf(group, i, column_tile);
    uint32_t words[2] = {0, 0};
    KVANT_UNROLL
    for (int row = 0; row < 2; ++row) {
      KVANT_UNROLL
      for (int column = 0; column < 4; ++column) {
        if (!Has(i, column_tile, row, column)) continue;
        const Range& range = ranges[column];
        const float value = values[row][column];
        const uint32_t code = !kIsK && args.symmetric_v != 0 ? range.CodeOfSymmetric(value, kBits)
                                                             : range.CodeOfMin(value, kBits);
        const int bit = CodeBit(kCode, 0, row + column / 2 * 2, column % 2);
        words[bit / 32] |= code << (bit % 32);
      }
    }
    constexpr int kLaneBytes = LaneBytes(kCode, kDim);
    if constexpr (kBits == 2) {  // half a word: its even or its odd bytes
      const int byte = fragment / 2 * 4 + fragment % 2;
      payload[StreamPlace(kLaneBytes, lane, byte)] = static_cast<unsigned char>(words[0]);
      payload[StreamPlace(kLaneBytes, lane, byte + 2)] = static_cast<unsigned char>(words[0] >> 16);
    } else {
      KVANT_UNROLL
      for (int w = 0; w < kBits / 4; ++w) {
        const int byte = fragment * kBits + w * 4;
        *reinterpret_cast<uint32_t*>(payload + StreamPlace(kLaneBytes, lane, byte)) = words[w];
      }
    }
  }

  KVANT_DEVICE void EncodeAll() const {
    KVANT_LOOP
    for (int unit = UniformWarp(); unit < kGroups * kColumnTiles; unit += kBlockWarps) {
      Encode(unit / kColumnTiles, unit % kColumnTiles);
    }
  }
};

}  // namespace kvant::cuda
