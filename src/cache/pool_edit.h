// PoolEdit: takes tokens out of one pool of a head and puts others in, all or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/hole_filling.h"
#include "cache/mixed_head.h"
#include "cache/page_pool.h"
#include "format/page_layout.h"

namespace kvant {

struct PoolChange {
  std::vector<bool> keep;          // [tokens of the pool]; empty: all stay
  std::vector<int32_t> positions;  // of the tokens that come
  std::vector<float> k, v;         // [positions][head_dim], inside the range of f16

  bool takes_out() const { return !keep.empty(); }
};

// Positions [keep, keep + drop) go, those behind move down.
struct TokenGap {
  int64_t keep_tokens, drop_tokens;

  int64_t end() const { return keep_tokens + drop_tokens; }
  bool Drops(int64_t position) const { return position >= keep_tokens && position < end(); }
};

// The pages of one width and those as written, of the cache.
struct PoolPages {
  PagePool& coded;
  PagePool& tails;
  const PageLayout& layout;
  const PageLayout& open;
};

// Pages that are set aside; those that are left go back.
class PageStock {
 public:
  explicit PageStock(PagePool& pool) : pool_(pool) {}
  PageStock(const PageStock&) = delete;
  ~PageStock();

  Status Add(int64_t pages);
  std::byte* Use();
  void PutBack(std::byte* page) { pages_.push_back(page); }  // what Use gave

 private:
  PagePool& pool_;
  std::vector<std::byte*> pages_;
};

class PoolEdit {
 public:
  // can_undo: UndoEdit will be possible afterwards. REQUIRES: nothing is taken out then. All
  // arguments outlive the edit.
  PoolEdit(const PoolPages& pages, const PoolChange& change, bool can_undo, HeadPool& pool);

  // Sets aside what Apply needs. kOutOfMemory, or std::bad_alloc: the pool is as it was.
  Status Prepare();
  void Apply();

 private:
  // Whether tokens are coded one by one as they come, so that there is no tail behind them.
  bool codes_at_once() const;
  bool writes_tail() const { return !tail_moves_.empty() || !change_.positions.empty(); }
  void OwnWrittenPages();
  void TakeOut();
  void PutIn();
  void CodeTail();

  const PoolPages pages_;
  const PoolChange& change_;
  const bool can_undo_;
  HeadPool& pool_;
  PageStock coded_stock_, tail_stock_;
  std::vector<SlotMove> coded_moves_, tail_moves_;
  int64_t coded_left_ = 0, tail_left_ = 0;
  std::vector<size_t> shared_pages_;  // that are written: copied first
  bool tail_is_shared_ = false;
};

// Back to before the last edit. REQUIRES: it was one with can_undo.
void UndoEdit(const PoolPages& pages, HeadPool& pool);
// Gives back pages behind the coded tokens, and a tail that holds none.
void DropBehind(const PoolPages& pages, HeadPool& pool);
// Gives back the page that only an undo would need.
void DropSpare(const PoolPages& pages, HeadPool& pool);
// Tokens of positions that go leave the pool, those behind close up in their order and stand lower.
// REQUIRES: the pool's formats are by token, and pages that change are its own.
void TakeOutGap(const PoolPages& pages, const TokenGap& gap, HeadPool& pool);
// One reference more to each of its pages, and one less.
void SharePool(const PoolPages& pages, const HeadPool& pool);
void DropPool(const PoolPages& pages, HeadPool& pool);

}  // namespace kvant
