// One warp instruction's access to memory: where each lane's bytes lie, whether it may touch them,
// and what it counts as.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ptx/warp.h"

namespace kvant::ptx {

Space SpaceOf(const Instruction& op);

class Request {
 public:
  // Each lane's address is that of `address`, in the space that the opcode names. A fault goes to
  // the warp, and the checks below are then false.
  Request(Warp& warp, const Instruction& op, const Operand& address, LaneMask lanes,
          uint64_t bytes);
  // The same in `space`, with a number of bytes for each lane; 0 touches nothing.
  Request(Warp& warp, const Instruction& op, const Operand& address, LaneMask lanes, Space space,
          const LaneValues& bytes);

  // Whether every lane may read, or write; counts the request when all may.
  bool CheckReads();
  bool CheckWrites();
  // The same for a lane that reads and writes without being interrupted.
  bool CheckAtomics();

  // REQUIRES: the check passed.
  void Read(int lane, std::byte* out) const;
  void Write(int lane, const std::byte* in) const;
  Warp::Place place(int lane) const { return places_[static_cast<size_t>(lane)]; }

 private:
  void Locate(const Operand& address);
  bool Check(std::optional<std::string> (Region::*check)(uint64_t, uint64_t) const);
  bool CheckRaces(bool is_write);
  void Count(TrafficMeter* (Region::*meter)());
  void CountShared();

  Warp& warp_;
  const Instruction& op_;
  LaneMask lanes_;
  Space space_;
  LaneValues bytes_;
  std::array<Warp::Place, kWarpLanes> places_;
  bool is_located_ = false;
};

}  // namespace kvant::ptx
