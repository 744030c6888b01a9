// The first pass of encoding at the vector levels: ranges of the groups -> metadata. Included by
// codec-inl.h, which says what a per-ISA file defines before. The formulas are those of group.cc.
#pragma once

namespace kvant {
namespace {

constexpr int kTile = 16;

// Tokens of block b that belong to the sinks.
int SinksOfBlock(int first_token, int block) {
  const int sinks = first_token - block * kPageTokens;
  return sinks < 0 ? 0 : sinks < kPageTokens ? sinks : kPageTokens;
}

// The rows and lanes of one block that are coded.
struct Extent {
  int first_row, end_row, first_lane, end_lane;
};

Extent CodedExtent(const SidePlan& plan, int first_token, int block) {
  const int sinks = SinksOfBlock(first_token, block);
  return plan.lanes_are_tokens ? Extent{0, plan.rows, sinks, plan.used_lanes}
                               : Extent{sinks, plan.rows, 0, plan.used_lanes};
}

int Smaller(int a, int b) { return a < b ? a : b; }
int Larger(int a, int b) { return a > b ? a : b; }

// The part of a block's extent that group g covers, for row or lane p to p + 15.
Extent GroupExtent(const SidePlan& plan, int first_token, int block, int g, int p) {
  Extent e = CodedExtent(plan, first_token, block);
  const int begin = g * plan.group_extent, end = begin + plan.group_extent;
  if (plan.along_lanes) {
    return {Larger(e.first_row, p), Smaller(e.end_row, p + kTile), Larger(e.first_lane, begin),
            Smaller(e.end_lane, end)};
  }
  return {Larger(e.first_row, begin), Smaller(e.end_row, end), Larger(e.first_lane, p),
          Smaller(e.end_lane, p + kTile)};
}

const std::byte* RowOf(const SidePlan& plan, const std::byte* source, int block, int row) {
  return source + block * plan.source_block_bytes + static_cast<int64_t>(row) * plan.lanes * 2;
}

int MetadataByte(const SidePlan& plan, int block, int g, int p) {
  return block / plan.group_blocks * plan.group_blocks_bytes + g * plan.group_bytes + p * 2;
}

// Ranges of 16 neighbouring groups; an empty one has min > max.
struct Ranges {
  Vec min, max;
};

Ranges RangesAlongLanes(const SidePlan& plan, const std::byte* source, int first_token,
                        int first_block, int g, int first_row) {
  alignas(64) float mins[kTile], maxs[kTile];
  Store(mins, Set(INFINITY));
  Store(maxs, Set(-INFINITY));
  for (int i = 0; i < kTile; ++i) {
    Vec min = Set(INFINITY), max = Set(-INFINITY);
    for (int b = first_block; b < first_block + plan.group_blocks; ++b) {
      const Extent e = GroupExtent(plan, first_token, b, g, first_row);
      const int row = first_row + i;
      if (row < e.first_row || row >= e.end_row) continue;
      const std::byte* values = RowOf(plan, source, b, row);
      for (int lane = e.first_lane / kTile * kTile; lane < e.end_lane; lane += kTile) {
        const Mask used = MaskOf(e.first_lane - lane, e.end_lane - lane);
        const Vec x = LoadHalves(values + lane * 2);
        min = Min(min, Select(used, x, min));
        max = Max(max, Select(used, x, max));
      }
    }
    mins[i] = SmallestOf(min);
    maxs[i] = LargestOf(max);
  }
  return {Load(mins), Load(maxs)};
}

Ranges RangesAlongRows(const SidePlan& plan, const std::byte* source, int first_token,
                       int first_block, int g, int first_lane) {
  Ranges r{Set(INFINITY), Set(-INFINITY)};
  for (int b = first_block; b < first_block + plan.group_blocks; ++b) {
    const Extent e = GroupExtent(plan, first_token, b, g, first_lane);
    const Mask used = MaskOf(e.first_lane - first_lane, e.end_lane - first_lane);
    Vec min = r.min, max = r.max;
    for (int row = e.first_row; row < e.end_row; ++row) {
      const Vec x = LoadHalves(RowOf(plan, source, b, row) + first_lane * 2);
      min = Min(min, x);
      max = Max(max, x);
    }
    r = {Select(used, min, r.min), Select(used, max, r.max)};
  }
  return r;
}

// Whether the first value of magnitude `half` (an f16) in group (g, p) is negative. Only where a
// group's min and max have equal magnitudes, so it may be slow.
bool FirstIsNegative(const SidePlan& plan, const std::byte* source, int first_token,
                     int first_block, int g, int p, unsigned half) {
  for (int b = first_block; b < first_block + plan.group_blocks; ++b) {
    Extent e = GroupExtent(plan, first_token, b, g, p / kTile * kTile);
    if (plan.along_lanes) {
      e.first_row = p, e.end_row = p + 1;
    } else {
      e.first_lane = p, e.end_lane = p + 1;
    }
    for (int row = e.first_row; row < e.end_row; ++row) {
      for (int lane = e.first_lane; lane < e.end_lane; ++lane) {
        uint16_t value;
        memcpy(&value, RowOf(plan, source, b, row) + lane * 2, sizeof value);
        if ((value & 0x7fffu) == half) return value != half;
      }
    }
  }
  return false;
}

// The values of largest magnitude, the first of equals, of 16 groups.
Vec ExtremesOf(const SidePlan& plan, const std::byte* source, int first_token, int first_block,
               int g, int p, const Ranges& r) {
  const Vec reflected = Sub(Set(0.0f), r.min);
  const Vec extreme = Select(Less(reflected, r.max), r.max, r.min);
  alignas(64) float values[kTile], mins[kTile], maxs[kTile];
  alignas(64) int32_t halves[kTile];
  if (!Any(Equal(reflected, r.max))) return extreme;
  Store(values, extreme);
  Store(mins, r.min);
  Store(maxs, r.max);
  StoreInts(halves, HalvesOf(r.max));
  for (int i = 0; i < kTile; ++i) {
    if (maxs[i] != -mins[i] || !(mins[i] < maxs[i])) continue;
    values[i] = FirstIsNegative(plan, source, first_token, first_block, g, p + i,
                                static_cast<unsigned>(halves[i]))
                    ? mins[i]
                    : maxs[i];
  }
  return Load(values);
}

// f16 of a step: to nearest, but up where it is subnormal. StepHalfOf.
Int StepHalves(Vec step) {
  const Vec clean = Add(step, Set(0.0f));  // no -0
  const Vec magnitude = Abs(clean);
  const Int units = ToInt(Ceil(Mul(magnitude, Set(16777216.0f))));
  const Int sign = And(ShiftRight(BitsOf(clean), 16), SetInt(0x8000));
  return SelectInt(Less(magnitude, Set(6.103515625e-5f)), Or(units, sign), HalvesOf(clean));
}

struct Metadata {
  Int scales, offsets;  // low 16 bits of each
};

// Conventions with a zero: a constant group is +-scale, with code 1 - 0 or 0 - 1.
Metadata FitZeros(const SidePlan& plan, Vec min, Vec max) {
  const bool integer = plan.offset == Offset::kIntegerZero;
  const Mask constant = Equal(min, max);
  const Vec reach =
      integer ? Div(Max(Abs(min), Abs(max)), Set(32000.0f)) : Div(Abs(min), Set(2048.0f));
  const Vec step = Max(Div(Sub(max, min), Set(plan.last_code)), reach);
  const Int scales = StepHalves(Select(constant, Abs(min), step));
  const Vec zero = Div(Sub(Set(0.0f), min), FloatsOf(scales));
  const Int zeros = integer ? And(ToInt(RoundEven(zero)), SetInt(0xffff)) : HalvesOf(zero);
  const Int one = SetInt(integer ? 1 : 0x3c00);
  const Int constant_zeros = SelectInt(Less(min, Set(0.0f)), one, SetInt(0));
  return {scales, SelectInt(constant, constant_zeros, zeros)};
}

Metadata Fit(const SidePlan& plan, const Ranges& r, Vec extreme) {
  const Vec min = Add(r.min, Set(0.0f)), max = Add(r.max, Set(0.0f));  // no -0
  switch (plan.offset) {
    case Offset::kNone: {
      if (plan.is_codebook) {
        return {StepHalves(Div(extreme, Set(static_cast<float>(kIq4NlLevels[0])))), SetInt(0)};
      }
      const Vec largest = Max(Abs(min), Abs(max));
      return {StepHalves(Div(largest, Set(plan.centre - 1.0f))), SetInt(0)};
    }
    case Offset::kExtreme:
      return {StepHalves(Div(extreme, Set(-plan.centre))), SetInt(0)};
    case Offset::kMin:
      return {StepHalves(Div(Sub(max, min), Set(plan.last_code))), HalvesOf(min)};
    case Offset::kIntegerZero:
    case Offset::kRealZero:
      return FitZeros(plan, min, max);
  }
  return {SetInt(0), SetInt(0)};
}

// Fits 16 neighbouring groups and stores their metadata; empty groups store zeros.
void FitTile(const SidePlan& plan, const std::byte* source, int first_token, int first_block, int g,
             int p, std::byte* stored) {
  const Ranges r = plan.along_lanes ? RangesAlongLanes(plan, source, first_token, first_block, g, p)
                                    : RangesAlongRows(plan, source, first_token, first_block, g, p);
  const bool needs_extreme = plan.is_codebook || plan.offset == Offset::kExtreme;
  const Vec extreme =
      needs_extreme ? ExtremesOf(plan, source, first_token, first_block, g, p, r) : Set(0.0f);
  const Mask empty = Less(r.max, r.min);
  const Metadata m = Fit(plan, r, extreme);
  std::byte* at = stored + MetadataByte(plan, first_block, g, p);
  StoreShorts(at, SelectInt(empty, SetInt(0), m.scales));
  if (plan.has_offset) {
    StoreShorts(at + plan.offsets_from_scales, SelectInt(empty, SetInt(0), m.offsets));
  }
}

void FitSide(const SidePlan& plan, const std::byte* source, int first_token, std::byte* stored) {
  memset(stored, 0, static_cast<size_t>(plan.codes_offset));
  const int scales = plan.along_lanes ? plan.steps * kTile : plan.lanes;
  for (int block = 0; block < plan.blocks; block += plan.group_blocks) {
    for (int g = 0; g < plan.groups_per_block; ++g) {
      for (int p = 0; p < scales; p += kTile) {
        FitTile(plan, source, first_token, block, g, p, stored);
      }
    }
  }
}

}  // namespace
}  // namespace kvant
