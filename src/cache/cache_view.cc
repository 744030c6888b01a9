// What readers see of the cache: views, stored bytes, ledger.
#include <cassert>

#include "cache/cache_impl.h"

namespace kvant {
namespace {

// Bytes of the units (tokens of float runs, else pages) that hold the tokens from the absolute
// position `begin` on.
int64_t BytesFrom(const Run& run, int64_t begin) {
  const int64_t first = std::max<int64_t>(run.first_token, begin - run.first_position);
  if (run.end_token <= first) return 0;
  if (run.layout->is_float()) return (run.end_token - first) * run.layout->token_bytes();
  const int64_t page_tokens = run.layout->tokens;
  return ((run.end_token - 1) / page_tokens - first / page_tokens + 1) * run.layout->page_bytes;
}

}  // namespace

HeadView Cache::View(SequenceId id, int layer, int kv_head, int64_t query_page) const {
  Sequence* seq = impl_->Find(id);
  assert(seq != nullptr);
  const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
  const HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  HeadView view;
  view.latent_dim = impl_->geometry.latent_dim;
  view.to_query = store.to_query.Of(kv_head, impl_->geometry.head_dim);
  view.to_value = store.to_value.Of(kv_head, impl_->geometry.head_dim);
  if (store.rope >= 0) view.rope = impl_->ropes[static_cast<size_t>(store.rope)].view();
  const int64_t page_tokens = impl_->page_tokens;
  const int64_t visible = std::min(head.written_tokens, (query_page + 1) * page_tokens);
  if (visible <= 0) return view;
  const int last = static_cast<int>((visible - 1) / page_tokens);
  // Stored pages [first, open), then pages as written [open, last]. Steps of several widths lie in
  // one page, so that what came to pools is what its queries see.
  const int first = store.rule.FirstSeen(last);
  const int open = store.mixed != nullptr ? head.sealed : store.rule.StoredEnd(last);
  assert(open <= head.sealed || open == first);
  assert(open == first || first >= head.first_stored);
  assert(open >= head.first_open);
  assert(open >= head.dropped || last < impl_->PagesOf(seq->length));
  const int64_t sinks = store.coded && first == 0 ? impl_->spec.sinks_tokens : 0;
  const auto tokens = [&](int pages) { return pages * page_tokens; };
  view.runs[0] = MakeRun(store.sink, &head.sink, 1, 0, 0, std::min(sinks, visible));
  if (store.mixed != nullptr) {
    impl_->AddPoolRuns(store, head, view);
  } else {
    view.runs[1] = MakeRun(store.stored, head.stored + first, open - first, tokens(first), sinks,
                           tokens(open - first));
  }
  Run& window = view.runs[store.mixed != nullptr ? kMaxRuns - 1 : 2];
  window = MakeRun(store.open, head.open + open, last + 1 - open, tokens(open),
                   open == 0 ? sinks : 0, visible - tokens(open));
  return view;
}

const std::byte* Cache::StoredPage(SequenceId id, int layer, int kv_head, int64_t page) const {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr || page < 0) return nullptr;
  const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
  const HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  if (store.mixed != nullptr) return nullptr;
  if (store.coded) {
    const bool due = page >= head.first_stored && page < impl_->DuePages(store, head);
    return due ? head.stored[page] : nullptr;
  }
  const bool full = (page + 1) * impl_->page_tokens <= seq->length;
  return page >= head.first_open && full ? head.open[page] : nullptr;
}

int64_t Cache::bytes_read_per_token(SequenceId id) const {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr || seq->length == 0) return 0;
  const int kv_heads = impl_->geometry.kv_heads;
  int64_t bytes = 0;
  for (int layer = 0; layer < impl_->geometry.layers; ++layer) {
    const LayerStore& store = impl_->layers[static_cast<size_t>(layer)];
    const int64_t window = store.window_tokens;
    const int64_t begin = window == 0 ? 0 : std::max<int64_t>(0, seq->length - window);
    const int unlike_heads = store.mixed == nullptr ? 1 : kv_heads;  // others hold as much
    for (int head = 0; head < unlike_heads; ++head) {
      const HeadView view = View(id, layer, head, (seq->length - 1) / impl_->page_tokens);
      for (const Run& run : view.runs) bytes += BytesFrom(run, begin) * (kv_heads / unlike_heads);
    }
  }
  return bytes;
}

// Pool by pool, so that a shared page counts once. Only the page that holds the end of a sequence
// is partly filled, and no two sequences share that one.
CacheLedger Cache::ledger() const {
  CacheLedger l;
  for (size_t i = 0; i < impl_->pools.size(); ++i) {
    const PoolEntry& entry = impl_->pools[i];
    const int64_t pages = entry.pool->counts().used_pages;
    const int64_t bytes = pages * entry.layout.page_bytes;
    switch (entry.use) {
      case PageUse::kKept:
      case PageUse::kPooled:
      case PageUse::kStored: {
        const SideLayout &k = entry.layout.k, &v = entry.layout.v;
        const int64_t codes = pages * (k.code_bytes() + v.code_bytes());
        const int64_t metadata = pages * (k.used_metadata_bytes() + v.used_metadata_bytes());
        l.code_bytes += codes;
        l.metadata_bytes += metadata;
        l.padding_bytes += bytes - codes - metadata;
        break;
      }
      case PageUse::kOpen:
      case PageUse::kTail:
        l.window_bytes += bytes;
        break;
      case PageUse::kSink:
        l.sink_bytes += bytes;
        break;
    }
  }
  int64_t held_tokens = 0;  // of each head
  for (const auto& seq : impl_->sequences) {
    if (seq == nullptr) continue;
    l.tokens += seq->length;
    int64_t stored = -1;
    impl_->ForEachHead(*seq, [&](const LayerStore& layer, const HeadPages& head) {
      held_tokens += seq->length - int64_t{head.first_held()} * impl_->page_tokens;
      if (layer.coded) {
        stored = std::max<int64_t>({0, stored,
                                    int64_t{impl_->DuePages(layer, head)} * impl_->page_tokens -
                                        impl_->spec.sinks_tokens});
        return;
      }
      const int64_t absent = int64_t{head.open_end} * impl_->page_tokens - seq->length;
      const int64_t moved = absent * layer.open.token_bytes();
      l.code_bytes -= moved;
      l.padding_bytes += moved;
    });
    l.stored_tokens += stored < 0 ? seq->length : stored;
  }
  impl_->AddWidths(l);
  l.kv_bytes = l.code_bytes + l.metadata_bytes + l.padding_bytes + l.window_bytes + l.sink_bytes;
  l.allocated_bytes = impl_->budget.taken_bytes();
  l.recoded_tokens = impl_->recoded_tokens;
  const double values = static_cast<double>(held_tokens) *
                        (impl_->geometry.k_channels() + impl_->geometry.v_channels());
  l.effective_bits = held_tokens == 0 ? 0 : 8.0 * static_cast<double>(l.kv_bytes) / values;
  return l;
}

std::vector<Cache::PoolCount> Cache::pool_counts() const {
  std::vector<PoolCount> counts;
  for (const PoolEntry& entry : impl_->pools) {
    const PagePool::Counts c = entry.pool->counts();
    counts.push_back({c.page_bytes, c.used_pages, c.free_pages, c.total_pages});
  }
  return counts;
}

}  // namespace kvant
