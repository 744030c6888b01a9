#include "eval/fetch_count.h"

#include <algorithm>

namespace kvant {
namespace {

constexpr uint64_t kSectorBytes = 32;

uint64_t AddressOf(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Tokens [begin, end) of one 64-token block of a float side, in the rows of the layout.
void ReadFloatBlock(const SideLayout& side, uint64_t block, int begin, int end, FetchCount& count) {
  const int value_bytes = side.format.bits / 8;
  if (side.side == Side::kV) {
    const int row_bytes = side.padded_dim * value_bytes;
    count.Read(block + static_cast<uint64_t>(begin * row_bytes), (end - begin) * row_bytes);
    return;
  }
  for (int channel = 0; channel < side.head_dim; ++channel) {
    const int first = channel * side.block_tokens + begin;
    count.Read(block + static_cast<uint64_t>(first * value_bytes), (end - begin) * value_bytes);
  }
}

void ReadFloatPage(const PageLayout& layout, uint64_t page, int begin, int end, FetchCount& count) {
  for (const SideLayout* side : {&layout.k, &layout.v}) {
    const uint64_t at = page + static_cast<uint64_t>(side == &layout.v ? layout.v_offset_bytes : 0);
    for (int block = 0; block < side->blocks(); ++block) {
      const int first = block * side->block_tokens;
      const int from = std::max(begin - first, 0), to = std::min(end - first, side->block_tokens);
      if (from >= to) continue;
      ReadFloatBlock(*side, at + static_cast<uint64_t>(block * side->block_bytes), from, to, count);
    }
  }
}

}  // namespace

void FetchCount::Read(uint64_t address, int64_t bytes) {
  read_bytes_ += bytes;
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  for (uint64_t sector = address / kSectorBytes; sector * kSectorBytes < end; ++sector) {
    if (sectors_.empty() || sectors_.back() != sector) sectors_.push_back(sector);
  }
}

void FetchCount::ReadRun(const Run& run) {
  if (run.empty()) return;
  const PageLayout& layout = *run.layout;
  for (int p = run.first_token / layout.tokens; p * layout.tokens < run.end_token; ++p) {
    Read(AddressOf(run.pages + p), sizeof(std::byte*));
    const int first = p * layout.tokens;
    if (layout.is_float()) {
      ReadFloatPage(layout, AddressOf(run.pages[p]), std::max(run.first_token - first, 0),
                    std::min(run.end_token - first, layout.tokens), *this);
    } else {
      Read(AddressOf(run.pages[p]), layout.page_bytes);
    }
  }
}

FetchedBytes FetchCount::Total() {
  std::sort(sectors_.begin(), sectors_.end());
  sectors_.erase(std::unique(sectors_.begin(), sectors_.end()), sectors_.end());
  FetchedBytes total{.read = read_bytes_,
                     .in_sectors = std::ssize(sectors_) * static_cast<int64_t>(kSectorBytes)};
  for (size_t i = 0; i < sectors_.size(); ++i) {
    if (i == 0 || sectors_[i] / 2 != sectors_[i - 1] / 2) total.in_lines += 64;
  }
  return total;
}

}  // namespace kvant
