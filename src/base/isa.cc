#include "kvant/isa.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace kvant {
namespace {

constexpr std::string_view kNames[kIsaCount] = {"scalar", "avx2", "avxvnni", "avx512", "neon"};

#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid Query(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// XCR0: which register files the operating system saves. Read with xgetbv directly, because the
// intrinsic needs -mxsave on the whole file.
unsigned EnabledRegisterFiles() {
  unsigned eax, edx;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

constexpr bool Bit(unsigned word, int bit) { return (word >> bit) & 1u; }

bool Detect(Isa isa) {
  if (isa == Isa::kScalar) return true;
  const Cpuid leaf1 = Query(1, 0), leaf7 = Query(7, 0), leaf7_1 = Query(7, 1);
  const bool osxsave = Bit(leaf1.ecx, 27);
  if (!osxsave) return false;
  const unsigned files = EnabledRegisterFiles();
  const bool ymm = (files & 0x6u) == 0x6u, zmm = (files & 0xe6u) == 0xe6u;
  const bool avx2 = ymm && Bit(leaf1.ecx, 28) && Bit(leaf1.ecx, 12) /* FMA */ &&
                    Bit(leaf1.ecx, 29) /* F16C */ && Bit(leaf7.ebx, 5) && Bit(leaf7.ebx, 8);
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvxVnni:
      return avx2 && Bit(leaf7_1.eax, 4);
    case Isa::kAvx512:
      return avx2 && zmm && Bit(leaf7.ebx, 16) /* F */ && Bit(leaf7.ebx, 17) /* DQ */ &&
             Bit(leaf7.ebx, 30) /* BW */ && Bit(leaf7.ebx, 31) /* VL */ &&
             Bit(leaf7.ecx, 11) /* VNNI */;
    case Isa::kNeon:
      return false;
  }
  return false;
}
#elif defined(__aarch64__) && defined(__linux__) && !defined(KVANT_SCALAR_ONLY)
bool Detect(Isa isa) {
  constexpr unsigned long kNeeded = HWCAP_ASIMD | HWCAP_ASIMDDP;
  return isa == Isa::kScalar || (isa == Isa::kNeon && (getauxval(AT_HWCAP) & kNeeded) == kNeeded);
}
#else
bool Detect(Isa isa) { return isa == Isa::kScalar; }
#endif

struct Selection {
  bool available[kIsaCount];
  Status status;
  std::atomic<int> active{0};

  Selection() {
    for (int i = 0; i < kIsaCount; ++i) available[i] = Detect(static_cast<Isa>(i));
    for (int i = 0; i < kIsaCount; ++i) {
      if (available[i]) active = i;
    }
    const char* forced = std::getenv("KVANT_ISA");
    if (forced == nullptr || *forced == '\0') return;
    const Result<Isa> isa = ParseIsa(forced);
    if (!isa.ok()) {
      status = Status::InvalidArgument("KVANT_ISA: " + isa.status().message());
    } else if (!available[static_cast<int>(*isa)]) {
      status = Status::Unsupported("KVANT_ISA=" + std::string(forced) +
                                   ": this build or CPU has no such level");
    } else {
      active = static_cast<int>(*isa);
    }
  }
};

Selection& TheSelection() {
  static Selection selection;
  return selection;
}

}  // namespace

std::string_view IsaName(Isa isa) { return kNames[static_cast<int>(isa)]; }

Result<Isa> ParseIsa(std::string_view name) {
  for (int i = 0; i < kIsaCount; ++i) {
    if (name == kNames[i]) return static_cast<Isa>(i);
  }
  return Status::InvalidArgument("unknown ISA level '" + std::string(name) +
                                 "'; known: scalar avx2 avxvnni avx512 neon");
}

bool IsaAvailable(Isa isa) { return TheSelection().available[static_cast<int>(isa)]; }

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas;
  for (int i = 0; i < kIsaCount; ++i) {
    if (IsaAvailable(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

Isa ActiveIsa() { return static_cast<Isa>(TheSelection().active.load(std::memory_order_relaxed)); }

Status IsaStatus() { return TheSelection().status; }

Status SetActiveIsa(Isa isa) {
  if (!IsaAvailable(isa)) {
    return Status::Unsupported("ISA level '" + std::string(IsaName(isa)) +
                               "' is not available on this build and CPU");
  }
  TheSelection().active = static_cast<int>(isa);
  return Status::Ok();
}

}  // namespace kvant
