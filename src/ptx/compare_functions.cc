#include <cmath>

#include "ptx/float_values.h"
#include "ptx/lane_functions.h"

namespace kvant::ptx {
namespace {

// In which of the four cases a comparison holds.
struct Cases {
  NameSet names;
  bool less, equal, greater, unordered;
};

constexpr Cases kComparisons[] = {
    {Names("eq"), false, true, false, false},    {Names("ne"), true, false, true, false},
    {Names("lt lo"), true, false, false, false}, {Names("le ls"), true, true, false, false},
    {Names("gt hi"), false, false, true, false}, {Names("ge hs"), false, true, true, false},
    {Names("equ"), false, true, false, true},    {Names("neu"), true, false, true, true},
    {Names("ltu"), true, false, false, true},    {Names("leu"), true, true, false, true},
    {Names("gtu"), false, false, true, true},    {Names("geu"), false, true, true, true},
    {Names("num"), true, true, true, false},     {Names("nan"), false, false, false, true},
};

template <typename T>
bool Holds(const Cases& cases, T a, T b) {
  if (a < b) return cases.less;
  if (a > b) return cases.greater;
  return a == b ? cases.equal : cases.unordered;
}

bool Compare(const Instruction& op, Type type, uint64_t a, uint64_t b) {
  const Cases* cases = kComparisons;
  while (!op.Has(cases->names)) ++cases;
  switch (type) {
    case Type::kF32:
      return Holds(*cases, F32Source(op, a), F32Source(op, b));
    case Type::kF64:
      return Holds(*cases, BitsToF64(a), BitsToF64(b));
    case Type::kF16:
      return Holds(*cases, F16ToF32(LowHalf(a)), F16ToF32(LowHalf(b)));
    default:
      break;
  }
  // .lo and its kind compare without signs whatever the type.
  const bool is_signed = IsSigned(type) && !op.Has(Names("lo ls hi hs"));
  const uint64_t x = Extend(a, type);
  const uint64_t y = Extend(b, type);
  if (is_signed) return Holds(*cases, static_cast<int64_t>(x), static_cast<int64_t>(y));
  return Holds(*cases, x, y);
}

bool Combine(const Instruction& op, bool a, bool b) {
  if (op.Has(Names("and"))) return a && b;
  return op.Has(Names("or")) ? a || b : a != b;
}

}  // namespace

// p|q = (a compared with b) BOOL c, (not compared) BOOL c
uint64_t SetPredicate(LaneCall& call) {
  const bool holds = Compare(call.op, call.op.type(), call.in[0], call.in[1]);
  if (!call.op.Has(Names("and or xor"))) return holds ? 1 : 2;
  const bool c = call.in[2] != 0;
  return (Combine(call.op, holds, c) ? 1 : 0) | (Combine(call.op, !holds, c) ? 2 : 0);
}

// All ones or 1.0 where it holds; the types are the result's and the operands'.
uint64_t SetMask(LaneCall& call) {
  const bool holds = Compare(call.op, call.op.types[1], call.in[0], call.in[1]);
  const uint64_t yes = call.op.type() == Type::kF32 ? 0x3f800000u : 0xffffffffu;
  return holds ? yes : 0;
}

}  // namespace kvant::ptx
