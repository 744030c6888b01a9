#include "ptx/lane_functions.h"

namespace kvant::ptx {
namespace {

// Wide enough for any product of two 64-bit integers.
__extension__ typedef __int128 Wide;

Wide ToWide(uint64_t value, Type type) {
  const uint64_t extended = Extend(value, type);
  return IsSigned(type) ? Wide{static_cast<int64_t>(extended)} : Wide{extended};
}

Wide Product(const LaneCall& call) {
  return ToWide(call.in[0], call.op.type()) * ToWide(call.in[1], call.op.type());
}

uint64_t HighHalf(const LaneCall& call) {
  return LowBits(static_cast<uint64_t>(Product(call) >> Bits(call.op.type())),
                 Bits(call.op.type()));
}

}  // namespace

uint64_t MulLo(LaneCall& call) {
  return LowBits(static_cast<uint64_t>(Product(call)), Bits(call.op.type()));
}
uint64_t MulHi(LaneCall& call) { return HighHalf(call); }
uint64_t MulWide(LaneCall& call) {
  return LowBits(static_cast<uint64_t>(Product(call)), 2 * Bits(call.op.type()));
}

uint64_t MadLo(LaneCall& call) {
  return LowBits(static_cast<uint64_t>(Product(call)) + call.in[2], Bits(call.op.type()));
}
uint64_t MadHi(LaneCall& call) {
  return LowBits(HighHalf(call) + call.in[2], Bits(call.op.type()));
}
uint64_t MadWide(LaneCall& call) {
  return LowBits(static_cast<uint64_t>(Product(call)) + call.in[2], 2 * Bits(call.op.type()));
}

uint64_t IntDiv(LaneCall& call) {
  const Wide divisor = ToWide(call.in[1], call.op.type());
  if (divisor == 0) {
    call.fault = "division by zero";
    return 0;
  }
  return LowBits(static_cast<uint64_t>(ToWide(call.in[0], call.op.type()) / divisor),
                 Bits(call.op.type()));
}

uint64_t IntRem(LaneCall& call) {
  const Wide divisor = ToWide(call.in[1], call.op.type());
  if (divisor == 0) {
    call.fault = "remainder of a division by zero";
    return 0;
  }
  return LowBits(static_cast<uint64_t>(ToWide(call.in[0], call.op.type()) % divisor),
                 Bits(call.op.type()));
}

// |a - b| + c
uint64_t Sad(LaneCall& call) {
  const Wide difference = ToWide(call.in[0], call.op.type()) - ToWide(call.in[1], call.op.type());
  const Wide magnitude = difference < 0 ? -difference : difference;
  return LowBits(static_cast<uint64_t>(magnitude) + call.in[2], Bits(call.op.type()));
}

// c + the dot product of four bytes; the two types say how the bytes of a and of b are read.
uint64_t Dp4a(LaneCall& call) {
  const Type a_byte = IsSigned(call.op.types[0]) ? Type::kS8 : Type::kU8;
  const Type b_byte = IsSigned(call.op.types[1]) ? Type::kS8 : Type::kU8;
  uint64_t sum = call.in[2];
  for (int i = 0; i < 32; i += 8) {
    sum += Extend(call.in[0] >> i, a_byte) * Extend(call.in[1] >> i, b_byte);
  }
  return LowBits(sum, 32);
}

}  // namespace kvant::ptx
