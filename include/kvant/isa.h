// The instruction-set levels that kvant has kernels for, lowest first, and which one is in use.
#pragma once

#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

enum class Isa {
  kScalar = 0,
  kAvx2,     // AVX2 + FMA + F16C + BMI2
  kAvxVnni,  // AVX2 and 256-bit vpdpbusd (VEX-encoded AVX-VNNI)
  kAvx512,   // AVX-512 F BW VL DQ VNNI
  kNeon,     // aarch64: Advanced SIMD and the 8-bit dot product (FEAT_DotProd)
};
inline constexpr int kIsaCount = 5;

// "scalar", "avx2", "avxvnni", "avx512", "neon".
std::string_view IsaName(Isa isa);
Result<Isa> ParseIsa(std::string_view name);

// Whether this build holds kernels for the level and the CPU and operating system can run them.
bool IsaAvailable(Isa isa);

// Every available level, lowest first; the scalar one is always there.
std::vector<Isa> AvailableIsas();

// The level that kernels use: the highest available one, or the one that the environment variable
// KVANT_ISA names (a test switch, the only variable that the library reads, once, at first use).
// A KVANT_ISA that is misspelt or not available makes every Create/Load call fail with IsaStatus().
Isa ActiveIsa();
Status IsaStatus();

// Tests and benchmarks switch levels within one process. Not thread-safe against running kernels.
// Returns kUnsupported when the level is not available here.
Status SetActiveIsa(Isa isa);

}  // namespace kvant
