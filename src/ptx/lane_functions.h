// What one lane computes alone: the functions of the opcode table, by file.
#pragma once

#include "ptx/opcodes.h"

namespace kvant::ptx {

// integer_functions.cc
uint64_t MulLo(LaneCall& call);
uint64_t MulHi(LaneCall& call);
uint64_t MulWide(LaneCall& call);
uint64_t MadLo(LaneCall& call);
uint64_t MadHi(LaneCall& call);
uint64_t MadWide(LaneCall& call);
uint64_t IntDiv(LaneCall& call);
uint64_t IntRem(LaneCall& call);
uint64_t Sad(LaneCall& call);
uint64_t Dp4a(LaneCall& call);

// bit_functions.cc
uint64_t BitAnd(LaneCall& call);
uint64_t BitOr(LaneCall& call);
uint64_t BitXor(LaneCall& call);
uint64_t BitNot(LaneCall& call);
uint64_t ShiftLeft(LaneCall& call);
uint64_t ShiftRight(LaneCall& call);
uint64_t FunnelShift(LaneCall& call);
uint64_t Lop3(LaneCall& call);
uint64_t Prmt(LaneCall& call);
uint64_t BitFieldExtract(LaneCall& call);
uint64_t BitFieldInsert(LaneCall& call);
uint64_t FindLeadingBit(LaneCall& call);
uint64_t CountLeadingZeros(LaneCall& call);
uint64_t CountOnes(LaneCall& call);
uint64_t ReverseBits(LaneCall& call);
uint64_t Select(LaneCall& call);

// arithmetic_functions.cc: integers and floats
uint64_t Add(LaneCall& call);
uint64_t Sub(LaneCall& call);
uint64_t Min(LaneCall& call);
uint64_t Max(LaneCall& call);
uint64_t Neg(LaneCall& call);
uint64_t Abs(LaneCall& call);
uint64_t FloatMul(LaneCall& call);
uint64_t Fma(LaneCall& call);
uint64_t FloatDiv(LaneCall& call);
uint64_t Reciprocal(LaneCall& call);
uint64_t SquareRoot(LaneCall& call);
uint64_t ReciprocalRoot(LaneCall& call);
uint64_t Exp2(LaneCall& call);
uint64_t Log2(LaneCall& call);
uint64_t Tanh(LaneCall& call);

// convert_functions.cc
uint64_t Convert(LaneCall& call);      // one value
uint64_t ConvertPair(LaneCall& call);  // two values, or a packed pair, to a packed pair

// compare_functions.cc: the result holds the predicate; of SetPredicate the second one in bit 1
uint64_t SetPredicate(LaneCall& call);
uint64_t SetMask(LaneCall& call);

}  // namespace kvant::ptx
