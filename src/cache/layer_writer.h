// LayerWriter: hands the pages of one layer of a snapshot to its sink, then their hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/xxh64.h"
#include "cache/cache.h"
#include "format/page_layout.h"

namespace kvant {

class LayerWriter {
 public:
  // spare, zeros: room for the largest page each, the latter of zeros. All outlive the writer.
  LayerWriter(const ByteSink& sink, std::byte* spare, const std::byte* zeros)
      : sink_(sink), spare_(spare), zeros_(zeros) {}

  Status Stored(const PageLayout& layout, const std::byte* page) {
    return Emit({page, static_cast<size_t>(layout.page_bytes)});
  }
  // A float page of which the first tokens are written; the others become 0.
  Status Open(const PageLayout& layout, const std::byte* page, int64_t tokens);
  // A page that holds tokens of a format by token (CopyToken) in its first slots; the others
  // become 0.
  Status Pooled(const PageLayout& layout, const std::byte* page, int64_t tokens);
  Status Positions(std::span<const int32_t> positions) { return Emit(std::as_bytes(positions)); }
  Status Sums(std::span<const float> sums) { return Emit(std::as_bytes(sums)); }
  Status Finish();

 private:
  Status Emit(std::span<const std::byte> bytes);

  const ByteSink& sink_;
  std::byte* const spare_;
  const std::byte* const zeros_;
  Xxh64Stream hash_;
};

}  // namespace kvant
