#include "ptx/request.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {

// A vector's elements are the equal parts of the value, lowest first.
void Move(Warp& warp, const Instruction& op, LaneMask lanes) {
  const Operand& to = op.operands[0];
  const Operand& from = op.operands[1];
  LaneValues whole{};
  if (from.kind == Operand::Kind::kVector) {
    const int bits = Bits(op.type()) / static_cast<int>(from.elements.size());
    for (size_t i = 0; i < from.elements.size(); ++i) {
      LaneValues part;
      if (!warp.Read(op, from.elements[i], lanes, &part)) return;
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        whole[lane] |= LowBits(part[lane], bits) << (static_cast<int>(i) * bits);
      }
    }
  } else if (!warp.Read(op, from, lanes, &whole)) {
    return;
  }
  if (to.kind != Operand::Kind::kVector) {
    warp.Write(to, lanes, whole);
    return;
  }
  const int bits = Bits(op.type()) / static_cast<int>(to.elements.size());
  for (size_t i = 0; i < to.elements.size(); ++i) {
    LaneValues part;
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      part[lane] = LowBits(whole[lane] >> (static_cast<int>(i) * bits), bits);
    }
    warp.Write(to.elements[i], lanes, part);
  }
}

// Between the addresses of a space and generic ones; those of global memory are the same.
void ConvertAddress(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues address;
  if (!warp.Read(op, op.operands[1], lanes, &address)) return;
  const uint64_t window = WindowOf(SpaceOf(op));
  ForEachLane(lanes, [&](int lane) {
    if (!op.Has(Names("to"))) {
      address[lane] |= window;
    } else if (window == 0) {
      return;
    } else if ((address[lane] & kWindowMask) != window) {
      warp.Fail(op, lane, "the address lies in another space");
    } else {
      address[lane] &= ~kWindowMask;
    }
  });
  warp.Write(op.operands[0], lanes, address);
}

void Branch(Warp& warp, const Instruction& op, LaneMask lanes) {
  warp.Jump(lanes, op.operands[0].value);
}

void Exit(Warp& warp, const Instruction&, LaneMask lanes) { warp.End(lanes); }

void Trap(Warp& warp, const Instruction& op, LaneMask lanes) {
  warp.Fail(op, std::countr_zero(lanes), "the kernel stops itself");
}

void Nothing(Warp&, const Instruction&, LaneMask) {}

}  // namespace kvant::ptx
