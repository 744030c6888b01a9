// 32 threads and their registers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/launch.h"
#include "ptx/opcodes.h"

namespace kvant::ptx {

class Block;

// A value a lane, raw bits.
using LaneValues = std::array<uint64_t, kWarpLanes>;

// Calls function(lane) for each lane of the mask, lowest first.
template <typename Function>
void ForEachLane(LaneMask lanes, const Function& function) {
  for (; lanes != 0; lanes &= lanes - 1) function(std::countr_zero(lanes));
}

class Warp {
 public:
  // Lanes [0, lane_count) exist. `block` and `launch` must outlive the warp.
  Warp(Block* block, Launch* launch, uint64_t first_thread, int lane_count);

  // Issues one instruction to the lanes that can go furthest together: those at the lowest
  // instruction (or to one lane, where lanes run apart). REQUIRES: can_run().
  void Step();

  bool can_run() const { return (live_ & ~waiting_) != 0; }
  LaneMask live() const { return live_; }
  // The lanes that wait at a barrier of the block; their instruction, barrier and number of
  // threads.
  struct BarrierWait {
    LaneMask lanes = 0;
    int line = 0;
    uint64_t barrier = 0;
    uint64_t threads = 0;  // 0: the whole block
  };
  BarrierWait barrier_wait();
  void ReleaseBarrier();

  // What follows is for the functions of the opcode table.

  // False, after a fault, when a lane reads what was never written.
  bool Read(const Instruction& op, const Operand& operand, LaneMask lanes, LaneValues* values);
  // Cuts each value to the register's width; a sink takes nothing.
  void Write(const Operand& operand, LaneMask lanes, const LaneValues& values);
  // To d|p, or to d alone where the target is no pair.
  void WritePair(const Operand& target, LaneMask lanes, const LaneValues& values,
                 const LaneValues& predicates);

  void Jump(LaneMask lanes, size_t to) {
    ForEachLane(lanes, [&](int lane) { at_[lane] = to; });
  }
  void End(LaneMask lanes) { live_ &= ~lanes; }
  // The first fault ends the launch.
  void Fail(const Instruction& op, int lane, std::string_view what);

  // Where an address of `space` lies for a lane; region is null, after a fault, for nowhere.
  struct Place {
    Region* region = nullptr;
    uint64_t offset = 0;
  };
  Place Find(const Instruction& op, int lane, Space space, uint64_t address);

  // Notes the access where races are looked for, in shared memory; a race is a fault.
  bool CheckRace(const Instruction& op, int lane, const Place& place, uint64_t bytes,
                 bool is_write);

  // Counts a load from shared memory.
  void CountShared(const std::vector<ByteRange>& ranges) {
    ++launch_.shared_loads.requests;
    launch_.shared_loads.turns += TurnsOf(ranges);
  }

  // One asynchronous copy of a lane, from global to shared memory.
  struct Copy {
    Place to;
    Place from;
    uint64_t bytes = 0;       // written to `to`
    uint64_t from_bytes = 0;  // read from `from`; zeros fill the rest
  };
  struct LaneCopies {
    std::vector<Copy> open;                // not committed
    std::deque<std::vector<Copy>> groups;  // committed, oldest first
  };
  LaneCopies& copies(int lane) { return copies_[static_cast<size_t>(lane)]; }
  LaneMask running() const { return live_ & ~waiting_; }

 private:
  const Instruction& InstructionAt(int lane) const { return launch_.kernel.code[at_[lane]]; }
  LaneMask ChooseLanes();
  LaneMask ApplyGuard(const Instruction& op, LaneMask lanes);
  void Execute(const Instruction& op, LaneMask lanes);
  void ExecuteByLane(const Instruction& op, LaneMask lanes);
  void Meet(size_t at);
  void CheckStuck();
  uint64_t SpecialValue(Special special, int lane) const;

  Block& block_;
  Launch& launch_;
  uint64_t first_thread_;
  LaneMask exist_;
  LaneMask live_;
  LaneMask waiting_ = 0;
  int lane_apart_ = -1;  // whose turn it is, where lanes run apart
  std::array<size_t, kWarpLanes> at_{};
  std::vector<LaneValues> registers_;
  std::vector<LaneMask> defined_;                    // a register
  std::vector<std::vector<std::byte>> local_bytes_;  // a lane
  std::vector<Region> local_;                        // a lane
  std::array<LaneCopies, kWarpLanes> copies_;
};

}  // namespace kvant::ptx
