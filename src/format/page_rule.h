// PageRule: which pages of one layer queries read, in which form, and which are held. Arithmetic on
// positions alone, shared by the cache that holds them and by the estimates of what it holds.
//
// Pages lie at absolute multiples of page_tokens. A query in page P reads page p
//   not at all   iff p + seen_pages < P      (the layer's own window has passed it)
//   as stored    iff p + window_pages < P <= p + seen_pages
//   as written   otherwise.
// With L the page of the last token, a sequence holds what queries of page L - 1 and later read: a
// cut of up to page_tokens tokens is then always exact.
//
// A layer whose window is no longer than the one that is kept as written reads nothing as stored.
//
// Nobody reads page p as stored before page p + window_pages is full. Codes that are searched for
// take so long to find that all heads together would hold up the step that needs them, so there the
// heads take turns: head h of H may code page p at the (1 + h * page_tokens / H)-th token of page
// p + window_pages. It is held both as stored and as written from then on, and until it is due
// nobody can tell.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvant {

// Of a layer: longer ones are refused, so that pages of it can be counted in ints.
inline constexpr int64_t kMaxLayerWindow = int64_t{1} << 32;

struct PageRule {
  static constexpr int kAllPages = 1 << 30;

  // coded: whether a side of the layer's pages is; others stay as written. window_tokens: of the
  // newest tokens, read as written. layer_window_tokens: of the newest tokens, all that a query of
  // the layer sees, its own included; 0: it sees all.
  static constexpr PageRule Of(int page_tokens, bool coded, int64_t window_tokens,
                               int64_t layer_window_tokens) {
    const auto pages = [&](int64_t tokens) {
      return static_cast<int>(
          std::min<int64_t>((tokens + page_tokens - 1) / page_tokens, kAllPages));
    };
    return {.page_tokens = page_tokens,
            .window_pages = coded ? pages(window_tokens) : kAllPages,
            .seen_pages = layer_window_tokens == 0 ? kAllPages : pages(layer_window_tokens - 1)};
  }

  int page_tokens;
  int window_pages;          // before its own, that a query reads as written
  int seen_pages;            // before its own, that a query reads at all
  bool takes_turns = false;  // the heads of a cache, with pages that are not due yet

  constexpr bool reads_stored() const { return window_pages < seen_pages; }

  // Pages that `length` tokens touch, and the one of the last token.
  constexpr int PagesOf(int64_t length) const {
    return static_cast<int>((length + page_tokens - 1) / page_tokens);
  }
  constexpr int LastPage(int64_t length) const {
    return static_cast<int>((length - 1) / page_tokens);
  }

  // A query of page P reads [FirstSeen, StoredEnd) as stored and [StoredEnd, P] as written.
  constexpr int FirstSeen(int query_page) const { return std::max(0, query_page - seen_pages); }
  constexpr int StoredEnd(int query_page) const {
    return std::max(FirstSeen(query_page), query_page - window_pages);
  }

  // What is held at `length`: [FirstStored, DuePages) in stored form, from FirstOpen on as written.
  constexpr int DuePages(int64_t length) const {
    return reads_stored() ? std::max(0, LastPage(length) - window_pages) : 0;
  }
  // As far as a head codes at `length`, those whose turn it was. head: of all `heads` of the cache,
  // layer by layer.
  constexpr int SealedPages(int64_t length, int64_t head, int64_t heads) const {
    if (!takes_turns || !reads_stored() || window_pages == 0) return DuePages(length);
    const int64_t turn = 1 + head * page_tokens / heads;
    if (length < turn) return 0;
    return std::max(0, static_cast<int>((length - turn) / page_tokens) + 1 - window_pages);
  }
  constexpr int FirstStored(int64_t length) const {
    return std::min(DuePages(length), FirstHeld(length));
  }
  constexpr int FirstOpen(int64_t length) const {
    return std::max(0, LastPage(length) - 1 - std::min(window_pages, seen_pages));
  }
  // No page before it is held, in whatever form.
  constexpr int FirstHeld(int64_t length) const { return FirstSeen(LastPage(length) - 1); }

  // The shortest length whose last token and later ones read nothing that is gone, where pages from
  // first_open on are held as written and from first_stored on as stored; 0: nothing is gone.
  constexpr int64_t EarliestCut(int first_open, int first_stored) const {
    int64_t page = 0;
    if (first_open > 0) page = int64_t{first_open} + std::min(window_pages, seen_pages);
    if (first_stored > 0) page = std::max(page, int64_t{first_stored} + seen_pages);
    return page == 0 ? 0 : page * page_tokens + 1;
  }
};

}  // namespace kvant
