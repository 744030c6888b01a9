// What one ISA level provides: attention of up to four rows over one segment, and the two
// operations on partial states. Internal to the module; attention.cc plans, these execute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"
#include "base/byte_permute.h"
#include "codec/level_tables.h"
#include "kvant/isa.h"

// Accumulator tiles may have any shape without changing a bit. Sanitized builds take 1 x 1: the
// full set of tiles takes g++ 12 five minutes a file to instrument.
#ifdef KVANT_SMALL_TILES
#define KVANT_TILE(size) 1
#else
#define KVANT_TILE(size) size
#endif

// Accumulators live in registers only if everything around them is inlined; g++ 12 gives up on the
// larger tiles by itself (int3 ran at half speed).
#define KVANT_INLINE inline __attribute__((always_inline))
#define KVANT_INLINE_LAMBDA __attribute__((always_inline))

namespace kvant {

inline constexpr int kMaxRows = 4;
inline constexpr int kSegmentBlocks = kSegmentTokens / kPageTokens;
inline constexpr int kMaxPaddedDim = 1024;

// 64 tokens (fewer in a sink page) of a page.
struct BlockRef {
  const std::byte* page = nullptr;
  int block = 0;  // of the page
  int begin = 0;  // visible tokens of the block: [begin, end)
  int end = 0;
};

struct Segment {
  const PageLayout* layout = nullptr;
  BlockRef blocks[kSegmentBlocks];
  int num_blocks = 0;
  int64_t first_position = 0;     // absolute, of slot 0
  const KeyRope* rope = nullptr;  // K before RoPE only
  const Segment* next = nullptr;  // what the thread reads after this one; asked for meanwhile
};

// Rows read the segment together: each byte is loaded once for all of them.
struct SegmentRows {
  int rows = 0;
  const float* q[kMaxRows];  // [padded_dim], scaled to base-2 scores, padding 0
  int begin[kMaxRows] = {};  // row sees slots [begin, end); slot = 64 * block + token of the block
  int end[kMaxRows];
  float* scores[kMaxRows] = {};  // where the row's scores go, that of slot 0 first; null: nowhere
  PartialState out[kMaxRows];
};

// A slot is one rounded vector for every row: K per channel has one for every token group of a
// block, K per token one for every channel group, V per token one for every channel group and
// block.
inline constexpr int kMaxChannelGroups = kMaxPaddedDim / 16;
inline constexpr int kMaxTokenGroups = kSegmentTokens / 16;
inline constexpr int kMaxSlots = kSegmentBlocks * kMaxChannelGroups;
inline constexpr int kMaxFigures = 16 * kMaxSlots;
inline constexpr int kMaxTerms = 2;  // of a rounded vector
inline constexpr int kMaxRoundedBytes = kMaxTokenGroups * kMaxRows * kMaxTerms * kMaxPaddedDim;
static_assert(kMaxSlots >= kMaxTokenGroups);
static_assert(kMaxRoundedBytes >= kMaxSlots * kMaxRows * kMaxTerms * kPageTokens);

// One thread's working memory, 64-byte aligned, zero before first use. Figures of a row of a slot
// stand at 16 * slot + 4 * row.
struct alignas(64) SegmentScratch {
  float scores[kMaxRows][kSegmentTokens];  // scores, then probabilities
  float step[kMaxFigures];                 // value of one unit of a rounded vector's first term
  float constant[kMaxFigures];             // what the codes do not carry: offsets and the centre
  float mass[kMaxFigures];                 // sum of the vector before rounding
  float product[kMaxRows][kMaxPaddedDim];  // of one slot, scales folded in; or turned queries
  float sums[kMaxRows * kMaxTerms][kPageTokens];  // integer dots of one chunk of lanes
  float centred[kMaxPaddedDim];                   // value of the middle code of each group
  float scale[kMaxPaddedDim];
  int8_t rounded[kMaxRoundedBytes];         // [slot][row][term][length], see PackQuads
  float keys[kMaxPaddedDim * kPageTokens];  // K before RoPE: decoded, of one block
};

struct AttentionKernels {
  // Writes rows.out[r] = state of row r over the segment (empty where it sees no token).
  void (*segment)(const Segment& segment, SegmentRows& rows, SegmentScratch& scratch);
  // into = into merged with the later tokens of `from`.
  void (*merge)(PartialState& into, const PartialState& from, int padded_dim);
  // out[head_dim] = weighted / sum.
  void (*finish)(const PartialState& state, int head_dim, float* out);
  // scores[count] of tokens that a row sees become their probabilities. state: of the whole row.
  void (*weigh)(const PartialState& state, int64_t count, float* scores);
};

const AttentionKernels& AttentionKernelsFor(Isa isa);

// One table a level, defined in kernels_<level>.cc.
extern const AttentionKernels kAttentionScalar;
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvxVnni;
extern const AttentionKernels kAttentionAvx512;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
extern const AttentionKernels kAttentionNeon;
#endif

}  // namespace kvant
