#include "base/huge_pages.h"

#include "base/aligned_buffer.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace kvant {

void AdviseHugePages(std::byte* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const size_t address = reinterpret_cast<size_t>(data);
  const size_t begin = RoundUp(address, kHugePageBytes);
  const size_t end = (address + bytes) / kHugePageBytes * kHugePageBytes;
  if (begin >= end) return;
  std::byte* const first = data + (begin - address);
  madvise(first, end - begin, MADV_HUGEPAGE);
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // newer than the headers of Debian 12
#endif
  madvise(first, end - begin, kCollapse);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace kvant
