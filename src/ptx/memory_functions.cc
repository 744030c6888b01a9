#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "ptx/float_values.h"
#include "ptx/request.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {
namespace {

constexpr size_t kMostElements = 8;

// .v2 must come with two registers.
bool CheckVector(Warp& warp, const Instruction& op, LaneMask lanes, size_t count) {
  const size_t wanted = op.Has(Names("v2"))   ? 2
                        : op.Has(Names("v4")) ? 4
                        : op.Has(Names("v8")) ? 8
                                              : 1;
  if (count == wanted) return true;
  warp.Fail(op, std::countr_zero(lanes), "the vector has another number of elements");
  return false;
}

uint64_t Compute(const Instruction& op, uint64_t old, uint64_t operand) {
  const Type type = op.type();
  const auto halves = [&](uint16_t a, uint16_t b) { return F16Result(F16ToF32(a) + F16ToF32(b)); };
  if (op.Has(Names("exch"))) return operand;
  if (op.Has(Names("and"))) return old & operand;
  if (op.Has(Names("or"))) return old | operand;
  if (op.Has(Names("xor"))) return old ^ operand;
  if (op.Has(Names("inc"))) return old >= operand ? 0 : old + 1;
  if (op.Has(Names("dec"))) return old == 0 || old > operand ? operand : old - 1;
  if (op.Has(Names("add"))) {
    if (type == Type::kF32) return F32Result(op, BitsToF32(old) + BitsToF32(operand));
    if (type == Type::kF16) return halves(LowHalf(old), LowHalf(operand));
    if (type == Type::kF16x2) {
      return PackHalves(halves(LowHalf(old), LowHalf(operand)),
                        halves(HighHalf(old), HighHalf(operand)));
    }
    return old + operand;
  }
  const auto a = static_cast<int64_t>(Extend(old, type));
  const auto b = static_cast<int64_t>(Extend(operand, type));
  const bool less = IsSigned(type) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
  return less == op.Has(Names("min")) ? old : operand;
}

// What a float's min and max would mean differs by device, and f32 arithmetic on bits is none.
bool IsAtomicKnown(const Instruction& op) {
  return !IsFloat(op.type()) || op.Has(Names("add exch"));
}

}  // namespace

void Load(Warp& warp, const Instruction& op, LaneMask lanes) {
  const Operand& target = op.operands[0];
  const size_t count = target.element_count();
  const auto element_bytes = static_cast<uint64_t>(Bytes(op.type()));
  if (!CheckVector(warp, op, lanes, count)) return;
  Request request(warp, op, op.operands[1], lanes, count * element_bytes);
  if (!request.CheckReads()) return;
  std::array<LaneValues, kMostElements> values;
  ForEachLane(lanes, [&](int lane) {
    std::byte bytes[kMostElements * 8];
    request.Read(lane, bytes);
    for (size_t i = 0; i < count; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, bytes + i * element_bytes, element_bytes);
      values[i][lane] = Extend(value, op.type());
    }
  });
  for (size_t i = 0; i < count; ++i) warp.Write(target.element(i), lanes, values[i]);
}

void Store(Warp& warp, const Instruction& op, LaneMask lanes) {
  const Operand& source = op.operands[1];
  const size_t count = source.element_count();
  const auto element_bytes = static_cast<uint64_t>(Bytes(op.type()));
  if (!CheckVector(warp, op, lanes, count)) return;
  std::array<LaneValues, kMostElements> values;
  for (size_t i = 0; i < count; ++i) {
    if (!warp.Read(op, source.element(i), lanes, &values[i])) return;
  }
  Request request(warp, op, op.operands[0], lanes, count * element_bytes);
  if (!request.CheckWrites()) return;
  ForEachLane(lanes, [&](int lane) {
    std::byte bytes[kMostElements * 8];
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(bytes + i * element_bytes, &values[i][lane], element_bytes);
    }
    request.Write(lane, bytes);
  });
}

// Lanes take their turns in order.
void Atomic(Warp& warp, const Instruction& op, LaneMask lanes) {
  const bool gives_old = op.opcode->name == "atom";
  const size_t first = gives_old ? 1 : 0;
  const bool is_cas = op.Has(Names("cas"));
  const auto bytes = static_cast<uint64_t>(Bytes(op.type()));
  if (!IsAtomicKnown(op)) {
    return warp.Fail(op, std::countr_zero(lanes), "this atomic is not supported for floats");
  }
  LaneValues operand, replacement{};
  if (!warp.Read(op, op.operands[first + 1], lanes, &operand)) return;
  if (is_cas && !warp.Read(op, op.operands[first + 2], lanes, &replacement)) return;
  Request request(warp, op, op.operands[first], lanes, bytes);
  if (!request.CheckAtomics()) return;
  LaneValues old{};
  ForEachLane(lanes, [&](int lane) {
    request.Read(lane, reinterpret_cast<std::byte*>(&old[lane]));
    uint64_t next =
        is_cas
            ? (old[lane] == LowBits(operand[lane], Bits(op.type())) ? replacement[lane] : old[lane])
            : Compute(op, old[lane], LowBits(operand[lane], Bits(op.type())));
    request.Write(lane, reinterpret_cast<const std::byte*>(&next));
  });
  if (gives_old) warp.Write(op.operands[0], lanes, old);
}

}  // namespace kvant::ptx
