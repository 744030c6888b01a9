#include "cache/token_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float16.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr int kTileChannels = 64;

// The smallest magnitude, as bits, that the type does not hold: what rounds to an infinity.
uint32_t LimitBits(FloatType type) {
  switch (type) {
    case FloatType::kF32:
      return 0x7f800000u;
    case FloatType::kF16:
      return 0x477ff000u;  // 65520, halfway between 65504 and 65536
    case FloatType::kBf16:
      return 0x7f7f8000u;  // halfway between the largest and 2^128
  }
  return 0;
}

uint32_t MagnitudeBits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

void NarrowBf16(const float* from, int n, uint16_t* to) {
  for (int i = 0; i < n; ++i) to[i] = F32ToBf16(from[i]);
}

using NarrowFn = void (*)(const float* from, int n, uint16_t* to);

NarrowFn NarrowFor(FloatType type) {
  if (type == FloatType::kBf16) return NarrowBf16;
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
  if (ActiveIsa() >= Isa::kAvx2) return NarrowF16Avx2;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
  if (ActiveIsa() == Isa::kNeon) return NarrowF16Neon;
#endif
  return NarrowF16Scalar;
}

// One 64-token block. `block` points at its first byte, `row` is the first token's place in it.
// K lies [head_dim][block_tokens]: a tile of channels is narrowed row by row, then turned.
void WriteKBlock16(const SideLayout& s, uint16_t* block, int row, int tokens, const float* rows,
                   int64_t stride, NarrowFn narrow) {
  uint16_t tile[kPageTokens][kTileChannels];
  for (int first = 0; first < s.head_dim; first += kTileChannels) {
    const int channels = std::min(kTileChannels, s.head_dim - first);
    for (int t = 0; t < tokens; ++t) narrow(rows + t * stride + first, channels, tile[t]);
    for (int c = 0; c < channels; ++c) {
      uint16_t* to = block + (first + c) * s.block_tokens + row;
      for (int t = 0; t < tokens; ++t) to[t] = tile[t][c];
    }
  }
}

void WriteKBlock32(const SideLayout& s, float* block, int row, int tokens, const float* rows,
                   int64_t stride) {
  for (int c = 0; c < s.head_dim; ++c) {
    float* to = block + c * s.block_tokens + row;
    for (int t = 0; t < tokens; ++t) to[t] = rows[t * stride + c];
  }
}

void WriteVBlock16(const SideLayout& s, uint16_t* block, int row, int tokens, const float* rows,
                   int64_t stride, NarrowFn narrow) {
  for (int t = 0; t < tokens; ++t) {
    uint16_t* to = block + (row + t) * s.padded_dim;
    narrow(rows + t * stride, s.head_dim, to);
    std::fill(to + s.head_dim, to + s.padded_dim, uint16_t{0});
  }
}

void WriteVBlock32(const SideLayout& s, float* block, int row, int tokens, const float* rows,
                   int64_t stride) {
  for (int t = 0; t < tokens; ++t) {
    float* to = block + (row + t) * s.padded_dim;
    std::copy_n(rows + t * stride, s.head_dim, to);
    std::fill(to + s.head_dim, to + s.padded_dim, 0.0f);
  }
}

}  // namespace

std::optional<Unstorable> FindUnstorable(FloatType type, const float* rows, int64_t stride,
                                         int64_t tokens, int head_dim) {
  const uint32_t limit = LimitBits(type);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = rows + t * stride;
    uint32_t largest = 0;
    for (int c = 0; c < head_dim; ++c) largest = std::max(largest, MagnitudeBits(row[c]));
    if (largest < limit) continue;
    for (int c = 0; c < head_dim; ++c) {
      if (MagnitudeBits(row[c]) >= limit) return Unstorable{t, c, row[c]};
    }
  }
  return std::nullopt;
}

void WriteTokens(const SideLayout& s, std::byte* page_side, int first_token, int tokens,
                 const float* rows, int64_t stride) {
  const bool is_k = s.side == Side::kK, wide = s.format.float_type == FloatType::kF32;
  const NarrowFn narrow = NarrowFor(s.format.float_type);
  while (tokens > 0) {
    const int row = first_token % s.block_tokens;
    const int count = std::min(tokens, s.block_tokens - row);
    std::byte* block =
        page_side + static_cast<int64_t>(first_token / s.block_tokens) * s.block_bytes;
    if (wide) {
      auto* to = reinterpret_cast<float*>(block);
      is_k ? WriteKBlock32(s, to, row, count, rows, stride)
           : WriteVBlock32(s, to, row, count, rows, stride);
    } else {
      auto* to = reinterpret_cast<uint16_t*>(block);
      is_k ? WriteKBlock16(s, to, row, count, rows, stride, narrow)
           : WriteVBlock16(s, to, row, count, rows, stride, narrow);
    }
    first_token += count;
    tokens -= count;
    rows += count * stride;
  }
}

void NarrowF16Scalar(const float* from, int n, uint16_t* to) {
  for (int i = 0; i < n; ++i) to[i] = F32ToF16(from[i]);
}

}  // namespace kvant
