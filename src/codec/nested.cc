#include "codec/nested.h"

#include <cstring>

namespace kvant {

bool CanDemote(const Format& from, const Format& to) {
  Format widened = to;
  widened.bits = from.bits;
  return from.levels == Levels::kNested && widened == from && to.bits <= from.bits;
}

void DemoteSide(const SideLayout& from, const std::byte* stored, const SideLayout& to,
                std::byte* demoted) {
  const auto copy = [&](int from_offset, int to_offset, int bytes) {
    std::memcpy(demoted + to_offset, stored + from_offset, static_cast<size_t>(bytes));
  };
  std::memset(demoted, 0, static_cast<size_t>(to.bytes));
  copy(from.norms_offset, to.norms_offset, to.tokens * to.format.metadata_bytes_per_group());
  copy(from.parameters_offset, to.parameters_offset, to.blocks() * to.parameter_count() * 2);
  if (to.format.page_mean) copy(from.mean_offset, to.mean_offset, to.blocks() * to.padded_dim);
  for (int block = 0; block < to.blocks(); ++block) {
    copy(from.codes_offset + block * from.block_bytes, to.codes_offset + block * to.block_bytes,
         to.block_bytes);
  }
}

}  // namespace kvant
