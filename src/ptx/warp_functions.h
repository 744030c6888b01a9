// What a warp does together, or with memory: the functions of the opcode table, by file. `lanes`
// are the lanes that take part.
#pragma once

#include "ptx/opcodes.h"

namespace kvant::ptx {

// move_functions.cc
void Move(Warp& warp, const Instruction& op, LaneMask lanes);  // also packs and unpacks vectors
void ConvertAddress(Warp& warp, const Instruction& op, LaneMask lanes);
void Branch(Warp& warp, const Instruction& op, LaneMask lanes);
void Exit(Warp& warp, const Instruction& op, LaneMask lanes);
void Trap(Warp& warp, const Instruction& op, LaneMask lanes);
void Nothing(Warp& warp, const Instruction& op, LaneMask lanes);

// memory_functions.cc
void Load(Warp& warp, const Instruction& op, LaneMask lanes);
void Store(Warp& warp, const Instruction& op, LaneMask lanes);
void Atomic(Warp& warp, const Instruction& op, LaneMask lanes);  // atom and red

// copy_functions.cc
void CopyAsync(Warp& warp, const Instruction& op, LaneMask lanes);
void CommitCopies(Warp& warp, const Instruction& op, LaneMask lanes);
void WaitForCopies(Warp& warp, const Instruction& op, LaneMask lanes);

// collective_functions.cc
void Shuffle(Warp& warp, const Instruction& op, LaneMask lanes);
void Vote(Warp& warp, const Instruction& op, LaneMask lanes);
void Match(Warp& warp, const Instruction& op, LaneMask lanes);
void Reduce(Warp& warp, const Instruction& op, LaneMask lanes);
void ActiveMask(Warp& warp, const Instruction& op, LaneMask lanes);

// matrix_functions.cc
void MultiplyMatrices(Warp& warp, const Instruction& op, LaneMask lanes);
void LoadMatrices(Warp& warp, const Instruction& op, LaneMask lanes);
void TransposeMatrix(Warp& warp, const Instruction& op, LaneMask lanes);

}  // namespace kvant::ptx
