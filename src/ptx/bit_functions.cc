#include <algorithm>
#include <bit>

#include "ptx/lane_functions.h"

namespace kvant::ptx {

uint64_t BitAnd(LaneCall& call) { return call.in[0] & call.in[1]; }
uint64_t BitOr(LaneCall& call) { return call.in[0] | call.in[1]; }
uint64_t BitXor(LaneCall& call) { return call.in[0] ^ call.in[1]; }
uint64_t BitNot(LaneCall& call) { return LowBits(~call.in[0], Bits(call.op.type())); }

// A shift by more than the width gives what a shift by the width would: zeros, or copies of the
// sign.
uint64_t ShiftLeft(LaneCall& call) {
  const int bits = Bits(call.op.type());
  const uint64_t amount = LowBits(call.in[1], 32);
  return amount >= static_cast<uint64_t>(bits) ? 0 : LowBits(call.in[0] << amount, bits);
}

uint64_t ShiftRight(LaneCall& call) {
  const Type type = call.op.type();
  const uint64_t amount = LowBits(call.in[1], 32);
  const uint64_t value = Extend(call.in[0], type);
  if (IsSigned(type)) {
    const auto shifted = static_cast<int64_t>(value) >> std::min<uint64_t>(amount, 63);
    return LowBits(static_cast<uint64_t>(shifted), Bits(type));
  }
  return amount >= static_cast<uint64_t>(Bits(type)) ? 0 : value >> amount;
}

// {b,a} shifted: .l gives the high word, .r the low one.
uint64_t FunnelShift(LaneCall& call) {
  const uint64_t both = call.in[1] << 32 | LowBits(call.in[0], 32);
  const uint64_t wanted = LowBits(call.in[2], 32);
  const uint64_t amount = call.op.Has(Names("wrap")) ? wanted & 31 : std::min<uint64_t>(wanted, 32);
  return LowBits(call.op.Has(Names("l")) ? both << amount >> 32 : both >> amount, 32);
}

// Bit (4a + 2b + c) of the table is the result's bit where a, b and c have theirs.
uint64_t Lop3(LaneCall& call) {
  uint64_t result = 0;
  for (int i = 0; i < 32; ++i) {
    const uint64_t row =
        (call.in[0] >> i & 1) << 2 | (call.in[1] >> i & 1) << 1 | (call.in[2] >> i & 1);
    result |= (call.in[3] >> row & 1) << i;
  }
  return result;
}

// Each nibble of the selector takes one of the 8 bytes of {b,a}; its top bit asks for the byte's
// sign instead, eight times.
uint64_t Prmt(LaneCall& call) {
  const uint64_t both = call.in[1] << 32 | LowBits(call.in[0], 32);
  uint64_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t selector = call.in[2] >> (4 * i) & 0xf;
    const uint64_t byte = both >> (8 * (selector & 7)) & 0xff;
    const uint64_t sign = (byte & 0x80) != 0 ? 0xff : 0;
    result |= ((selector & 8) != 0 ? sign : byte) << (8 * i);
  }
  return result;
}

// `length` bits from `start`; a signed type continues the field's last bit, or the value's own
// highest bit when the field reaches past it.
uint64_t BitFieldExtract(LaneCall& call) {
  const Type type = call.op.type();
  const int bits = Bits(type);
  const uint64_t start = call.in[1] & 0xff;
  const uint64_t length = call.in[2] & 0xff;
  const auto bit = [&](uint64_t i) { return call.in[0] >> i & 1; };
  const auto top = static_cast<uint64_t>(bits - 1);
  const bool continues = IsSigned(type) && length > 0;
  const uint64_t fill = continues ? bit(std::min(start + length - 1, top)) : 0;
  uint64_t result = 0;
  for (uint64_t i = 0; i <= top; ++i) {
    result |= (i < length && start + i <= top ? bit(start + i) : fill) << i;
  }
  return result;
}

// `length` bits of a, put into b at `start`.
uint64_t BitFieldInsert(LaneCall& call) {
  const uint64_t start = call.in[2] & 0xff;
  const uint64_t length = call.in[3] & 0xff;
  uint64_t result = call.in[1];
  const auto bits = static_cast<uint64_t>(Bits(call.op.type()));
  for (uint64_t i = 0; i < length && start + i < bits; ++i) {
    const uint64_t at = uint64_t{1} << (start + i);
    result = (call.in[0] >> i & 1) != 0 ? result | at : result & ~at;
  }
  return result;
}

// The position of the highest bit that differs from the sign (of signed types) or is set; all ones
// when there is none. .shiftamt counts from the top.
uint64_t FindLeadingBit(LaneCall& call) {
  const Type type = call.op.type();
  uint64_t value = Extend(call.in[0], type);
  if (IsSigned(type) && static_cast<int64_t>(value) < 0) value = LowBits(~value, Bits(type));
  if (value == 0) return 0xffffffffu;
  const int position = 63 - std::countl_zero(value);
  return static_cast<uint64_t>(call.op.Has(Names("shiftamt")) ? Bits(type) - 1 - position
                                                              : position);
}

uint64_t CountLeadingZeros(LaneCall& call) {
  const int bits = Bits(call.op.type());
  return static_cast<uint64_t>(std::countl_zero(LowBits(call.in[0], bits)) - (64 - bits));
}
uint64_t CountOnes(LaneCall& call) {
  return static_cast<uint64_t>(std::popcount(LowBits(call.in[0], Bits(call.op.type()))));
}

uint64_t ReverseBits(LaneCall& call) {
  const int bits = Bits(call.op.type());
  uint64_t result = 0;
  for (int i = 0; i < bits; ++i) result |= (call.in[0] >> i & 1) << (bits - 1 - i);
  return result;
}

uint64_t Select(LaneCall& call) { return call.in[2] != 0 ? call.in[0] : call.in[1]; }

}  // namespace kvant::ptx
