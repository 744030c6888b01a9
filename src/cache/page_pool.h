// PagePool: pages of one size, cut from slabs, counted by reference. PageBudget: what all pools of
// a cache may ask of the system together.
//
// A slab is as large as the demand that made it (Reserve), at least 8 pages and at most 8 MiB, so
// that a pool holds little more than what is in use. A pool whose pages come and go asks for a
// smaller bound: what compaction leaves over is less than a slab. Pages are given out from the
// first slab that has one, lowest index first: consecutive pages of a head tend to be neighbours.
// free + used = total, always.
//
// Thread rules: every call locks the pool; a page stays where it is while it is shared; the owner
// of the only reference may copy its bytes elsewhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/page_arena.h"
#include "kvant/status.h"

namespace kvant {

class PageBudget {
 public:
  // limit_bytes 0: no bound.
  explicit PageBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Whether the bytes still fit; they are then taken.
  bool Take(int64_t bytes);
  void Give(int64_t bytes) { taken_bytes_ -= bytes; }
  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t taken_bytes() const { return taken_bytes_; }

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> taken_bytes_{0};
};

class PagePool {
 public:
  static constexpr int64_t kMinSlabPages = 8;
  static constexpr int64_t kMaxSlabBytes = int64_t{8} << 20;
  static constexpr int64_t kSmallSlabBytes = int64_t{256} << 10;

  // Free pages that are promised to one step. Owned by its sequence, changed only by pool calls.
  struct Reservation {
    int64_t pages = 0;
  };
  struct Counts {
    int64_t page_bytes = 0, used_pages = 0, free_pages = 0, total_pages = 0, reserved_pages = 0;
  };

  // page_bytes: a multiple of 64. The budget outlives the pool. slab_bytes bounds the slabs, or a
  // 64th of the pool where that is more (never more than kMaxSlabBytes, never less than 8 pages).
  PagePool(int64_t page_bytes, PageBudget* budget, int64_t slab_bytes = kMaxSlabBytes)
      : page_bytes_(page_bytes), slab_bytes_(slab_bytes), budget_(budget) {}
  ~PagePool();
  PagePool(const PagePool&) = delete;

  // Adds `pages` to the reservation. kOutOfMemory (budget or system) leaves the pool as it was.
  Status Reserve(int64_t pages, Reservation* reservation);
  // Gives back what is left of it and trims.
  void Cancel(Reservation* reservation);

  // A page with one reference, contents undefined, 64-byte aligned; from the reservation while it
  // lasts, then from what nobody has reserved, then from a new slab.
  Result<std::byte*> Allocate(Reservation* reservation = nullptr);
  // One reference more, one less. The last Release frees the page; `credit`, if any, then has it.
  void Share(const std::byte* page);
  void Release(const std::byte* page, Reservation* credit = nullptr);
  bool IsShared(const std::byte* page) const;

  // Compaction, when more is free than the slack of Trim: BeginCompaction picks slabs whose pages
  // would fit elsewhere and says whether there are any; Relocate moves an unshared page out of
  // them (a page that has to stay is returned as it is); EndCompaction frees what became empty.
  bool BeginCompaction();
  std::byte* Relocate(std::byte* page);
  void EndCompaction();

  // Returns empty slabs to the system while more than 1/256 of the used pages and kMinSlabPages
  // would stay free and unreserved.
  void Trim();

  Counts counts() const;

 private:
  struct Slab {
    std::byte* data = nullptr;         // in the arena
    std::vector<uint32_t> references;  // [pages], 0: free
    int64_t pages = 0;
    int64_t used_pages = 0;
    int64_t first_free = 0;  // no page before it is free
    bool draining = false;

    int64_t free_pages() const { return pages - used_pages; }
  };
  struct Place {
    Slab* slab;
    size_t index;
  };

  // The caller holds mutex_.
  int64_t unreserved_pages() const { return total_pages_ - used_pages_ - reserved_pages_; }
  int64_t slack_pages() const { return kMinSlabPages + used_pages_ / 256; }
  Status GrowBy(int64_t missing_pages);
  Status AddSlab(int64_t pages);
  void RemoveSlab(size_t index);
  void TrimLocked();
  std::byte* Take();
  void Drop(const Place& place);
  Place Find(const std::byte* page) const;

  const int64_t page_bytes_;
  const int64_t slab_bytes_;
  PageBudget* const budget_;
  mutable std::mutex mutex_;
  PageArena arena_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // in order of creation
  std::vector<Slab*> by_address_;
  size_t first_slab_ = 0;  // no slab before it has a free page
  int64_t total_pages_ = 0, used_pages_ = 0, reserved_pages_ = 0;
};

}  // namespace kvant
