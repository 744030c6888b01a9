#include <algorithm>
#include <bit>

#include "ptx/warp.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {
namespace {

// Where a lane reads from, and whether that is where it wanted to.
struct Source {
  int lane;
  bool in_range;
};

// `clamp` holds the highest lane (bits 0-4) and the mask of the segment (bits 8-12).
Source ShuffleSource(const Instruction& op, int lane, uint64_t distance, uint64_t clamp) {
  const int step = static_cast<int>(distance & 31);
  const int segment = static_cast<int>(clamp >> 8 & 31);
  const int lowest = lane & segment;
  const int highest = lowest | (static_cast<int>(clamp & 31) & ~segment);
  int from = lane;
  bool in_range = true;
  if (op.Has(Names("up"))) {
    from = lane - step;
    in_range = from >= highest;  // of .up the clamp is a lower end
  } else if (op.Has(Names("down"))) {
    from = lane + step;
    in_range = from <= highest;
  } else if (op.Has(Names("bfly"))) {
    from = lane ^ step;
    in_range = from <= highest;
  } else {
    from = lowest | (step & ~segment);
    in_range = from <= highest;
  }
  return {in_range ? from : lane, in_range};
}

// The lanes of `lanes` whose value is `value`.
LaneMask Equal(const LaneValues& values, LaneMask lanes, uint64_t value) {
  LaneMask equal = 0;
  ForEachLane(lanes, [&](int lane) {
    if (values[lane] == value) equal |= LaneMask{1} << lane;
  });
  return equal;
}

uint64_t Combine(const Instruction& op, uint64_t a, uint64_t b) {
  if (op.Has(Names("add"))) return LowBits(a + b, 32);
  if (op.Has(Names("and"))) return a & b;
  if (op.Has(Names("or"))) return a | b;
  if (op.Has(Names("xor"))) return a ^ b;
  const auto x = static_cast<int64_t>(Extend(a, op.type()));
  const auto y = static_cast<int64_t>(Extend(b, op.type()));
  return LowBits(static_cast<uint64_t>(op.Has(Names("min")) ? std::min(x, y) : std::max(x, y)), 32);
}

// One value for all lanes.
void WriteToAll(Warp& warp, const Operand& target, LaneMask lanes, uint64_t value) {
  LaneValues values;
  values.fill(value);
  warp.Write(target, lanes, values);
}

}  // namespace

// d|p = the value of another lane, whether there was one
void Shuffle(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues values, distance, clamp;
  if (!warp.Read(op, op.operands[1], lanes, &values)) return;
  if (!warp.Read(op, op.operands[2], lanes, &distance)) return;
  if (!warp.Read(op, op.operands[3], lanes, &clamp)) return;
  LaneValues result, in_range;
  ForEachLane(lanes, [&](int lane) {
    const Source source = ShuffleSource(op, lane, distance[lane], clamp[lane]);
    if ((lanes >> source.lane & 1) == 0) {
      warp.Fail(op, lane,
                "it reads lane " + std::to_string(source.lane) + ", which the mask does not name");
    }
    result[lane] = values[static_cast<size_t>(source.lane)];
    in_range[lane] = source.in_range ? 1 : 0;
  });
  warp.WritePair(op.operands[0], lanes, result, in_range);
}

void Vote(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues values;
  if (!warp.Read(op, op.operands[1], lanes, &values)) return;
  const LaneMask yes = Equal(values, lanes, 1);
  uint64_t result = yes;
  if (op.Has(Names("all"))) result = yes == lanes ? 1 : 0;
  if (op.Has(Names("any"))) result = yes != 0 ? 1 : 0;
  if (op.Has(Names("uni"))) result = yes == lanes || yes == 0 ? 1 : 0;
  WriteToAll(warp, op.operands[0], lanes, result);
}

// .any: the lanes that hold the same value; .all: every lane when all do, with a predicate.
void Match(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues values;
  if (!warp.Read(op, op.operands[1], lanes, &values)) return;
  LaneValues result, is_all;
  ForEachLane(lanes, [&](int lane) {
    const LaneMask equal = Equal(values, lanes, values[lane]);
    is_all[lane] = equal == lanes ? 1 : 0;
    result[lane] = op.Has(Names("any")) || equal == lanes ? equal : 0;
  });
  warp.WritePair(op.operands[0], lanes, result, is_all);
}

void Reduce(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues values;
  if (!warp.Read(op, op.operands[1], lanes, &values)) return;
  const int first = std::countr_zero(lanes);
  uint64_t result = values[first];
  ForEachLane(lanes & (lanes - 1), [&](int lane) { result = Combine(op, result, values[lane]); });
  WriteToAll(warp, op.operands[0], lanes, result);
}

void ActiveMask(Warp& warp, const Instruction& op, LaneMask lanes) {
  WriteToAll(warp, op.operands[0], lanes, lanes);
}

}  // namespace kvant::ptx
