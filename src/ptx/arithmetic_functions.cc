// Arithmetic of integers and floats. f32 is the host's, never contracted: an add that follows a mul
// stays two roundings here, though ptxas may fuse them (nvcc -fmad=false, or the .rn forms, forbid
// it). The .approx functions are the host's too, so a device differs in the last bits: ex2 by up to
// 2 ulp, as the PTX manual allows. NaN results are the canonical ones.
#include <algorithm>
#include <cmath>

#include "ptx/float_values.h"
#include "ptx/lane_functions.h"

namespace kvant::ptx {
namespace {

// f(a, b) in the instruction's type. A half's sum or product goes through float, whose 24 bits are
// the 2 * 11 + 2 from which rounding twice equals rounding once; bfloat16 needs 2 * 8 + 2.
template <typename OnIntegers, typename OnReals>
uint64_t Binary(const LaneCall& call, const OnIntegers& on_integers, const OnReals& on_reals) {
  const Type type = call.op.type();
  const uint64_t a = call.in[0];
  const uint64_t b = call.in[1];
  const auto f16 = [&](uint16_t x, uint16_t y) {
    return F16Result(on_reals(F16ToF32(x), F16ToF32(y)));
  };
  const auto bf16 = [&](uint16_t x, uint16_t y) {
    return Bf16Result(on_reals(Bf16ToF32(x), Bf16ToF32(y)));
  };
  switch (type) {
    case Type::kF32:
      return F32Result(call.op, on_reals(F32Source(call.op, a), F32Source(call.op, b)));
    case Type::kF64:
      return F64Result(on_reals(BitsToF64(a), BitsToF64(b)));
    case Type::kF16:
      return f16(LowHalf(a), LowHalf(b));
    case Type::kF16x2:
      return PackHalves(f16(LowHalf(a), LowHalf(b)), f16(HighHalf(a), HighHalf(b)));
    case Type::kBf16:
      return bf16(LowHalf(a), LowHalf(b));
    case Type::kBf16x2:
      return PackHalves(bf16(LowHalf(a), LowHalf(b)), bf16(HighHalf(a), HighHalf(b)));
    default:
      return LowBits(on_integers(Extend(a, type), Extend(b, type)), Bits(type));
  }
}

// f(a) of a float; the half types drop or flip a sign only, so no rounding is asked for.
template <typename OnReal>
uint64_t Unary(const LaneCall& call, const OnReal& on_real) {
  const uint64_t twice[] = {call.in[0], call.in[0]};
  return Binary(
      LaneCall{call.op, twice}, [](uint64_t a, uint64_t) { return a; },
      [&](auto a, auto) { return on_real(a); });
}

// Of two floats the one that `first_wins` picks; a NaN only where both are (or, with .NaN, one is);
// -0 is less than +0.
template <typename T, typename Wins>
T Extreme(bool keeps_nan, T a, T b, bool prefers_negative_zero, const Wins& first_wins) {
  if (std::isnan(a) || std::isnan(b)) return keeps_nan ? a + b : std::isnan(a) ? b : a;
  if (a == 0 && b == 0) return std::signbit(a) == prefers_negative_zero ? a : b;
  return first_wins(a, b) ? a : b;
}

// first_wins: `<` for the smaller one, `>` for the larger one.
template <typename Wins>
uint64_t MinOrMax(LaneCall& call, bool is_min, const Wins& first_wins) {
  const bool is_signed = IsSigned(call.op.type()), keeps_nan = call.op.Has(Names("NaN"));
  return Binary(
      call,
      [&](uint64_t a, uint64_t b) {
        const bool first = is_signed ? first_wins(static_cast<int64_t>(a), static_cast<int64_t>(b))
                                     : first_wins(a, b);
        return first ? a : b;
      },
      [&](auto a, auto b) { return Extreme(keeps_nan, a, b, is_min, first_wins); });
}

float F32Only(const LaneCall& call, float (*function)(float)) {
  return function(F32Source(call.op, call.in[0]));
}

}  // namespace

uint64_t Add(LaneCall& call) {
  return Binary(
      call, [](uint64_t a, uint64_t b) { return a + b; }, [](auto a, auto b) { return a + b; });
}

uint64_t Sub(LaneCall& call) {
  return Binary(
      call, [](uint64_t a, uint64_t b) { return a - b; }, [](auto a, auto b) { return a - b; });
}

uint64_t FloatMul(LaneCall& call) {
  return Binary(
      call, [](uint64_t a, uint64_t b) { return a * b; }, [](auto a, auto b) { return a * b; });
}

uint64_t Min(LaneCall& call) {
  return MinOrMax(call, true, [](auto a, auto b) { return a < b; });
}

uint64_t Max(LaneCall& call) {
  return MinOrMax(call, false, [](auto a, auto b) { return a > b; });
}

uint64_t Neg(LaneCall& call) {
  if (!IsFloat(call.op.type())) {
    return LowBits(0 - call.in[0], Bits(call.op.type()));
  }
  return Unary(call, [](auto a) { return -a; });
}

uint64_t Abs(LaneCall& call) {
  if (!IsFloat(call.op.type())) {
    const auto value = static_cast<int64_t>(Extend(call.in[0], call.op.type()));
    return LowBits(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value),
                   Bits(call.op.type()));
  }
  return Unary(call, [](auto a) { return std::fabs(a); });
}

uint64_t Fma(LaneCall& call) {
  const uint64_t a = call.in[0];
  const uint64_t b = call.in[1];
  const uint64_t c = call.in[2];
  switch (call.op.type()) {
    case Type::kF16:
      return FmaF16(LowHalf(a), LowHalf(b), LowHalf(c));
    case Type::kF16x2:
      return PackHalves(FmaF16(LowHalf(a), LowHalf(b), LowHalf(c)),
                        FmaF16(HighHalf(a), HighHalf(b), HighHalf(c)));
    case Type::kF64:
      return F64Result(std::fma(BitsToF64(a), BitsToF64(b), BitsToF64(c)));
    default:
      return F32Result(
          call.op, std::fma(F32Source(call.op, a), F32Source(call.op, b), F32Source(call.op, c)));
  }
}

uint64_t FloatDiv(LaneCall& call) {
  return Binary(
      call, [](uint64_t a, uint64_t) { return a; }, [](auto a, auto b) { return a / b; });
}

uint64_t Reciprocal(LaneCall& call) {
  return F32Result(call.op, F32Only(call, [](float a) { return 1.0f / a; }));
}
uint64_t SquareRoot(LaneCall& call) {
  return F32Result(call.op, F32Only(call, [](float a) { return std::sqrt(a); }));
}
uint64_t ReciprocalRoot(LaneCall& call) {
  return F32Result(call.op, F32Only(call, [](float a) { return 1.0f / std::sqrt(a); }));
}
uint64_t Log2(LaneCall& call) {
  return F32Result(call.op, F32Only(call, [](float a) { return std::log2(a); }));
}
uint64_t Tanh(LaneCall& call) {
  return F32Result(call.op, F32Only(call, [](float a) { return std::tanh(a); }));
}

uint64_t Exp2(LaneCall& call) {
  const auto half = [](uint16_t h) { return F16Result(std::exp2(F16ToF32(h))); };
  switch (call.op.type()) {
    case Type::kF16:
      return half(LowHalf(call.in[0]));
    case Type::kF16x2:
      return PackHalves(half(LowHalf(call.in[0])), half(HighHalf(call.in[0])));
    default:
      return F32Result(call.op, F32Only(call, [](float a) { return std::exp2(a); }));
  }
}

}  // namespace kvant::ptx
