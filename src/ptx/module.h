// A parsed PTX text: its kernels, and the variables that they share.
//
// Read is what nvcc 13.0 writes for sm_80 and later: kernels (.entry) whose calls were inlined.
// Not read, and refused by line: device functions (.func), debugging sections, textures and
// surfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"
#include "ptx/instruction.h"

namespace kvant::ptx {

// Generic addresses of the spaces that are not global; the top bits tell them apart.
inline constexpr uint64_t kSharedWindow = uint64_t{0xffff01} << 40;
inline constexpr uint64_t kLocalWindow = uint64_t{0xffff02} << 40;
inline constexpr uint64_t kParamWindow = uint64_t{0xffff03} << 40;
inline constexpr uint64_t kConstWindow = uint64_t{0xffff04} << 40;
inline constexpr uint64_t kGlobalsWindow = uint64_t{0xffff05} << 40;  // the module's own variables
inline constexpr uint64_t kWindowMask = ~uint64_t{0} << 40;

// Where a space lies among generic addresses; 0 for global memory, whose own they are.
constexpr uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    case Space::kConst:
      return kConstWindow;
    case Space::kGlobal:
    case Space::kGeneric:
      break;
  }
  return 0;
}

struct Variable {
  std::string name;
  Space space = Space::kGeneric;
  uint64_t alignment = 1;
  uint64_t bytes = 0;
  uint64_t offset = 0;             // in its space; of .global variables: among themselves
  std::vector<std::byte> initial;  // [bytes], or empty when the text gives no values
};

struct Register {
  std::string name;
  Type type = Type::kB32;
};

// The room that variables of one space take, as they are declared.
struct SpaceLayout {
  uint64_t bytes = 0;

  uint64_t Place(uint64_t size, uint64_t alignment) {
    const uint64_t offset = (bytes + alignment - 1) / alignment * alignment;
    bytes = offset + size;
    return offset;
  }
};

struct Kernel {
  std::string name;
  std::vector<Variable> params;
  std::vector<Register> registers;
  std::vector<Instruction> code;
  uint64_t param_bytes = 0;
  uint64_t shared_bytes = 0;  // static
  uint64_t local_bytes = 0;   // a thread
  // Where the shared memory begins whose size the launch gives (extern __shared__).
  uint64_t dynamic_shared_offset() const { return (shared_bytes + 15) / 16 * 16; }

  uint64_t max_threads = 0;  // a block, as .maxntid or .reqntid say; 0 when they do not
};

struct PtxModule {
  // kCorrupt for a text that is not PTX, kUnsupported for PTX that this interpreter cannot run;
  // both name the line.
  static Result<PtxModule> Parse(std::string_view text);

  // kNotFound, naming those that exist.
  Result<const Kernel*> Find(std::string_view name) const;

  std::string target;  // sm_80
  std::vector<Kernel> kernels;
  std::vector<Variable> variables;  // .global and .const
  uint64_t global_bytes = 0;
  uint64_t const_bytes = 0;
};

}  // namespace kvant::ptx
