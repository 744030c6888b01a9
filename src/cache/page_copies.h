// PageCopies: own copies of pages that a sequence shares and is about to write, and pages that it
// has not yet. All are allocated before anything changes; what is not applied is given back.
#pragma once

#include <cstring>
#include <vector>

#include "cache/page_pool.h"
#include "format/page_layout.h"

namespace kvant {

class PageCopies {
 public:
  PageCopies() = default;
  PageCopies(const PageCopies&) = delete;
  ~PageCopies() {
    for (const Copy& c : copies_) {
      c.pool->Release(c.page);
      c.pool->Trim();
    }
  }

  // Plans to replace *slot, where another sequence holds that page too.
  Status Add(PagePool* pool, const PageLayout& layout, std::byte** slot) {
    if (!pool->IsShared(*slot)) return Status::Ok();
    KVANT_ASSIGN_OR_RETURN(std::byte * page, pool->Allocate());
    copies_.push_back({pool, static_cast<size_t>(layout.page_bytes), page, slot});
    return Status::Ok();
  }

  // Plans to put a new page, of any bytes, into *slot, which has none.
  Status AddNew(PagePool* pool, std::byte** slot) {
    KVANT_ASSIGN_OR_RETURN(std::byte * page, pool->Allocate());
    copies_.push_back({pool, 0, page, slot});
    return Status::Ok();
  }

  void Apply() {
    for (Copy& c : copies_) {
      if (*c.slot != nullptr) {
        std::memcpy(c.page, *c.slot, c.bytes);
        c.pool->Release(*c.slot);
      }
      *c.slot = c.page;
    }
    copies_.clear();
  }

 private:
  struct Copy {
    PagePool* pool;
    size_t bytes;
    std::byte* page;
    std::byte** slot;
  };
  std::vector<Copy> copies_;
};

}  // namespace kvant
