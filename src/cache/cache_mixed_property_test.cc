// Append, abandon, fork, cut, save, restore and free in any order, with tokens of several widths.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "cache/mixed_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::ExpectKeptAsChosen;
using testing::ExpectPoolsBalance;
using testing::ExtendMixed;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::RestoreInto;
using testing::RunStep;
using testing::Saved;
using testing::SoloMixedPictureOf;
using testing::Timeline;
using testing::UsedPages;

constexpr KvGeometry kTiny{1, 2, 16, 2};

constexpr int64_t kContextTokens = 4096;  // of MakeCache

struct Mode {
  const char* pools;
  WidthOf width_of;
  bool once;
};
const Mode kModes[] = {
    {"16+8=int8+4=tq4:mean:n8/tq4:n8+2=int2:channel:g16/int2:token:g16", HashedWidth, true},
    {kTokenPools, HashedWidth, false},
    {kTokenPools, AgeingWidth, false}};

class World {
 public:
  World(const Mode& mode, int sinks, int window)
      : mode_(mode),
        spec_(MakeMixedSpec(mode.pools, mode.width_of, mode.once, sinks, window)),
        cache_(MakeCache(kTiny, spec_)) {}

  void Do(int what, int amount) {
    if (lines_.empty() || what == 0) {
      if (lines_.size() < 4) lines_[NewSequence(*cache_)] = {};
      return;
    }
    const auto line = std::next(lines_.begin(), amount % static_cast<int>(lines_.size()));
    const SequenceId id = line->first;
    Timeline& tokens = line->second;
    if (what < 7 && std::ssize(tokens) + std::max(amount, 5) > kContextTokens) return;
    if (what < 6) {
      Grow(tokens, amount);
      ExtendMixed(*cache_, id, tokens, static_cast<int64_t>(tokens.size()));
    } else if (what == 6) {
      Timeline draft = tokens;
      Grow(draft, amount % 5 + 1);
      const int64_t count = std::min<int64_t>(cache_->max_step_tokens(id),
                                              static_cast<int64_t>(draft.size() - tokens.size()));
      RC_ASSERT(RunStep(*cache_, id, draft, count, [](int, int) {}).ok());
      cache_->Rollback(id);
    } else if (what == 7 && lines_.size() < 4) {
      const Result<SequenceId> child = cache_->Fork(id);
      RC_ASSERT(child.ok());
      lines_[*child] = tokens;
    } else if (what == 8) {
      const int64_t length = std::max<int64_t>(0, cache_->length(id) - amount);
      const bool possible = length == cache_->length(id) || length >= cache_->earliest_truncate(id);
      RC_ASSERT(cache_->Truncate(id, length).ok() == possible);
      if (possible) tokens.resize(static_cast<size_t>(length));
    } else if (what == 9) {
      RC_ASSERT(cache_->Free(id).ok());
      lines_.erase(line);
    } else if (what == 10) {
      const testing::Bytes bytes = Saved(*cache_, id);
      const Result<SequenceId> again = RestoreInto(*cache_, bytes);
      RC_ASSERT(again.ok());
      RC_ASSERT(Saved(*cache_, *again) == bytes);
      RC_ASSERT(cache_->earliest_truncate(*again) == cache_->earliest_truncate(id));
      RC_ASSERT(cache_->Free(id).ok());
      const Timeline same = tokens;
      lines_.erase(line);
      lines_[*again] = same;
    }
  }

  void Check() const {
    ExpectPoolsBalance(*cache_);
    for (const auto& [id, tokens] : lines_) {
      if (IsAhead(tokens)) continue;
      ExpectKeptAsChosen(*cache_, id, mode_.width_of);
    }
    RC_ASSERT(!::testing::Test::HasFailure());
  }
  void CheckAgainstStraightRuns() const {
    for (const auto& [id, tokens] : lines_) {
      const auto length = static_cast<int64_t>(tokens.size());
      if (IsAhead(tokens)) continue;
      RC_ASSERT(MixedPictureOf(*cache_, id) == SoloMixedPictureOf(kTiny, spec_, tokens, length));
    }
  }
  void FreeAll() {
    for (const auto& [id, tokens] : lines_) RC_ASSERT(cache_->Free(id).ok());
    RC_ASSERT(UsedPages(*cache_) == 0);
  }

 private:
  void Grow(Timeline& tokens, int count) {
    for (int i = 0; i < count; ++i) tokens.push_back(++next_token_);
  }
  // Where stored tokens leave, a page that came for a step that was abandoned stays in the pools.
  bool IsAhead(const Timeline& tokens) const {
    return !mode_.once && tokens.size() % kPageTokens == 0;
  }

  const Mode& mode_;
  const KvSpec spec_;
  std::unique_ptr<Cache> cache_;
  std::map<SequenceId, Timeline> lines_;
  uint32_t next_token_ = 0;
};

RC_GTEST_PROP(CacheMixedProperty, AnythingInAnyOrderLeavesWhatAStraightRunLeaves, ()) {
  const Mode& mode = kModes[*rc::gen::inRange(0, 3)];
  World world(mode, *rc::gen::element(0, 4, 64), *rc::gen::element(0, 64, 128));
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 11), rc::gen::resize(100, rc::gen::inRange(0, 200))));
  for (const auto& [what, amount] : steps) {
    world.Do(what, amount);
    world.Check();
  }
  world.CheckAgainstStraightRuns();
  world.FreeAll();
  world.Check();
}

}  // namespace
}  // namespace kvant
