// Whether the CPU permutes 64 bytes at once (vpermb, AVX-512 VBMI): most CPUs of the avx512 level
// do, the first ones with VNNI do not.
#pragma once

namespace kvant {

bool CanPermuteBytes();

// Tests look at both ways in one process; only false may be asked for on any CPU. Not thread-safe
// against running kernels.
void SetCanPermuteBytes(bool can);

}  // namespace kvant
