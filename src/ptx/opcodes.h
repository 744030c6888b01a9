// The opcodes that this interpreter runs: one table, opcodes.cc. What is not in it is an error.
#pragma once

#include <cstdint>
#include <string_view>

#include "kvant/status.h"
#include "ptx/instruction.h"

namespace kvant::ptx {

class Warp;

// Bit i: lane i of the warp.
using LaneMask = uint32_t;
inline constexpr int kWarpLanes = 32;
inline constexpr LaneMask kAllLanes = 0xffffffffu;

// One lane's computation: raw bits in, raw bits out. The result is cut to its register's width.
struct LaneCall {
  const Instruction& op;
  const uint64_t* in;           // the sources, in order
  const char* fault = nullptr;  // set when there is no result
};
using LaneFunction = uint64_t (*)(LaneCall&);

// What a warp does together; `lanes` are those that take part. Faults go to the warp.
using WarpFunction = void (*)(Warp&, const Instruction&, LaneMask lanes);

// Who must have arrived before an instruction runs.
enum class Meeting : uint8_t {
  kNone,
  kMaskedLanes,  // the lanes that the last operand names
  kWholeWarp,
  kBlock,
};

struct Opcode {
  std::string_view name;
  NameSet required;  // all of them
  NameSet one_of;    // exactly one, unless empty
  NameSet optional;
  uint32_t types;  // set of Type
  int type_count;
  // A letter an operand, '?' after it when it may be missing: d register to write, D also a vector,
  // p also a pair d|p, s value to read, S also a vector or a variable, a address, l label.
  std::string_view operands;
  LaneFunction lane = nullptr;
  WarpFunction warp = nullptr;  // when lane is null
  Meeting meeting = Meeting::kNone;
};

// Whether any row has this name, up to its first point. Others are not even worth parsing.
bool IsKnownOpcode(std::string_view name);

// Finds the row of instruction->name and checks modifiers, types and operands against it.
// kUnsupported, naming line and opcode, when no row allows them.
Status Decode(Instruction* instruction);

}  // namespace kvant::ptx
