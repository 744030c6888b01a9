#include "cache/pool_edit.h"

#include <algorithm>
#include <cstring>

#include "cache/token_writer.h"
#include "codec/codec.h"
#include "codec/token_copy.h"
#include "format/layer_layouts.h"

namespace kvant {
namespace {

int64_t PagesOf(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

void CopyTokenAt(const PageLayout& layout, const std::byte* from, int64_t from_token, std::byte* to,
                 int64_t to_token) {
  CopyToken(layout, from, static_cast<int>(from_token), to, static_cast<int>(to_token));
}

void DropPages(const PoolPages& pages, int64_t keep, HeadPool& pool) {
  while (static_cast<int64_t>(pool.pages.size()) > keep) {
    pages.coded.Release(pool.pages.back());
    pool.pages.pop_back();
  }
  pool.grouped_pages = std::min(pool.grouped_pages, pool.pages.size());
}

void DropEmptyTail(const PoolPages& pages, HeadPool& pool) {
  if (pool.tail == nullptr || pool.tail_tokens() > 0) return;
  pages.tails.Release(pool.tail);
  pool.tail = nullptr;
}

}  // namespace

PageStock::~PageStock() {
  for (std::byte* page : pages_) pool_.Release(page);
}

Status PageStock::Add(int64_t pages) {
  pages_.reserve(pages_.size() + static_cast<size_t>(pages));
  for (int64_t i = 0; i < pages; ++i) {
    KVANT_ASSIGN_OR_RETURN(std::byte * page, pool_.Allocate());
    pages_.push_back(page);
  }
  return Status::Ok();
}

std::byte* PageStock::Use() {
  std::byte* page = pages_.back();
  pages_.pop_back();
  return page;
}

PoolEdit::PoolEdit(const PoolPages& pages, const PoolChange& change, bool can_undo, HeadPool& pool)
    : pages_(pages),
      change_(change),
      can_undo_(can_undo),
      pool_(pool),
      coded_stock_(pages.coded),
      tail_stock_(pages.tails) {}

bool PoolEdit::codes_at_once() const {
  return IsByToken({pages_.layout.k.format, pages_.layout.v.format});
}

Status PoolEdit::Prepare() {
  coded_left_ = pool_.coded_tokens;
  tail_left_ = pool_.tail_tokens();
  if (change_.takes_out()) {
    const auto border = change_.keep.begin() + pool_.coded_tokens;
    const std::vector<bool> coded(change_.keep.begin(), border), tail(border, change_.keep.end());
    coded_moves_ = HoleFillingMoves(coded);
    tail_moves_ = HoleFillingMoves(tail);
    coded_left_ = std::count(coded.begin(), coded.end(), true);
    tail_left_ = std::count(tail.begin(), tail.end(), true);
  }
  const int64_t coming = static_cast<int64_t>(change_.positions.size());
  const int64_t fills = codes_at_once() ? PagesOf(coming) : (tail_left_ + coming) / kPageTokens;

  std::vector<size_t> written;
  for (const SlotMove& move : coded_moves_) {
    written.push_back(static_cast<size_t>(move.to / kPageTokens));
  }
  if (fills > 0 && coded_left_ % kPageTokens != 0) {
    written.push_back(static_cast<size_t>(coded_left_ / kPageTokens));
  }
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  for (const size_t page : written) {
    if (pages_.coded.IsShared(pool_.pages[page])) shared_pages_.push_back(page);
  }
  tail_is_shared_ = pool_.tail != nullptr && writes_tail() && pages_.tails.IsShared(pool_.tail);

  const bool tail_comes = pool_.tail == nullptr && coming > 0;
  const bool next_tail_comes =
      can_undo_ && !codes_at_once() && fills > 0 && (tail_left_ + coming) % kPageTokens != 0;
  KVANT_RETURN_IF_ERROR(coded_stock_.Add(fills + static_cast<int64_t>(shared_pages_.size())));
  KVANT_RETURN_IF_ERROR(tail_stock_.Add((tail_is_shared_ ? 1 : 0) + (tail_comes ? 1 : 0) +
                                        (next_tail_comes ? 1 : 0)));
  pool_.pages.reserve(pool_.pages.size() + static_cast<size_t>(fills));
  pool_.positions.reserve(pool_.positions.size() + static_cast<size_t>(coming));
  return Status::Ok();
}

void PoolEdit::Apply() {
  DropSpare(pages_, pool_);
  pool_.tokens_before = pool_.tokens();
  pool_.coded_before = pool_.coded_tokens;
  OwnWrittenPages();
  if (change_.takes_out()) TakeOut();
  PutIn();
  DropEmptyTail(pages_, pool_);
}

void PoolEdit::OwnWrittenPages() {
  const auto own = [](PagePool& pool, PageStock& stock, const PageLayout& layout,
                      std::byte*& page) {
    std::byte* copy = stock.Use();
    std::memcpy(copy, page, static_cast<size_t>(layout.page_bytes));
    pool.Release(page);
    page = copy;
  };
  for (const size_t page : shared_pages_) {
    own(pages_.coded, coded_stock_, pages_.layout, pool_.pages[page]);
  }
  if (tail_is_shared_) own(pages_.tails, tail_stock_, pages_.open, pool_.tail);
}

void PoolEdit::TakeOut() {
  const auto positions = pool_.positions.begin();
  for (const SlotMove& move : coded_moves_) {
    CopyTokenAt(pages_.layout, pool_.pages[static_cast<size_t>(move.from / kPageTokens)],
                move.from % kPageTokens, pool_.pages[static_cast<size_t>(move.to / kPageTokens)],
                move.to % kPageTokens);
    positions[move.to] = positions[move.from];
  }
  for (const SlotMove& move : tail_moves_) {
    CopyTokenAt(pages_.open, pool_.tail, move.from, pool_.tail, move.to);
    positions[pool_.coded_tokens + move.to] = positions[pool_.coded_tokens + move.from];
  }
  pool_.positions.erase(positions + coded_left_, positions + pool_.coded_tokens);
  pool_.positions.resize(static_cast<size_t>(coded_left_ + tail_left_));
  pool_.coded_tokens = coded_left_;
  DropPages(pages_, PagesOf(coded_left_), pool_);
}

void PoolEdit::PutIn() {
  const int64_t coming = static_cast<int64_t>(change_.positions.size());
  const int head_dim = pages_.open.k.head_dim;
  for (int64_t done = 0; done < coming;) {
    if (pool_.tail == nullptr) pool_.tail = tail_stock_.Use();
    // All of a page is coded, also what no token has.
    if (codes_at_once()) std::memset(pool_.tail, 0, static_cast<size_t>(pages_.open.page_bytes));
    const int at = static_cast<int>(pool_.tail_tokens());
    const int count = static_cast<int>(std::min<int64_t>(kPageTokens - at, coming - done));
    WriteTokens(pages_.open.k, pool_.tail, at, count, change_.k.data() + done * head_dim, head_dim);
    WriteTokens(pages_.open.v, pool_.tail + pages_.open.v_offset_bytes, at, count,
                change_.v.data() + done * head_dim, head_dim);
    pool_.positions.insert(pool_.positions.end(), change_.positions.begin() + done,
                           change_.positions.begin() + done + count);
    done += count;
    if (pool_.tail_tokens() == kPageTokens || codes_at_once()) CodeTail();
  }
}

// The tail becomes coded tokens. Where the last coded page has room, they move up into it.
void PoolEdit::CodeTail() {
  const PageLayout &open = pages_.open, &layout = pages_.layout;
  std::byte* const page = coded_stock_.Use();
  EncodeSide(open.k, pool_.tail, layout.k, 0, page);
  EncodeSide(open.v, pool_.tail + open.v_offset_bytes, layout.v, 0, page + layout.v_offset_bytes);
  const int64_t tokens = pool_.tail_tokens(), last_tokens = pool_.coded_tokens % kPageTokens;
  const int64_t room = last_tokens == 0 ? 0 : kPageTokens - last_tokens;
  for (int64_t t = 0; room > 0 && t < tokens; ++t) {
    const bool fits = t < room;
    CopyTokenAt(layout, page, t, fits ? pool_.pages.back() : page,
                fits ? last_tokens + t : t - room);
  }
  if (tokens > room) {
    pool_.pages.push_back(page);
  } else {
    coded_stock_.PutBack(page);
  }
  pool_.coded_tokens += tokens;
  if (!can_undo_ || codes_at_once()) return;
  pool_.spare_tail = pool_.tail;
  pool_.tail = nullptr;
}

void UndoEdit(const PoolPages& pages, HeadPool& pool) {
  DropPages(pages, PagesOf(pool.coded_before), pool);
  if (pool.spare_tail != nullptr) {
    if (pool.tail != nullptr) pages.tails.Release(pool.tail);
    pool.tail = pool.spare_tail;
    pool.spare_tail = nullptr;
  }
  pool.coded_tokens = pool.coded_before;
  pool.positions.resize(static_cast<size_t>(pool.tokens_before));
  DropEmptyTail(pages, pool);
}

void TakeOutGap(const PoolPages& pages, const TokenGap& gap, HeadPool& pool) {
  int64_t to = 0, before = 0;
  for (int64_t from = 0; from < pool.coded_tokens; ++from) {
    const int32_t position = pool.positions[static_cast<size_t>(from)];
    if (gap.Drops(position)) continue;
    if (to != from) {
      CopyTokenAt(pages.layout, pool.pages[static_cast<size_t>(from / kPageTokens)],
                  from % kPageTokens, pool.pages[static_cast<size_t>(to / kPageTokens)],
                  to % kPageTokens);
    }
    const bool moves = position >= gap.end();
    pool.positions[static_cast<size_t>(to)] =
        position - (moves ? static_cast<int32_t>(gap.drop_tokens) : 0);
    before += from < pool.coded_before;
    ++to;
  }
  pool.positions.resize(static_cast<size_t>(to));
  pool.coded_tokens = to;
  pool.tokens_before = pool.coded_before = before;
  DropPages(pages, PagesOf(to), pool);
}

void DropBehind(const PoolPages& pages, HeadPool& pool) {
  DropPages(pages, PagesOf(pool.coded_tokens), pool);
  DropEmptyTail(pages, pool);
}

void DropSpare(const PoolPages& pages, HeadPool& pool) {
  if (pool.spare_tail == nullptr) return;
  pages.tails.Release(pool.spare_tail);
  pool.spare_tail = nullptr;
}

void SharePool(const PoolPages& pages, const HeadPool& pool) {
  for (const std::byte* page : pool.pages) pages.coded.Share(page);
  if (pool.tail != nullptr) pages.tails.Share(pool.tail);
  if (pool.spare_tail != nullptr) pages.tails.Share(pool.spare_tail);
}

void DropPool(const PoolPages& pages, HeadPool& pool) {
  DropSpare(pages, pool);
  DropPages(pages, 0, pool);
  pool.positions.clear();
  pool.coded_tokens = 0;
  DropEmptyTail(pages, pool);
}

}  // namespace kvant
