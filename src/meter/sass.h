// SASS: a GPU's machine code as a disassembler lists it, read from the JSON of `nvdisasm -json`
// (CUDA Binary Utilities, appendix "JSON Format").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

inline constexpr int64_t kInstructionBytes = 16;  // of every target since Volta

struct SassInstruction {
  std::string predicate;  // "@!P0", or empty
  std::string opcode;     // "LDG.E.128"
  std::string operands;   // "R4,[R2.64]"

  // The opcode up to its first point: "LDG".
  std::string_view Base() const { return std::string_view(opcode).substr(0, opcode.find('.')); }
  // Whether `modifier` is one of the words behind the base: "128" of "LDG.E.128".
  bool Has(std::string_view modifier) const;
};

// One function. Instruction i lies at start_bytes + i * kInstructionBytes of its section, and that
// is how branches name it.
struct SassFunction {
  std::string name;
  int64_t start_bytes = 0;
  std::vector<SassInstruction> instructions;

  int64_t OffsetOf(int64_t index) const { return start_bytes + index * kInstructionBytes; }
  // The compiler's own helpers are listed beside or inside the kernels, by version of the tool.
  bool is_helper() const { return name.starts_with('$'); }
};

struct SassListing {
  int target = 0;  // 80 of sm_80
  std::vector<SassFunction> functions;
};

// kCorrupt for what is no such listing. Members that are not known are passed over: the schema
// grows with each release. A function's "length" is not read, since releases disagree on whether it
// counts the helpers behind a kernel.
Result<SassListing> ParseSass(std::string_view json);

}  // namespace kvant
