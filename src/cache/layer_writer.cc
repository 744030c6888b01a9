#include "cache/layer_writer.h"

#include <algorithm>
#include <cstring>

#include "codec/token_copy.h"

namespace kvant {
namespace {

// Zeroes what a float side holds behind its first tokens: nobody has written it.
void ZeroBehind(const SideLayout& s, int tokens, std::byte* side) {
  const int value_bytes = s.format.bits / 8;
  for (int block = 0; block < s.blocks(); ++block) {
    std::byte* const at = side + static_cast<int64_t>(block) * s.block_bytes;
    const int used = std::clamp(tokens - block * s.block_tokens, 0, s.block_tokens);
    const int rows = s.side == Side::kK ? s.head_dim : s.block_tokens;
    const int values = s.side == Side::kK ? s.block_tokens : s.padded_dim;
    for (int row = 0; row < rows; ++row) {
      const int keep = s.side == Side::kK ? used : row < used ? values : 0;
      std::memset(at + (static_cast<int64_t>(row) * values + keep) * value_bytes, 0,
                  static_cast<size_t>(values - keep) * static_cast<size_t>(value_bytes));
    }
  }
}

}  // namespace

Status LayerWriter::Open(const PageLayout& layout, const std::byte* page, int64_t tokens) {
  if (tokens >= layout.tokens) return Stored(layout, page);
  std::memcpy(spare_, page, static_cast<size_t>(layout.page_bytes));
  ZeroBehind(layout.k, static_cast<int>(tokens), spare_);
  ZeroBehind(layout.v, static_cast<int>(tokens), spare_ + layout.v_offset_bytes);
  return Stored(layout, spare_);
}

Status LayerWriter::Pooled(const PageLayout& layout, const std::byte* page, int64_t tokens) {
  if (tokens >= layout.tokens) return Stored(layout, page);
  std::memcpy(spare_, page, static_cast<size_t>(layout.page_bytes));
  for (int t = static_cast<int>(tokens); t < layout.tokens; ++t) {
    CopyToken(layout, zeros_, 0, spare_, t);
  }
  return Stored(layout, spare_);
}

Status LayerWriter::Finish() {
  const uint64_t hash = hash_.Hash();
  return sink_(std::as_bytes(std::span(&hash, 1)));
}

Status LayerWriter::Emit(std::span<const std::byte> bytes) {
  hash_.Add(bytes);
  return sink_(bytes);
}

}  // namespace kvant
