#include "attention/latent_kernels.h"

#include <algorithm>
#include <cassert>

#include "codec/codec.h"

namespace kvant {
namespace {

void DecodePageSide(const SideLayout& side, const std::byte* from, float* to, int stride) {
  if (side.format.is_float()) {
    LatentKernelsFor(ActiveIsa()).widen(side, from, to, stride);
  } else {
    DecodeSide(side, from, to, stride);
  }
}

// Slots that nobody sees may hold anything, and zero times a NaN is one.
void ClearUnseen(const Segment& segment, const LatentTokens& to) {
  const int latent_dim = segment.layout->v.head_dim, rope_dim = segment.layout->k.head_dim;
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    for (int t = 0; t < kPageTokens; ++t) {
      float* const row = to.At(i * kPageTokens + t);
      if (t < ref.begin || t >= ref.end) {
        std::fill_n(row, to.stride(), 0.0f);
        continue;
      }
      std::fill(row + latent_dim, row + to.latent, 0.0f);
      std::fill(row + to.latent + rope_dim, row + to.stride(), 0.0f);
    }
  }
}

}  // namespace

void DecodeLatents(const Segment& segment, const LatentTokens& to) {
  const PageLayout& layout = *segment.layout;
  assert(layout.tokens - kPageTokens <= kLatentSpareTokens);
  const std::byte* page = nullptr;
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    if (ref.page == page) continue;
    page = ref.page;
    float* const first = to.At((i - ref.block) * kPageTokens);
    DecodePageSide(layout.v, page + layout.v_offset_bytes, first, to.stride());
    DecodePageSide(layout.k, page, first + to.latent, to.stride());
  }
  ClearUnseen(segment, to);
}

const LatentKernels& LatentKernelsFor(Isa isa) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
  switch (isa) {
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return kLatentAvx2;
    case Isa::kAvx512:
      return kLatentAvx512;
    case Isa::kScalar:
    case Isa::kNeon:
      break;
  }
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
  if (isa == Isa::kNeon) return kLatentNeon;
#endif
  (void)isa;
  return kLatentScalar;
}

}  // namespace kvant
