// Cache: the pages of any number of sequences on one geometry and one KvSpec.
//
// Storage. Each layer has two page layouts: "open" (float; where tokens are written and where the
// window lives) and "stored" (the layer's format pair). Pages come from pools, one a distinct
// layout and use; free + used = total in every pool, always. A layer whose formats are float on
// both sides has one layout: its open pages simply stay.
//
// The one precision rule. Let B = page_tokens() (64 unless a channel group is longer) and
// W = ceil(window / B) pages. A query in page P reads page p as stored iff p + W < P, otherwise as
// written. It depends on positions only, never on chunk sizes, so the stored bytes are the same for
// any chunking. The first `sinks` tokens are kept as written in a small page of their own, are
// never read from page 0 and stay out of its ranges. Layers with float formats have neither sinks
// nor window of their own.
//
// Layers whose queries see only their newest tokens (CacheOptions::layer_windows) hold no more than
// those: pages that no later query sees are given back, the sinks with page 0, and runs begin where
// the first query of their page begins to see. What such a layer holds stops growing once its
// window is full. format/page_rule.h has the arithmetic.
//
// Layers whose K format is pre_rope take keys after RoPE like all others, and hold them so in
// window and sinks. Seal turns a page back by its positions before it is coded (two roundings to
// f16 instead of one), and attention turns what it decodes again: see attention/rope_scores-inl.h.
//
// Layers whose formats are normed hold K and V rotated, in their window and sinks too; Append
// rotates, and views tell attention how to follow.
//
// Layers of several widths (KvSpec::mixed) keep no stored pages: when page p becomes stored, a
// policy gives each of its tokens a width, and the token goes to the pool of that width: see
// cache_mixed.cc. A step of such a cache lies inside one page, see max_step_tokens(). Where stored
// tokens may become narrower, a page after whose coming some did cannot be taken out again: cuts
// then go back to the end of the page before the open one at most. Where the policy judges by
// attention nothing can be cut: what a query gave is not taken back.
//
// One step of a sequence of length n that adds m tokens:
//   Reserve(seq, m)                      may fail; nothing changed then
//   for every layer: Append(...)         writes K and V of positions n .. n+m-1
//                    Seal(...)           encodes the pages that queries of the last page and later
//                                        ones read as stored, and where codes are searched for
//                                        (trellis) the head's next page once its turn has come; the
//                                        open copies stay for now
//                    View(...)           per KV head and query page of the step, as often as liked
//                    Release(...)        gives back the open copies of sealed pages
//   Commit(seq, m)                       the length becomes n + m
// Rollback(seq) undoes an abandoned step: length n, every token and stored page as before it.
// Reserve sets aside all pages that a step needs when a layer is released before the next one is
// appended; then only a value that is refused can stop it, or, in layers that rotate K or V or turn
// K back, that there is no room for a copy of what is rotated. In layers of several widths Seal
// takes what it needs itself. Another order may meet kOutOfMemory in Append. Until Commit the pages
// that length n needs are kept beside the new ones.
//
// Cutting back. Pages sealed for a length are read as written again below it, so open copies are
// kept for one page longer than queries need them: beside the W + 1 newest pages one more, counted
// as window. So is what has left a layer's own window. A cut of up to B tokens is therefore always
// exact: views and stored pages are those of a sequence that never was longer. earliest_truncate()
// says how far back it goes.
//
// Shifting. Positions may move down once: see Shift. A sequence that was shifted holds the keys of
// the tokens that moved with the errors of one more rounding, and of one more coding where they
// were stored after RoPE; everything else here holds for it as before.
//
// Thread rules: different (layer, kv_head) of one step may be appended, sealed, viewed and released
// by different threads; everything else is for one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/key_rope.h"
#include "cache/view.h"
#include "kvant/format.h"
#include "kvant/ledger.h"
#include "kvant/status.h"

namespace kvant {

using SequenceId = int32_t;

struct Snapshot;  // cache/snapshot.h
struct SnapshotLabel;
using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Whether a layer's K format needs the balance of K's channels, or how keys were turned by
// position. REQUIRES: CheckKvSpec() of a shape with that many layers.
bool NeedsBalance(const KvSpec& spec, int layers);
bool NeedsRopes(const KvSpec& spec, int layers);

// What a cache is told beside its shape and formats. Spans are read by Create alone.
struct CacheOptions {
  int64_t context_tokens = 0;  // longest sequence that will be accepted
  int64_t budget_bytes = 0;    // upper bound of what the pools may allocate; 0: none
  // [layers] how many of the newest tokens a query of each layer sees, its own included; 0: all.
  // Empty: all layers see all.
  std::span<const int64_t> layer_windows = {};
  // [layers][kv_heads][head_dim] positive factors of K's channels for formats with `balanced`;
  // needed by them and empty otherwise.
  std::span<const float> k_balance = {};
  // [layers] how the keys that Append gets were turned; needed by formats with `pre_rope`, not read
  // by others. A rope turns at least one pair.
  std::span<const Rope> ropes = {};
};

class Cache {
 public:
  // Checks everything, with CheckKvSpec too.
  static Result<std::unique_ptr<Cache>> Create(const KvGeometry& geometry, const KvSpec& spec,
                                               const CacheOptions& options);
  // For keys that come from no model: a balance of ones, and UsualRope, where a format needs them.
  static Result<std::unique_ptr<Cache>> CreateWithoutModel(const KvGeometry& geometry,
                                                           const KvSpec& spec,
                                                           CacheOptions options);
  ~Cache();

  const KvGeometry& geometry() const;
  const KvSpec& spec() const;
  int page_tokens() const;
  int window_pages() const;
  const PageLayout& stored_layout(int layer) const;
  const PageLayout& open_layout(int layer) const;

  // Sequences. Ids are reused after Free.
  Result<SequenceId> NewSequence();
  // A second timeline that shares every full page by reference count; only the open page (and a
  // sink page that is not full) is copied. Refused while a step of `seq` is running.
  Result<SequenceId> Fork(SequenceId seq);
  // Gives back every page that no other sequence shares; a running step is abandoned.
  Status Free(SequenceId seq);
  int64_t length(SequenceId seq) const;  // committed tokens; 0 for an unknown id

  // The longest step that may follow; 0: the context is used up, or there is no such sequence.
  int64_t max_step_tokens(SequenceId seq) const;
  // kOutOfRange beyond context_tokens, kOutOfMemory when the system or the budget refuses;
  // kInvalidArgument for more than max_step_tokens().
  Status Reserve(SequenceId seq, int64_t new_tokens);
  // k, v: [new_tokens][head_dim] of one KV head, row strides in values; new_tokens as reserved.
  // Where the geometry has a latent, v is that and k the RoPE key, of k_channels(). A
  // NaN, an infinity or a value that the open type cannot hold (also: before RoPE) is refused with
  // layer, head, position and channel named; nothing of the call is written then.
  Status Append(SequenceId seq, int layer, int kv_head, const float* k, int64_t k_stride,
                const float* v, int64_t v_stride, int64_t new_tokens);
  // What queries of page `query_page` (absolute page index) see of one head: pages of the running
  // step after its Seal and before its Release, else the page of the last token. In layers with a
  // window the first page holds tokens that only the earliest of the queries see.
  HeadView View(SequenceId seq, int layer, int kv_head, int64_t query_page) const;
  Status Seal(SequenceId seq, int layer, int kv_head);
  // Whether the policy judges by attention. Every step must then tell of it, once for each head of
  // such a layer, after its Seal: Seal refuses the next page otherwise (kInvalidArgument).
  bool measures_attention() const;
  bool measures_attention(int layer) const;
  // rows [new_tokens][group_ratio] of `stride` floats, AttentionTask::probabilities of the step's
  // queries. kOutOfMemory.
  Status AddAttention(SequenceId seq, int layer, int kv_head, const float* rows, int64_t stride);
  // Rows as AttentionTask::probabilities has them, of queries at the newest tokens, are sorted by
  // position; dropped tokens get 0. kOutOfMemory.
  Status SortByPosition(SequenceId seq, int layer, int kv_head, int64_t rows, int64_t stride,
                        float* probabilities) const;
  void Release(SequenceId seq, int layer, int kv_head);
  // REQUIRES: every head has been appended and sealed; new_tokens as reserved.
  void Commit(SequenceId seq, int64_t new_tokens);
  void Rollback(SequenceId seq);  // nothing to do where no step is running

  // Drops the newest tokens, exactly. Where a page that the shorter length reads as written is
  // gone, kOutOfRange names the earliest possible length. A page shared with a fork is copied when
  // the cut re-opens it, so kOutOfMemory is possible; nothing has changed then.
  Status Truncate(SequenceId seq, int64_t length);
  int64_t earliest_truncate(SequenceId seq) const;

  // Drops tokens [keep, keep + drop) and moves what follows down by `drop` positions. Pages keep
  // their tokens: drop is a multiple of page_tokens(), and where a layer is coded, keep is
  // spec().sinks_tokens or a multiple of page_tokens() that is not less, and all that goes lies in
  // stored pages. Values do not change. Keys after RoPE are turned back by `drop` positions; those
  // of stored pages are coded again for it, which the ledger counts, but for formats with pre_rope,
  // whose stored pages stay as they are. A sequence that another one shares pages with gets its
  // own. Layers with a window see what they would if they had kept all: kOutOfRange where that is
  // something they have given back. In layers of several widths each token keeps its
  // width. Where formats share figures over a page, all values of the pages behind the first token
  // that goes are rounded once more, and the newest page cannot be cut.
  //   ropes  [layers] how keys were turned; of at most k_channels() of the geometry
  // kInvalidArgument and kOutOfRange name what is impossible, kOutOfMemory; nothing has changed
  // then. kInvalidArgument too for a key that the type of its page cannot hold once it is turned.
  Status Shift(SequenceId seq, int64_t keep_tokens, int64_t drop_tokens,
               std::span<const Rope> ropes);
  // Whether that is possible for a sequence that grew to `length` tokens, and the least keep that
  // is, from keep_tokens on.
  Status CheckShift(int64_t length, int64_t keep_tokens, int64_t drop_tokens) const;
  int64_t PossibleKeep(int64_t keep_tokens) const;

  // One sequence as bytes and back: cache/snapshot.h. Save hands them to the sink piece by piece
  // and returns its first error; refused while a step of `seq` is running. Restore makes a new
  // sequence that equals the saved one, bit for bit. kInvalidArgument where the snapshot is of
  // another shape or format, kOutOfRange where it is longer than the context, kCorrupt,
  // kOutOfMemory: nothing has changed then.
  Status Save(SequenceId seq, const SnapshotLabel& label, const ByteSink& sink) const;
  Result<SequenceId> Restore(const Snapshot& snapshot);

  CacheLedger ledger() const;
  // Bytes that one decode step of this sequence reads, from the layouts.
  int64_t bytes_read_per_token(SequenceId seq) const;

  // For tests and for saving: the bytes of stored page `page`, or nullptr while it is open or coded
  // ahead of its readers, and once
  // its layer's window has passed it. Valid until the next change of the cache; a commit may move
  // it.
  const std::byte* StoredPage(SequenceId seq, int layer, int kv_head, int64_t page) const;

  // Positions of the tokens of one width, in the order of the two runs that hold them; empty where
  // there is no such pool. Valid like StoredPage, of which such a layer has none.
  std::span<const int32_t> PoolPositions(SequenceId seq, int layer, int kv_head, int width) const;

  struct PoolCount {
    int64_t page_bytes, used_pages, free_pages, total_pages;
  };
  std::vector<PoolCount> pool_counts() const;

 private:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
