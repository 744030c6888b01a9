// One parsed instruction: its row of the opcode table, modifiers, types and operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/modifiers.h"
#include "ptx/types.h"

namespace kvant::ptx {

struct Opcode;

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
};

struct Operand {
  enum class Kind : uint8_t {
    kRegister,   // reg
    kImmediate,  // value
    kSpecial,    // special
    kSymbol,     // the address `value` of a variable in `space`
    kAddress,    // [reg + value], or [value] when reg < 0: a variable's address, or a plain number
    kLabel,      // value: the index of an instruction
    kVector,     // elements
    kPair,       // elements: d|p
    kSink,       // _
  };
  Kind kind = Kind::kImmediate;
  bool is_negated = false;  // !p
  Space space = Space::kGeneric;
  Special special = Special::kTidX;
  int reg = -1;
  uint64_t value = 0;
  std::vector<Operand> elements;

  // Of a vector, or of the operand as a vector of one.
  size_t element_count() const { return kind == Kind::kVector ? elements.size() : 1; }
  const Operand& element(size_t i) const { return kind == Kind::kVector ? elements[i] : *this; }
};

struct Instruction {
  const Opcode* opcode = nullptr;
  NameSet modifiers;
  std::vector<Type> types;  // in the order written
  std::vector<Operand> operands;
  int guard = -1;  // predicate register, or none
  bool guard_is_negated = false;
  int line = 0;
  std::string name;  // the whole opcode as written

  bool Has(NameSet names) const { return !(modifiers & names).empty(); }
  Type type() const { return types[0]; }
};

}  // namespace kvant::ptx
