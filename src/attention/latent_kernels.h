// What one ISA level provides for multi-head latent attention (KvGeometry::latent_dim): the
// widening of float pages, and attention of up to four rows over one segment that has been decoded.
//
// All heads share a latent, so hundreds of rows read each token: a segment is decoded to f32 once
// for all of them, and what follows is plain arithmetic whatever the format. Its order is fixed:
// sixteen sums a dot product, channels ascending; weighted latents token by token. Every level
// gives the same bits.
#pragma once

#include "attention/kernels.h"
#include "kvant/isa.h"

namespace kvant {

// The decoded tokens of one segment. The row of a slot (as in SegmentRows) is what a query
// multiplies: [latent, RoPE key], both filled up with zeros to multiples of 16.
struct LatentTokens {
  float* values = nullptr;  // of slot 0; pages reach up to kLatentSpareTokens rows beyond both ends
  int latent = 0, rope_key = 0;  // channels, padded

  int stride() const { return latent + rope_key; }
  float* At(int slot) const { return values + int64_t{slot} * stride(); }
};

// A segment may begin and end inside the longest page, which is decoded as a whole.
inline constexpr int kLatentSpareTokens = 256 - kPageTokens;

// Decodes the tokens of the segment that are visible in it; the rest of its slots become zeros.
void DecodeLatents(const Segment& segment, const LatentTokens& to);

struct LatentKernels {
  // One float side of a page to f32, one row a token, rows `stride` floats apart; V with its
  // padding.
  void (*widen)(const SideLayout& side, const std::byte* from, float* to, int stride);
  // As AttentionKernels::segment, from what DecodeLatents left; weighted [tokens.latent].
  void (*segment)(const Segment& segment, const LatentTokens& tokens, SegmentRows& rows,
                  SegmentScratch& scratch);
};

const LatentKernels& LatentKernelsFor(Isa isa);

// One table a level, defined in latent_<level>.cc.
extern const LatentKernels kLatentScalar;
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
extern const LatentKernels kLatentAvx2;
extern const LatentKernels kLatentAvx512;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
extern const LatentKernels kLatentNeon;
#endif

}  // namespace kvant
