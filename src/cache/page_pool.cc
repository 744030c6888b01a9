#include "cache/page_pool.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <string>

namespace kvant {

bool PageBudget::Take(int64_t bytes) {
  const int64_t before = taken_bytes_.fetch_add(bytes);
  if (limit_bytes_ == 0 || before + bytes <= limit_bytes_) return true;
  taken_bytes_ -= bytes;
  return false;
}

PagePool::~PagePool() { budget_->Give(total_pages_ * page_bytes_); }

Status PagePool::AddSlab(int64_t pages) {
  const int64_t bytes = pages * page_bytes_;
  if (!budget_->Take(bytes)) {
    return Status::OutOfMemory("the KV budget of " + std::to_string(budget_->limit_bytes()) +
                               " bytes is used up: " + std::to_string(budget_->taken_bytes()) +
                               " are held and " + std::to_string(bytes) + " more are needed");
  }
  Result<std::byte*> memory = arena_.Take(bytes);
  if (!memory.ok()) {
    budget_->Give(bytes);
    return Status::OutOfMemory("KV pages: " + memory.status().message());
  }
  auto slab = std::make_unique<Slab>();
  slab->data = *memory;
  slab->references.assign(static_cast<size_t>(pages), 0);
  slab->pages = pages;
  const auto at = std::upper_bound(
      by_address_.begin(), by_address_.end(), slab->data,
      [](const std::byte* data, const Slab* s) { return std::less<>()(data, s->data); });
  by_address_.insert(at, slab.get());
  slabs_.push_back(std::move(slab));
  total_pages_ += pages;
  return Status::Ok();
}

void PagePool::RemoveSlab(size_t index) {
  Slab* slab = slabs_[index].get();
  assert(slab->used_pages == 0);
  total_pages_ -= slab->pages;
  arena_.Give(slab->data, slab->pages * page_bytes_);
  budget_->Give(slab->pages * page_bytes_);
  std::erase(by_address_, slab);
  slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(index));
  first_slab_ = 0;
}

Status PagePool::GrowBy(int64_t missing_pages) {
  const size_t slabs_before = slabs_.size();
  while (missing_pages > 0) {
    const int64_t bytes =
        std::min(std::max(slab_bytes_, total_pages_ * page_bytes_ / 64), kMaxSlabBytes);
    const int64_t cap = std::max(kMinSlabPages, bytes / page_bytes_);
    const int64_t needed = std::min(missing_pages, cap);
    const int64_t wanted = std::clamp(total_pages_ / 256, std::max(needed, kMinSlabPages), cap);
    Status status = AddSlab(wanted);
    // What is needed may still fit where a comfortable slab does not.
    if (!status.ok() && needed < wanted) status = AddSlab(needed);
    if (!status.ok()) {
      while (slabs_.size() > slabs_before) RemoveSlab(slabs_.size() - 1);
      return status;
    }
    missing_pages -= slabs_.back()->pages;
  }
  return Status::Ok();
}

Status PagePool::Reserve(int64_t pages, Reservation* reservation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  KVANT_RETURN_IF_ERROR(GrowBy(pages - unreserved_pages()));
  reserved_pages_ += pages;
  reservation->pages += pages;
  return Status::Ok();
}

void PagePool::Cancel(Reservation* reservation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reserved_pages_ -= reservation->pages;
  reservation->pages = 0;
  TrimLocked();
}

Result<std::byte*> PagePool::Allocate(Reservation* reservation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reservation != nullptr && reservation->pages > 0) {
    --reservation->pages;
    --reserved_pages_;
  } else if (unreserved_pages() <= 0) {
    KVANT_RETURN_IF_ERROR(GrowBy(1));
  }
  return Take();
}

// REQUIRES: a free page. Draining slabs come last: whatever goes there would have to move again.
std::byte* PagePool::Take() {
  while (slabs_[first_slab_]->free_pages() == 0) ++first_slab_;
  size_t chosen = first_slab_;
  for (size_t i = first_slab_; i < slabs_.size(); ++i) {
    if (slabs_[i]->free_pages() == 0 || slabs_[i]->draining) continue;
    chosen = i;
    break;
  }
  Slab& slab = *slabs_[chosen];
  size_t index = static_cast<size_t>(slab.first_free);
  while (slab.references[index] != 0) ++index;
  slab.references[index] = 1;
  slab.first_free = static_cast<int64_t>(index) + 1;
  ++slab.used_pages;
  ++used_pages_;
  return slab.data + index * static_cast<size_t>(page_bytes_);
}

PagePool::Place PagePool::Find(const std::byte* page) const {
  auto at = std::upper_bound(
      by_address_.begin(), by_address_.end(), page,
      [](const std::byte* data, const Slab* s) { return std::less<>()(data, s->data); });
  assert(at != by_address_.begin());
  Slab* slab = *--at;
  const size_t offset = static_cast<size_t>(page - slab->data);
  assert(offset < static_cast<size_t>(slab->pages * page_bytes_) &&
         offset % static_cast<size_t>(page_bytes_) == 0);
  return {slab, offset / static_cast<size_t>(page_bytes_)};
}

void PagePool::Drop(const Place& place) {
  Slab& slab = *place.slab;
  assert(slab.references[place.index] > 0);
  if (--slab.references[place.index] != 0) return;
  slab.first_free = std::min(slab.first_free, static_cast<int64_t>(place.index));
  --slab.used_pages;
  --used_pages_;
  first_slab_ = 0;
}

void PagePool::Share(const std::byte* page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place place = Find(page);
  ++place.slab->references[place.index];
}

void PagePool::Release(const std::byte* page, Reservation* credit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t used_before = used_pages_;
  Drop(Find(page));
  if (credit == nullptr || used_pages_ == used_before) return;
  ++credit->pages;
  ++reserved_pages_;
}

bool PagePool::IsShared(const std::byte* page) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place place = Find(page);
  return place.slab->references[place.index] > 1;
}

bool PagePool::BeginCompaction() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unreserved_pages() <= slack_pages()) return false;
  std::vector<Slab*> candidates(by_address_);
  std::sort(candidates.begin(), candidates.end(),
            [](const Slab* a, const Slab* b) { return a->pages > b->pages; });
  int64_t removable = unreserved_pages();
  bool any = false;
  for (Slab* slab : candidates) {
    if (slab->pages > removable) continue;
    removable -= slab->pages;
    slab->draining = true;
    any = true;
  }
  return any;
}

std::byte* PagePool::Relocate(std::byte* page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place from = Find(page);
  if (!from.slab->draining || from.slab->references[from.index] != 1) return page;
  std::byte* to = Take();
  if (Find(to).slab->draining) {  // nothing is free outside the draining slabs
    Drop(Find(to));
    return page;
  }
  std::memcpy(to, page, static_cast<size_t>(page_bytes_));
  Drop(from);
  return to;
}

void PagePool::EndCompaction() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TrimLocked();
  for (auto& slab : slabs_) slab->draining = false;
}

void PagePool::Trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TrimLocked();
}

void PagePool::TrimLocked() {
  // The largest that fit first: fewest pages stay idle.
  while (unreserved_pages() > slack_pages()) {
    size_t best = slabs_.size();
    for (size_t i = 0; i < slabs_.size(); ++i) {
      if (slabs_[i]->used_pages != 0 || slabs_[i]->pages > unreserved_pages()) continue;
      if (best == slabs_.size() || slabs_[i]->pages > slabs_[best]->pages) best = i;
    }
    if (best == slabs_.size()) return;
    RemoveSlab(best);
  }
}

PagePool::Counts PagePool::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {page_bytes_, used_pages_, total_pages_ - used_pages_, total_pages_, reserved_pages_};
}

}  // namespace kvant
