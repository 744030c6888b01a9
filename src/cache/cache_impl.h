// What Cache::Impl holds, shared by the files that implement it: cache.cc (creation, sequences),
// cache_fork.cc (fork, truncate), cache_shift.cc and cache_shift_mixed.cc (shift), cache_step.cc
// (one step), cache_mixed.cc (layers of several widths), cache_mass.cc (their attention mass),
// cache_regroup.cc (places of pages), cache_view.cc (views, ledger), snapshot_cache.cc and
// snapshot_cache_mixed.cc (save, restore).
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/mixed_layer.h"
#include "cache/page_pool.h"
#include "cache/pool_edit.h"
#include "cache/sequence.h"
#include "codec/fitted_table.h"
#include "format/layer_layouts.h"
#include "format/page_rule.h"
#include "kvant/policy.h"

namespace kvant {

enum class PageUse {
  kKept,    // both sides float: written once, stays
  kStored,  // encoded
  kOpen,    // float copies that wait or serve as window
  kSink,
  kPooled,  // coded, of tokens of one width
  kTail,    // as written, of tokens that wait for their pool's next page
};

struct PoolEntry {
  PageLayout layout;
  PageUse use;
  bool passing;  // pages come and go while a sequence grows
  std::unique_ptr<PagePool> pool;
};

// A run, empty where no token is visible.
inline Run MakeRun(const PageLayout& layout, const std::byte* const* pages, int num_pages,
                   int64_t first_position, int64_t first_token, int64_t end_token) {
  if (end_token <= first_token) return {};
  return {&layout,
          pages,
          num_pages,
          static_cast<int>(first_position),
          static_cast<int>(first_token),
          static_cast<int>(end_token)};
}

// What is done to the vectors of a layer, head by head.
struct HeadRotations {
  std::vector<float> multipliers;   // [kv_heads][head_dim]; empty: ones
  const float* matrices = nullptr;  // [kv_heads][head_dim][head_dim], the calibration's
  bool hadamard = false;

  bool empty() const { return multipliers.empty() && matrices == nullptr; }
  Rotation Of(int kv_head, int head_dim) const {
    const int first = kv_head * head_dim;
    return {multipliers.empty() ? nullptr : multipliers.data() + first,
            matrices == nullptr ? nullptr : matrices + int64_t{first} * head_dim, hadamard};
  }
};

// One layer's layouts and the pools (indices into Impl::pools) that its pages come from.
struct LayerStore : LayerLayouts {
  int64_t window_tokens = 0;  // that a query sees; 0: all
  PageRule rule;
  int open_pool = -1, stored_pool = -1, sink_pool = -1;  // -1: the layer has no such pages
  // The levels that `stored` points to, where they are fitted.
  std::unique_ptr<const FittedTable> k_levels, v_levels;
  HeadRotations to_key, to_query, to_value;

  std::unique_ptr<MixedLayer> mixed;  // null: all tokens have one width, that of `stored`

  int rope = -1;  // into Impl::ropes; -1: pages hold K as Append got it

  bool rotated() const { return !to_key.empty() || !to_value.empty(); }
};

// kInvalidArgument unless there is one a layer, finite and of at most head_dim channels.
Status CheckLayerRopes(const KvGeometry& geometry, std::span<const Rope> ropes);

// What a shift does to tables of pages: [first, behind()) go, those behind close up. `partial`:
// the first tokens of page `first` stay, in front of what page behind() has after them.
struct PageGap {
  int first, pages;
  bool partial;

  int behind() const { return first + pages; }
  // What should stay of page `first` went already, with what a layer's window has passed: page
  // behind() is then not whole and goes too.
  bool LosesNext(const HeadPages& head) const { return partial && head.first_held() > first; }
  // Where a table begins that begins at `begin` before.
  int BeginAfter(int begin, bool loses_next) const {
    return begin <= first ? begin : std::max(begin - pages, first + (loses_next ? 1 : 0));
  }
};
class HeadTokens;
struct MixedSource;
struct MovedKeys;  // cache_shift.cc
struct KeysOfHead;
class PageTurner;
class PoolPacker;
class PageCopies;
struct SnapshotHeader;
struct SavedWidths;
struct SavedMixedHead;
class LayerWriter;

// What Append is given of one head: rows of head_dim values.
struct HeadRows {
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
};

// Pages that a step asks of one pool.
struct PageDemand {
  int64_t staying = 0;
  int64_t passing = 0;        // for as long as a layer is read; the most of any layer
  int64_t layer_passing = 0;  // those of the layer that is counted
};

struct Cache::Impl {
  Impl(const KvGeometry& g, const KvSpec& s, int64_t context, int64_t budget_bytes)
      : geometry(g), spec(s), context_tokens(context), budget(budget_bytes) {}

  const KvGeometry geometry;
  const KvSpec spec;
  const int64_t context_tokens;
  int page_tokens = kPageTokens;
  int window_pages = 0;
  PageBudget budget;
  std::vector<PoolEntry> pools;
  std::vector<LayerStore> layers;
  int64_t head_budget_bytes = 0;  // of a head of several widths that is not streaming; 0: none
  std::unique_ptr<const Policy> streaming;           // of heads that stream; null: there are none
  std::vector<const Policy*> mixed_policies;         // [layers][kv_heads]; empty: the spec's
  std::vector<KeyRopeTable> ropes;                   // distinct ones
  std::vector<std::unique_ptr<Sequence>> sequences;  // by id; nullptr: free
  int64_t recoded_tokens = 0;                        // of the ledger
  bool takes_turns = false;                          // heads of some layer: format/page_rule.h

  // Whether the running step does: only then does what is held change, beside the tokens written.
  bool OpensPages(const Sequence& seq) const {
    return PagesOf(seq.length) != PagesOf(seq.length + seq.step_tokens);
  }
  // Pages that `length` tokens touch.
  int PagesOf(int64_t length) const {
    return static_cast<int>((length + page_tokens - 1) / page_tokens);
  }

  Sequence* Find(SequenceId id) const;
  Status NoSequence(SequenceId id) const;
  HeadPages& HeadOf(Sequence& seq, int layer, int kv_head) const {
    return seq.heads[static_cast<size_t>(layer * geometry.kv_heads + kv_head)];
  }
  // As far as a head codes at `length`; it holds fewer after a shift and once restored, until its
  // next Seal.
  int SealedPages(const Sequence& seq, const LayerStore& layer, const HeadPages& head,
                  int64_t length) const {
    return layer.rule.SealedPages(length, &head - seq.heads.data(), std::ssize(seq.heads));
  }
  // Pages that are read as stored; what is coded ahead of its readers lies behind them.
  int DuePages(const LayerStore& layer, const HeadPages& head) const {
    if (layer.mixed != nullptr) return head.sealed;
    return std::min(head.sealed, layer.rule.DuePages(head.written_tokens));
  }
  PagePool& Pool(int index) const { return *pools[static_cast<size_t>(index)].pool; }

  // visit(const LayerStore&, HeadPages&) for every head, layer by layer.
  template <typename Visit>
  void ForEachHead(Sequence& seq, const Visit& visit) const {
    HeadPages* head = seq.heads.data();
    for (const LayerStore& layer : layers) {
      for (int h = 0; h < geometry.kv_heads; ++h) visit(layer, *head++);
    }
  }

  int PoolFor(const PageLayout& layout, PageUse use, bool passing);
  void AddLayer(const FormatPair& formats, int64_t window_tokens, bool is_mixed);
  void AddRope(const Rope& rope, LayerStore& layer);
  void AddLevels(const LayerCalibration& calibration, PageLayout& stored,
                 std::unique_ptr<const FittedTable>& k_levels,
                 std::unique_ptr<const FittedTable>& v_levels) const;
  // k_balance: of the layer; null: there is none
  void AddRotation(const float* k_balance, const LayerCalibration* calibration,
                   LayerStore& layer) const;
  std::unique_ptr<Sequence> MakeSequence() const;
  SequenceId Adopt(std::unique_ptr<Sequence> seq);

  // Gives back the stored pages from `sealed` on. A page whose tokens went to pools may have to
  // stay: cache_mixed.cc.
  void DropStored(const LayerStore& layer, HeadPages& head, int sealed) const;
  // Gives back pages [begin, end) of a table (none where begin >= end). credit may be null.
  void Drop(int pool, std::byte** pages, int begin, int end,
            PagePool::Reservation* credit = nullptr) const;
  void DropHead(const LayerStore& layer, HeadPages& head) const;
  void TrimPools() const;

  // cache_fork.cc
  Status MakeWritable(Sequence& seq, int64_t length) const;
  void ShareHead(const LayerStore& layer, const HeadPages& from, HeadPages& to) const;
  bool measures_attention() const;  // cache_mass.cc
  Status CheckTruncate(SequenceId id, int64_t length, int64_t earliest) const;

  // cache_shift.cc
  Status CheckShift(int64_t length, int64_t keep_tokens, int64_t drop_tokens) const;
  bool coded() const;  // whether any layer is
  PageGap GapOf(int64_t keep_tokens, int64_t drop_tokens) const;
  Status CheckReach(const PageGap& gap, int layer, const HeadPages& before, int64_t length) const;
  std::vector<MovedKeys> MovedKeysOf(Sequence& seq, const PageGap& gap) const;
  int64_t RecodedTokens(Sequence& seq, int first) const;
  void CloseGap(const LayerStore& layer, HeadPages& head, const PageGap& gap) const;

  // cache_shift_mixed.cc
  Result<PageTurner> MakeTurner(std::span<const Rope> layer_ropes, int64_t positions) const;
  KeysOfHead KeysOf(const Sequence& seq, const LayerStore& layer, const HeadPages& head) const;
  Status PlanPoolShift(Sequence& seq, const TokenGap& gap, PageTurner& turner,
                       PageCopies& copies) const;
  Status PlanPoolShift(const KeysOfHead& keys, const TokenGap& gap, size_t index,
                       PageTurner& turner, PageCopies& copies, HeadPool& pool) const;
  Status PlanPacking(const KeysOfHead& keys, const TokenGap& gap, size_t index, PageTurner& turner,
                     PageCopies& copies, HeadPool& pool) const;
  Result<PoolPacker> MakePacker() const;
  void ShiftPools(Sequence& seq, const TokenGap& gap, PageTurner& turner, PoolPacker& packer) const;
  int64_t RecodedPooledTokens(const LayerStore& layer, const HeadPages& head, int64_t from) const;

  // snapshot_cache.cc
  uint64_t CalibrationHash() const;
  SnapshotHeader HeaderOf(const Sequence& seq, uint64_t model_hash) const;
  Status CheckSnapshot(const SnapshotHeader& header) const;
  Status ReserveSnapshot(const SnapshotHeader& header, Sequence& seq) const;
  Status ReadPages(const Snapshot& snapshot, Sequence& seq) const;

  // snapshot_cache_mixed.cc
  SavedWidths WidthsOf(const Sequence& seq) const;
  Status SavePools(const LayerStore& layer, const HeadPages& head, LayerWriter& writer) const;
  Status CheckSavedWidths(const SavedWidths& saved) const;
  void AddSavedPages(const SavedWidths& saved, int layer, std::vector<int64_t>& demand) const;
  Status ReadPools(const SavedMixedHead& saved, const LayerStore& layer, Sequence& seq,
                   HeadPages& head, const std::byte*& from) const;

  // cache_step.cc
  void AddDemand(Sequence& seq, int layer, std::vector<PageDemand>& demand) const;
  Status ReservePages(Sequence& seq) const;
  void CancelReservations(Sequence& seq) const;
  Status CheckRows(const Sequence& seq, const LayerStore& store,
                   const std::function<std::string()>& place, const HeadRows& rows,
                   int64_t new_tokens) const;
  Status CheckPairs(const Sequence& seq, const KeyRope& rope,
                    const std::function<std::string()>& place, const HeadRows& rows,
                    int64_t new_tokens) const;
  Status EncodeK(const LayerStore& store, int page, const std::byte* open, int first_token,
                 std::byte* stored) const;
  Status MakePages(Sequence& seq, const LayerStore& layer, HeadPages& head) const;
  void ReleaseStepPages(Sequence& seq, const LayerStore& layer, HeadPages& head) const;
  void CloseHead(const Sequence& seq, const LayerStore& layer, HeadPages& head) const;
  void Compact(Sequence& seq) const;

  // cache_mixed.cc
  void AddMixedLayer(const LayerCalibration* calibration, LayerStore& layer);
  Status AddHeadClasses();
  void ShareBudget();
  // A head, layer by layer.
  bool streams(size_t head) const {
    return !mixed_policies.empty() && mixed_policies[head] == streaming.get();
  }
  PoolPages PagesOf(const LayerStore& layer, size_t pool) const;
  Status ClosePages(const Sequence& seq, const LayerStore& layer, HeadPages& head) const;
  void ReopenPages(const LayerStore& layer, HeadPages& head, int sealed) const;
  void SharePools(const LayerStore& layer, const HeadPages& from, HeadPages& to) const;
  void DropPools(const LayerStore& layer, HeadPages& head) const;
  void AddPoolRuns(const LayerStore& layer, const HeadPages& head, HeadView& view) const;
  void AddWidths(CacheLedger& ledger) const;

  // cache_mass.cc
  int sums_per_token() const;  // 0: the policy asks for none
  Status CheckMass(const HeadPages& head, int64_t length) const;
  Status CheckAllMass(Sequence& seq) const;
  void ShiftMass(const TokenGap& gap, int64_t length, HeadPages& head) const;
  void MoveMass(const HeadTokens& tokens, int64_t length, HeadPages& head,
                std::vector<float> moved) const;
  void CommitMass(HeadPages& head) const;

  // cache_regroup.cc: pages that came one by one lie as far apart as there are heads; every
  // kRunPages of them change places so that those of a head are neighbours, or near where other
  // sequences grow too. An int4 page (D 64,
  // G 3, Zen 4) takes 498 ns to attend to where it lies alone, 310 in a run of 8, 289 in a long
  // one.
  static constexpr int kRunPages = 8;
  void Regroup(Sequence& seq, int64_t length_before) const;
  void RegroupPooled(Sequence& seq, size_t pool) const;
};

}  // namespace kvant
