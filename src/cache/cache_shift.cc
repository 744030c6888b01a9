// Shift: tokens from the middle of a sequence go, those behind them move down.
//
// Two passes. The first turns every key that will move, checks that it can still be stored and
// allocates what is needed; the second turns it again and writes it, and cannot fail. Keeping what
// the first one made would take a second cache.
#include "cache/cache_impl.h"
#include "cache/page_copies.h"
#include "cache/page_turner.h"
#include "cache/pool_packer.h"
#include "codec/token_copy.h"

namespace kvant {

// The K side of a page that moves and holds keys after RoPE.
struct MovedKeys {
  KeysOfHead head;
  std::byte** page;
  int64_t position;  // of its first token, after the shift
  int tokens;        // written ones
  bool stored;       // a page of stored_pool, else of open_pool

  const LayerStore& layer() const { return *head.store; }
  const PageLayout& layout() const { return stored ? layer().stored : layer().open; }
};

bool Cache::Impl::coded() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerStore& l) { return l.coded; });
}

int64_t Cache::PossibleKeep(int64_t keep_tokens) const {
  if (!impl_->coded()) return keep_tokens;
  const int64_t sinks = impl_->spec.sinks_tokens, page_tokens = impl_->page_tokens;
  if (keep_tokens <= sinks) return sinks;
  return (keep_tokens + page_tokens - 1) / page_tokens * page_tokens;
}

Status Cache::CheckShift(int64_t length, int64_t keep_tokens, int64_t drop_tokens) const {
  KVANT_RETURN_IF_ERROR(impl_->CheckShift(length, keep_tokens, drop_tokens));
  const PageGap gap = impl_->GapOf(keep_tokens, drop_tokens);
  for (int layer = 0; layer < impl_->geometry.layers; ++layer) {
    const PageRule& rule = impl_->layers[static_cast<size_t>(layer)].rule;
    HeadPages grown;
    grown.first_open = rule.FirstOpen(length);
    grown.first_stored = rule.FirstStored(length);
    grown.sealed = rule.DuePages(length);
    KVANT_RETURN_IF_ERROR(impl_->CheckReach(gap, layer, grown, length - drop_tokens));
  }
  return Status::Ok();
}

Status Cache::Impl::CheckShift(int64_t length, int64_t keep, int64_t drop) const {
  const auto refuse = [&](StatusCode code, const std::string& why) {
    return Status(code, "a sequence of " + std::to_string(length) + " tokens cannot drop " +
                            std::to_string(drop) + " behind the first " + std::to_string(keep) +
                            ": " + why);
  };
  if (keep < 0 || drop < 1 || drop % page_tokens != 0) {
    return refuse(StatusCode::kInvalidArgument,
                  "whole pages go, of " + std::to_string(page_tokens) + " tokens");
  }
  if (keep >= length || drop >= length - keep) {
    return refuse(StatusCode::kOutOfRange, "nothing would follow them");
  }
  if (!coded()) return Status::Ok();
  if (keep != spec.sinks_tokens && (keep < spec.sinks_tokens || keep % page_tokens != 0)) {
    return refuse(StatusCode::kInvalidArgument, "the " + std::to_string(spec.sinks_tokens) +
                                                    " sinks can stay, or whole pages of " +
                                                    std::to_string(page_tokens));
  }
  // All layers alike, whether they hold stored pages or see their newest tokens only.
  const int sealed = PageRule::Of(page_tokens, true, spec.window_tokens, 0).DuePages(length);
  if ((keep + drop) / page_tokens > sealed) {
    return refuse(StatusCode::kOutOfRange,
                  "the newest " + std::to_string(PagesOf(length) - sealed) + " pages of " +
                      std::to_string(page_tokens) + " tokens are its window and stay as written");
  }
  return Status::Ok();
}

PageGap Cache::Impl::GapOf(int64_t keep, int64_t drop) const {
  return {static_cast<int>(keep / page_tokens), static_cast<int>(drop / page_tokens),
          keep % page_tokens != 0};
}

// What comes before the tokens that move may have left a layer's window: it is refused where
// queries would see it again. length: after the shift.
Status Cache::Impl::CheckReach(const PageGap& gap, int layer, const HeadPages& before,
                               int64_t length) const {
  const LayerStore& store = layers[static_cast<size_t>(layer)];
  const bool loses_next = gap.LosesNext(before);
  const int first_open = gap.BeginAfter(before.first_open, loses_next);
  const int first_stored = before.sealed == 0 ? 0 : gap.BeginAfter(before.first_stored, loses_next);
  const int64_t least = store.rule.EarliestCut(first_open, first_stored);
  if (least <= length) return Status::Ok();
  return Status::OutOfRange(
      "a shift to " + std::to_string(length) + " tokens cannot be: layer " + std::to_string(layer) +
      " sees its newest " + std::to_string(store.window_tokens) + " tokens, and with fewer than " +
      std::to_string(least) + " some that it has given back would be among them");
}

// The spare open page before the window may be one of those that go. What was coded ahead is coded
// again from what moved, so that a shift gives the same bytes whether or not its turn had come.
void Cache::Impl::CloseGap(const LayerStore& layer, HeadPages& head, const PageGap& gap) const {
  const bool loses_next = gap.LosesNext(head);
  const int behind = gap.behind() + (loses_next ? 1 : 0);
  DropStored(layer, head, DuePages(layer, head));
  const auto close = [&](int pool, std::byte** table, int* begin, int* end) {
    if (*end == 0) return;
    Drop(pool, table, std::max(*begin, gap.first), behind);
    const int from = std::max(*begin, behind);
    std::copy(table + from, table + *end, table + from - gap.pages);
    *begin = gap.BeginAfter(*begin, loses_next);
    *end -= gap.pages;
  };
  close(layer.open_pool, head.open, &head.first_open, &head.open_end);
  if (layer.mixed == nullptr) {
    close(layer.stored_pool, head.stored, &head.first_stored, &head.sealed);
  } else {
    head.sealed -= gap.pages;
  }
}

// In stored pages of layers whose format is pre_rope, keys have no position. Pools are another
// matter: cache_shift_mixed.cc.
std::vector<MovedKeys> Cache::Impl::MovedKeysOf(Sequence& seq, const PageGap& gap) const {
  std::vector<MovedKeys> moved;
  const auto add = [&](int layer, int kv_head, std::byte** page, int p, bool stored) {
    const int64_t before = static_cast<int64_t>(p) * page_tokens;
    moved.push_back({{&layers[static_cast<size_t>(layer)], layer, kv_head},
                     page,
                     before - static_cast<int64_t>(gap.pages) * page_tokens,
                     static_cast<int>(std::min<int64_t>(page_tokens, seq.length - before)),
                     stored});
  };
  for (int layer = 0; layer < geometry.layers; ++layer) {
    for (int h = 0; h < geometry.kv_heads; ++h) {
      const HeadPages& head = HeadOf(seq, layer, h);
      const int behind = gap.behind() + (gap.LosesNext(head) ? 1 : 0);
      for (int p = std::max(head.first_open, behind); p < head.open_end; ++p) {
        add(layer, h, &head.open[p], p, false);
      }
      const LayerStore& store = layers[static_cast<size_t>(layer)];
      if (store.rope >= 0 || store.mixed != nullptr) continue;
      const int due = DuePages(store, head);
      for (int p = std::max(head.first_stored, behind); p < due; ++p) {
        add(layer, h, &head.stored[p], p, true);
      }
    }
  }
  return moved;
}

// Tokens of stored pages that a shift has coded again, in the layer that holds most of them.
int64_t Cache::Impl::RecodedTokens(Sequence& seq, int first) const {
  int64_t most = 0;
  ForEachHead(seq, [&](const LayerStore& layer, const HeadPages& head) {
    if (layer.mixed != nullptr) {
      most = std::max(most, RecodedPooledTokens(layer, head, int64_t{first} * page_tokens));
      return;
    }
    const int begin = std::max(first, head.first_stored);
    if (layer.stored.k.format.is_float() || layer.rope >= 0 || begin >= head.sealed) return;
    const int64_t tokens = static_cast<int64_t>(head.sealed - begin) * page_tokens;
    most = std::max(most, tokens - (begin == 0 ? spec.sinks_tokens : 0));
  });
  return most;
}

Status Cache::Shift(SequenceId id, int64_t keep_tokens, int64_t drop_tokens,
                    std::span<const Rope> ropes) {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  if (seq->step_tokens != 0) {
    return Status::InvalidArgument("sequence " + std::to_string(id) +
                                   " cannot be shifted while a step of it is running");
  }
  KVANT_RETURN_IF_ERROR(impl_->CheckShift(seq->length, keep_tokens, drop_tokens));
  KVANT_RETURN_IF_ERROR(CheckLayerRopes(impl_->geometry, ropes));
  KVANT_RETURN_IF_ERROR(impl_->CheckAllMass(*seq));
  const int page_tokens = impl_->page_tokens, sinks = impl_->spec.sinks_tokens;
  const PageGap gap = impl_->GapOf(keep_tokens, drop_tokens);
  const int64_t length = seq->length - drop_tokens;
  for (int layer = 0; layer < impl_->geometry.layers; ++layer) {
    // One that was cut may hold less than others of its length.
    KVANT_RETURN_IF_ERROR(impl_->CheckReach(gap, layer, impl_->HeadOf(*seq, layer, 0), length));
  }

  KVANT_ASSIGN_OR_RETURN(PageTurner turner, impl_->MakeTurner(ropes, drop_tokens));
  KVANT_ASSIGN_OR_RETURN(PoolPacker packer, impl_->MakePacker());
  PageCopies copies;
  const std::vector<MovedKeys> moved = impl_->MovedKeysOf(*seq, gap);
  const auto turn = [&](const MovedKeys& keys) {
    turner.Decode(keys.layout().k, *keys.page);
    turner.Turn(keys.head, 0, keys.tokens);
  };
  for (const MovedKeys& keys : moved) {
    const LayerStore& layer = keys.layer();
    PagePool& pool = impl_->Pool(keys.stored ? layer.stored_pool : layer.open_pool);
    KVANT_RETURN_IF_ERROR(copies.Add(&pool, keys.layout(), keys.page));
    turn(keys);
    KVANT_RETURN_IF_ERROR(turner.Check(keys.head, 0, keys.tokens, keys.position));
  }
  const TokenGap tokens{keep_tokens, drop_tokens};
  KVANT_RETURN_IF_ERROR(impl_->PlanPoolShift(*seq, tokens, turner, copies));

  copies.Apply();
  for (const MovedKeys& keys : moved) {
    turn(keys);
    if (keys.stored) {
      turner.Encode(keys.layer(), keys.tokens, keys.position == 0 ? sinks : 0, *keys.page);
    } else {
      turner.Write(keys.layer(), keys.tokens, *keys.page);
    }
  }
  impl_->ShiftPools(*seq, tokens, turner, packer);
  impl_->ForEachHead(*seq, [&](const LayerStore& layer, HeadPages& head) {
    if (!layer.coded && gap.partial && !gap.LosesNext(head)) {
      for (int t = 0; t < keep_tokens % page_tokens; ++t) {
        CopyToken(layer.open, head.open[gap.first], t, head.open[gap.behind()], t);
      }
    }
    impl_->CloseGap(layer, head, gap);
    head.written_tokens = length;
  });
  seq->length = length;
  impl_->recoded_tokens += impl_->RecodedTokens(*seq, gap.first);
  impl_->TrimPools();
  return Status::Ok();
}

}  // namespace kvant
