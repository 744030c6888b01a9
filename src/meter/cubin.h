// Cubin: what the compiled file of one target says of its kernels, beside their code. It is an ELF
// file of machine 190; what its .nv.info section holds is not documented, and was compared with
// what the compiler itself prints (ptxas -v).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "kvant/status.h"

namespace kvant {

struct KernelResources {
  int symbol = 0;            // its number in the table of symbols
  int registers = 0;         // a thread
  int64_t stack_bytes = 0;   // a thread
  int64_t shared_bytes = 0;  // a block, of static arrays
};

// By name, kernels and the functions they call. kCorrupt for bytes that are no cubin; nothing is
// read outside of them.
Result<std::map<std::string, KernelResources>> ReadCubin(std::span<const std::byte> bytes);

}  // namespace kvant
