#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float8.h"
#include "ptx/float_values.h"
#include "ptx/lane_functions.h"

namespace kvant::ptx {
namespace {

double ToReal(const Instruction& op, uint64_t bits, Type type) {
  switch (type) {
    case Type::kF32:
      return F32Source(op, bits);
    case Type::kF64:
      return BitsToF64(bits);
    case Type::kF16:
      return F16ToF32(LowHalf(bits));
    case Type::kBf16:
      return Bf16ToF32(LowHalf(bits));
    default:
      break;
  }
  const uint64_t value = Extend(bits, type);
  return IsSigned(type) ? static_cast<double>(static_cast<int64_t>(value))
                        : static_cast<double>(value);
}

double RoundToInteger(const Instruction& op, double value) {
  if (op.Has(Names("rni"))) return std::nearbyint(value);
  if (op.Has(Names("rzi"))) return std::trunc(value);
  if (op.Has(Names("rmi"))) return std::floor(value);
  return op.Has(Names("rpi")) ? std::ceil(value) : value;
}

// Out of range becomes the nearest integer of the type, a NaN becomes 0.
uint64_t RealToInteger(double value, Type type) {
  if (std::isnan(value)) return 0;
  const int bits = Bits(type) - (IsSigned(type) ? 1 : 0);
  const double limit = std::ldexp(1.0, bits);  // the first that is too large
  const double lowest = IsSigned(type) ? -limit : 0.0;
  if (value < lowest) return LowBits(static_cast<uint64_t>(static_cast<int64_t>(lowest)), 64);
  if (value >= limit) return LowBits(~uint64_t{0}, bits);
  return IsSigned(type) ? static_cast<uint64_t>(static_cast<int64_t>(value))
                        : static_cast<uint64_t>(value);
}

// An integer of one type to another: the low bits, or the nearest value with .sat.
uint64_t IntegerToInteger(const Instruction& op, uint64_t bits, Type to, Type from) {
  const uint64_t value = Extend(bits, from);
  if (!op.Has(Names("sat"))) return Extend(value, to);
  const bool is_negative = IsSigned(from) && static_cast<int64_t>(value) < 0;
  const int to_bits = Bits(to) - (IsSigned(to) ? 1 : 0);
  const uint64_t highest = LowBits(~uint64_t{0}, to_bits);
  if (!is_negative) return std::min(value, highest);
  if (!IsSigned(to)) return 0;
  const auto lowest = static_cast<int64_t>(~highest);
  return static_cast<uint64_t>(std::max(static_cast<int64_t>(value), lowest));
}

// Conversions pass through double, those to halves through float too. Integers of 32 bits are exact
// in double; where they are not exact in float, they are infinite as f16.
bool RoundsTwice(Type to, Type from) {
  const bool is_long = !IsFloat(from) && Bits(from) == 64;
  if (to == Type::kF16) return from == Type::kF64;
  if (to == Type::kBf16) return from == Type::kF64 || (!IsFloat(from) && Bits(from) >= 32);
  return to == Type::kF32 && is_long;
}

uint64_t RealTo(const Instruction& op, double value, Type type) {
  switch (type) {
    case Type::kF32:
      return F32Result(op, static_cast<float>(value));
    case Type::kF64:
      return F64Result(value);
    case Type::kF16:
      return F16Result(op.Has(Names("sat")) ? Saturate(static_cast<float>(value))
                                            : static_cast<float>(value));
    case Type::kBf16:
      return Bf16Result(static_cast<float>(value));
    default:
      return RealToInteger(value, type);
  }
}

uint64_t F32ToPair(const Instruction& op, Type type, float low, float high, const char** fault) {
  switch (type) {
    case Type::kF16x2:
      return PackHalves(F16Result(low), F16Result(high));
    case Type::kBf16x2:
      return PackHalves(Bf16Result(low), Bf16Result(high));
    default:
      break;
  }
  if (!op.Has(Names("satfinite"))) *fault = "a conversion to f8 without .satfinite";
  const auto narrow = [&](float value) -> uint64_t {
    if (std::isnan(value)) return 0x7f;
    return type == Type::kE4m3x2 ? F32ToE4M3(value) : F32ToE5M2(value);
  };
  return narrow(low) | narrow(high) << 8;
}

}  // namespace

uint64_t Convert(LaneCall& call) {
  const Type to = call.op.types[0];
  const Type from = call.op.types[1];
  if (!IsFloat(to) && !IsFloat(from)) return IntegerToInteger(call.op, call.in[0], to, from);
  if (RoundsTwice(to, from)) call.fault = "a conversion that would round twice here";
  return RealTo(call.op, RoundToInteger(call.op, ToReal(call.op, call.in[0], from)), to);
}

// d = {high half: a, low half: b}, or a packed pair to another packed pair.
uint64_t ConvertPair(LaneCall& call) {
  const Type to = call.op.types[0];
  const uint64_t a = call.in[0];
  switch (call.op.types[1]) {
    case Type::kF16x2:
      return F32ToPair(call.op, to, F16ToF32(LowHalf(a)), F16ToF32(HighHalf(a)), &call.fault);
    case Type::kE4m3x2:
      return F32ToPair(call.op, to, E4M3ToF32(static_cast<uint8_t>(a)),
                       E4M3ToF32(static_cast<uint8_t>(a >> 8)), &call.fault);
    case Type::kE5m2x2:
      return F32ToPair(call.op, to, E5M2ToF32(static_cast<uint8_t>(a)),
                       E5M2ToF32(static_cast<uint8_t>(a >> 8)), &call.fault);
    default:
      return F32ToPair(call.op, to, F32Source(call.op, call.in[1]), F32Source(call.op, a),
                       &call.fault);
  }
}

}  // namespace kvant::ptx
