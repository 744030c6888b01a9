#include "ptx/warp.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ptx/block.h"
#include "ptx/lexer.h"

namespace kvant::ptx {
namespace {

constexpr LaneMask Bit(int lane) { return LaneMask{1} << lane; }

std::string LaneText(LaneMask lanes) {
  const int first = std::countr_zero(lanes);
  const int count = std::popcount(lanes);
  if (count == 1) return "lane " + std::to_string(first);
  return std::to_string(count) + " lanes from " + std::to_string(first);
}

}  // namespace

Warp::Warp(Block* block, Launch* launch, uint64_t first_thread, int lane_count)
    : block_(*block),
      launch_(*launch),
      first_thread_(first_thread),
      exist_(kAllLanes >> (kWarpLanes - lane_count)),
      live_(exist_),
      registers_(launch->kernel.registers.size()),
      defined_(launch->kernel.registers.size()),
      local_bytes_(static_cast<size_t>(lane_count),
                   std::vector<std::byte>(launch->kernel.local_bytes)) {
  local_.reserve(local_bytes_.size());
  for (std::vector<std::byte>& bytes : local_bytes_) {
    local_.emplace_back("local memory", bytes, Region::Options{.is_undefined = true});
  }
}

void Warp::Step() {
  const LaneMask lanes = ChooseLanes();
  const size_t at = at_[std::countr_zero(lanes)];
  if (at >= launch_.kernel.code.size()) {
    launch_.fault = "kernel '" + launch_.kernel.name + "' runs past its end";
    return;
  }
  const Instruction& op = launch_.kernel.code[at];
  ++launch_.issued[at];
  ++launch_.issued_total;
  const LaneMask taken = ApplyGuard(op, lanes);
  Jump(op.opcode->meeting == Meeting::kNone ? lanes : lanes & ~taken, at + 1);
  if (launch_.failed() || taken == 0) return;
  if (op.opcode->meeting == Meeting::kNone) {
    Execute(op, taken);
    return;
  }
  waiting_ |= taken;
  if (op.opcode->meeting != Meeting::kBlock) Meet(at);
  if (!can_run() && !launch_.failed()) CheckStuck();
}

LaneMask Warp::ChooseLanes() {
  const LaneMask lanes = running();
  if (launch_.schedule.lanes_apart) {
    if (lane_apart_ < 0 || (lanes & Bit(lane_apart_)) == 0) {
      // From the top, since code tends to favour lane 0.
      lane_apart_ = 31 - std::countl_zero(lanes);
    }
    return Bit(lane_apart_);
  }
  size_t lowest = launch_.kernel.code.size();
  ForEachLane(lanes, [&](int lane) { lowest = std::min(lowest, at_[lane]); });
  LaneMask chosen = 0;
  ForEachLane(lanes, [&](int lane) { chosen |= at_[lane] == lowest ? Bit(lane) : 0; });
  return chosen;
}

LaneMask Warp::ApplyGuard(const Instruction& op, LaneMask lanes) {
  if (op.guard < 0) return lanes;
  Operand guard;
  guard.kind = Operand::Kind::kRegister;
  guard.reg = op.guard;
  guard.is_negated = op.guard_is_negated;
  LaneValues values;
  if (!Read(op, guard, lanes, &values)) return 0;
  LaneMask taken = 0;
  ForEachLane(lanes, [&](int lane) { taken |= values[lane] != 0 ? Bit(lane) : 0; });
  return taken;
}

void Warp::Execute(const Instruction& op, LaneMask lanes) {
  if (op.opcode->lane != nullptr) {
    ExecuteByLane(op, lanes);
  } else {
    op.opcode->warp(*this, op, lanes);
  }
}

void Warp::ExecuteByLane(const Instruction& op, LaneMask lanes) {
  constexpr size_t kMostSources = 4;
  std::array<LaneValues, kMostSources> sources{};
  const size_t count = op.operands.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    if (!Read(op, op.operands[i + 1], lanes, &sources[i])) return;
  }
  LaneValues result;
  ForEachLane(lanes, [&](int lane) {
    const uint64_t in[kMostSources] = {sources[0][lane], sources[1][lane], sources[2][lane],
                                       sources[3][lane]};
    LaneCall call{op, in};
    result[lane] = op.opcode->lane(call);
    if (call.fault != nullptr) Fail(op, lane, call.fault);
  });
  LaneValues second = result;
  for (uint64_t& value : second) value >>= 1;
  WritePair(op.operands[0], lanes, result, second);
}

void Warp::WritePair(const Operand& target, LaneMask lanes, const LaneValues& values,
                     const LaneValues& predicates) {
  if (target.kind != Operand::Kind::kPair) return Write(target, lanes, values);
  Write(target.elements[0], lanes, values);
  Write(target.elements[1], lanes, predicates);
}

// Runs the meeting at instruction `at` for each group of lanes that is complete.
void Warp::Meet(size_t at) {
  const Instruction& op = launch_.kernel.code[at];
  LaneMask here = 0;
  ForEachLane(live_ & waiting_, [&](int lane) { here |= at_[lane] == at ? Bit(lane) : 0; });
  LaneValues masks;
  masks.fill(kAllLanes);
  const bool has_mask = op.opcode->meeting == Meeting::kMaskedLanes;
  if (has_mask && !Read(op, op.operands.back(), here, &masks)) return;
  while (here != 0) {
    const int lane = std::countr_zero(here);
    const auto mask = static_cast<LaneMask>(masks[lane]);
    LaneMask group = 0;
    ForEachLane(here, [&](int other) {
      group |= static_cast<LaneMask>(masks[other]) == mask ? Bit(other) : 0;
    });
    if ((mask & group) != group)
      return Fail(op, lane, "the mask does not name a lane that runs it");
    if ((mask & ~live_) != 0) {
      return Fail(op, lane, "it waits for " + LaneText(mask & ~live_) + ", not running any more");
    }
    if ((mask & here) == mask && group != mask) {
      return Fail(op, lane, "the lanes disagree on the mask");
    }
    if (group == mask) {
      waiting_ &= ~group;
      Jump(group, at + 1);
      Execute(op, group);
      if (launch_.failed()) return;
    }
    here &= ~group;
  }
}

// No lane can run: all wait. Those at a barrier wait for the block, together; any other wait for
// lanes of this warp that will not come.
void Warp::CheckStuck() {
  const LaneMask waiting = live_ & waiting_;
  const int first = std::countr_zero(waiting);
  int apart = first;
  ForEachLane(waiting, [&](int lane) { apart = at_[lane] != at_[first] ? lane : apart; });
  const Instruction& op = InstructionAt(first);
  if (op.opcode->meeting == Meeting::kBlock && apart == first) return;
  const Instruction& other = InstructionAt(apart);
  Fail(op, first,
       "divergence: " + LaneText(waiting) + " wait, some of them at " + other.name + " of line " +
           std::to_string(other.line));
}

Warp::BarrierWait Warp::barrier_wait() {
  BarrierWait wait;
  wait.lanes = can_run() ? 0 : live_ & waiting_;
  if (wait.lanes == 0) return wait;
  const Instruction& op = InstructionAt(std::countr_zero(wait.lanes));
  wait.line = op.line;
  LaneValues values;
  const bool has_barrier = Read(op, op.operands[0], wait.lanes, &values);
  if (has_barrier) wait.barrier = values[std::countr_zero(wait.lanes)];
  if (op.operands.size() > 1 && Read(op, op.operands[1], wait.lanes, &values)) {
    wait.threads = values[std::countr_zero(wait.lanes)];
  }
  return wait;
}

void Warp::ReleaseBarrier() {
  ForEachLane(live_ & waiting_, [&](int lane) { ++at_[lane]; });
  waiting_ = 0;
}

bool Warp::Read(const Instruction& op, const Operand& operand, LaneMask lanes, LaneValues* values) {
  switch (operand.kind) {
    case Operand::Kind::kSpecial:
      ForEachLane(lanes, [&](int lane) { (*values)[lane] = SpecialValue(operand.special, lane); });
      return true;
    case Operand::Kind::kRegister:
      break;
    default:  // an immediate, or a variable's address
      values->fill(operand.value);
      return true;
  }
  const LaneMask undefined = lanes & ~defined_[static_cast<size_t>(operand.reg)];
  if (undefined != 0) {
    Fail(op, std::countr_zero(undefined),
         launch_.kernel.registers[static_cast<size_t>(operand.reg)].name +
             " is read before it is written");
    return false;
  }
  *values = registers_[static_cast<size_t>(operand.reg)];
  if (operand.is_negated) {
    for (uint64_t& value : *values) value ^= 1;
  }
  return true;
}

void Warp::Write(const Operand& operand, LaneMask lanes, const LaneValues& values) {
  if (operand.kind != Operand::Kind::kRegister) return;
  const auto reg = static_cast<size_t>(operand.reg);
  const int bits = Bits(launch_.kernel.registers[reg].type);
  ForEachLane(lanes, [&](int lane) { registers_[reg][lane] = LowBits(values[lane], bits); });
  defined_[reg] |= lanes;
}

void Warp::Fail(const Instruction& op, int lane, std::string_view what) {
  if (launch_.failed()) return;
  const Dim3 index = block_.index();
  launch_.fault =
      AtLine(op.line, op.name + ": " + std::string(what) + " (block " + std::to_string(index.x) +
                          "," + std::to_string(index.y) + "," + std::to_string(index.z) +
                          ", thread " + std::to_string(first_thread_ + lane) + ")");
}

Warp::Place Warp::Find(const Instruction& op, int lane, Space space, uint64_t address) {
  // Addresses in these spaces are of 32 bits, and wrap: nvcc adds offsets to negative bases.
  const uint64_t offset = LowBits(address, 32);
  switch (space) {
    case Space::kShared:
      return {&block_.shared(), offset};
    case Space::kLocal:
      return {&local_[static_cast<size_t>(lane)], offset};
    case Space::kParam:
      return {&launch_.params, offset};
    case Space::kConst:
      return {&launch_.constants, offset};
    case Space::kGlobal:
    case Space::kGeneric:
      break;
  }
  const uint64_t window = address & kWindowMask;
  if (window == kGlobalsWindow) return {&launch_.globals, offset};
  if (space == Space::kGeneric) {
    for (const Space other : {Space::kShared, Space::kLocal, Space::kParam, Space::kConst}) {
      if (window == WindowOf(other)) return Find(op, lane, other, address);
    }
  }
  Place place;
  place.region = launch_.memory.Find(address, &place.offset);
  if (place.region == nullptr) Fail(op, lane, "the address belongs to no allocation");
  return place;
}

bool Warp::CheckRace(const Instruction& op, int lane, const Place& place, uint64_t bytes,
                     bool is_write) {
  RaceCheck* races = block_.races();
  if (races == nullptr || place.region != &block_.shared()) return true;
  const auto warp = static_cast<int>(first_thread_ / kWarpLanes);
  const auto race =
      is_write ? races->Write(warp, place.offset, bytes) : races->Read(warp, place.offset, bytes);
  if (race) Fail(op, lane, *race);
  return !race;
}

uint64_t Warp::SpecialValue(Special special, int lane) const {
  const Dim3& block = launch_.block;
  const Dim3& grid = launch_.grid;
  const uint64_t thread = first_thread_ + static_cast<uint64_t>(lane);
  const uint64_t bit = uint64_t{1} << lane;
  switch (special) {
    case Special::kTidX:
      return thread % block.x;
    case Special::kTidY:
      return thread / block.x % block.y;
    case Special::kTidZ:
      return thread / block.x / block.y;
    case Special::kNtidX:
      return block.x;
    case Special::kNtidY:
      return block.y;
    case Special::kNtidZ:
      return block.z;
    case Special::kCtaidX:
      return block_.index().x;
    case Special::kCtaidY:
      return block_.index().y;
    case Special::kCtaidZ:
      return block_.index().z;
    case Special::kNctaidX:
      return grid.x;
    case Special::kNctaidY:
      return grid.y;
    case Special::kNctaidZ:
      return grid.z;
    case Special::kLaneId:
      return static_cast<uint64_t>(lane);
    case Special::kLanemaskEq:
      return bit;
    case Special::kLanemaskLe:
      return bit | (bit - 1);
    case Special::kLanemaskLt:
      return bit - 1;
    case Special::kLanemaskGe:
      return LowBits(~(bit - 1), 32);
    case Special::kLanemaskGt:
      return LowBits(~(bit | (bit - 1)), 32);
  }
  return 0;
}

}  // namespace kvant::ptx
