#include "cache/sequence.h"

#include <algorithm>

namespace kvant {

Status Sequence::EnsurePages(int64_t pages) {
  if (pages <= capacity_) return Status::Ok();
  const int64_t capacity = std::max({pages, capacity_ + capacity_ / 2, int64_t{8}});
  const size_t pointers = heads.size() * 2 * static_cast<size_t>(capacity);
  KVANT_ASSIGN_OR_RETURN(AlignedBuffer table, AlignedBuffer::Create(pointers * sizeof(std::byte*)));
  std::byte** next = table.as<std::byte*>();
  for (HeadPages& head : heads) {
    std::copy(head.open + head.first_open, head.open + head.open_end, next + head.first_open);
    head.open = next;
    next += capacity;
    if (head.mixed == nullptr) {
      std::copy(head.stored + head.first_stored, head.stored + head.sealed,
                next + head.first_stored);
    }
    head.stored = next;
    next += capacity;
  }
  table_ = std::move(table);
  capacity_ = capacity;
  return Status::Ok();
}

}  // namespace kvant
