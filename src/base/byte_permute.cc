#include "base/byte_permute.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>

namespace kvant {
namespace {

bool Detect() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 1 & 1u) != 0;
#else
  return false;
#endif
}

std::atomic<bool>& State() {
  static std::atomic<bool> can{Detect()};
  return can;
}

}  // namespace

bool CanPermuteBytes() { return State().load(std::memory_order_relaxed); }
void SetCanPermuteBytes(bool can) { State() = can; }

}  // namespace kvant
