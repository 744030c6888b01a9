// MixedHead: the pools of one (layer, KV head) of a sequence whose tokens have several widths.
// Plain bookkeeping, as sequence.h; cache_mixed.cc says what happens to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvant {

// The tokens of one width, in the order in which they came as long as none left.
struct HeadPool {
  std::vector<std::byte*> pages;  // coded, all full but for the last
  // A page as written, of tokens whose format codes a page at a time; null: there are none.
  std::byte* tail = nullptr;
  int64_t coded_tokens = 0;        // in `pages`
  std::vector<int32_t> positions;  // of the tokens: those in pages, then those in the tail
  size_t grouped_pages = 0;        // the first so many have been put side by side

  // How it was before the newest page came, for one step back.
  std::byte* spare_tail = nullptr;  // where the tail has been coded since; null: it has not
  int64_t tokens_before = 0, coded_before = 0;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
  int64_t tail_tokens() const { return tokens() - coded_tokens; }
};

// What attention gave the tokens, where the policy asks for it: cache/head_mass.h.
struct HeadMass {
  std::vector<float> now;     // [sums a token][tokens]
  std::vector<float> next;    // the same with the running step
  std::vector<float> before;  // what `now` was before a page came, for as long as its step runs
};

class Policy;

struct MixedHead {
  const Policy* policy = nullptr;
  int64_t budget_bytes = 0;     // of its tokens; 0: none
  std::vector<HeadPool> pools;  // as in MixedLayer
  HeadMass mass;
  // Whether the page that came last may be taken out again: no stored token moved for it.
  bool can_undo = false;
  int64_t requantised_tokens = 0;  // became narrower after they were coded; of this sequence
  int64_t dropped_tokens = 0;      // of all pages that came
  int64_t dropped_before = 0;
};

}  // namespace kvant
