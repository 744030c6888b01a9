// Append, abandon, fork, cut, shift, save, restore and free in any order, with tokens of several
// widths.
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
using testing::ExpectSinksAndWindow;
using testing::ExtendMixed;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::Picture;
using testing::RestoreInto;
using testing::RunStep;
using testing::Saved;
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
    {kTokenPools, AgeingWidth, false},
    {kTokenPools, HashedWidth, true}};

// A sequence, told as what to do in a fresh cache to get it.
struct Line {
  struct Event {  // once the sequence has grown to `tokens`
    Timeline tokens;
    int64_t cut_to = -1;  // or it is shifted:
    int64_t keep = 0, drop = 0;
  };
  std::vector<Event> events;  // from the first shift on; before it cuts leave no trace
  Timeline tokens;
  // False: it was shifted while a page was in the pools that came for an abandoned step.
  bool is_known = true;

  int64_t length() const { return std::ssize(tokens); }
};

class World {
 public:
  World(const Mode& mode, int sinks, int window)
      : mode_(mode),
        spec_(MakeMixedSpec(mode.pools, mode.width_of, mode.once, sinks, window)),
        ropes_(testing::UsualRopes(kTiny)),
        cache_(MakeCache(kTiny, spec_)) {}

  void Do(int what, int amount) {
    if (lines_.empty() || what == 0) {
      if (lines_.size() < 4) lines_[NewSequence(*cache_)] = {};
      return;
    }
    const auto line = std::next(lines_.begin(), amount % static_cast<int>(lines_.size()));
    const SequenceId id = line->first;
    Timeline& tokens = line->second.tokens;
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
      lines_[*child] = Line(line->second);
    } else if (what == 8) {
      const int64_t length = std::max<int64_t>(0, cache_->length(id) - amount);
      const bool possible = length == cache_->length(id) || length >= cache_->earliest_truncate(id);
      RC_ASSERT(cache_->Truncate(id, length).ok() == possible);
      if (possible) Cut(line->second, length);
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
      const Line same = line->second;
      lines_.erase(line);
      lines_[*again] = same;
    } else if (what >= 11) {
      Shift(id, line->second, amount);
    }
  }

  void Check() const {
    ExpectPoolsBalance(*cache_);
    for (const auto& [id, line] : lines_) {
      if (!line.events.empty()) ExpectSinksAndWindow(*cache_, id);
      if (IsAhead(line.tokens) || !line.events.empty()) continue;
      ExpectKeptAsChosen(*cache_, id, mode_.width_of);
    }
    RC_ASSERT(!::testing::Test::HasFailure());
  }
  void CheckAgainstStraightRuns() const {
    for (const auto& [id, line] : lines_) {
      if (IsAhead(line.tokens) || !line.is_known) continue;
      RC_ASSERT(MixedPictureOf(*cache_, id) == Alone(line));
    }
  }
  int shifts() const { return shifts_; }
  void FreeAll() {
    for (const auto& [id, line] : lines_) RC_ASSERT(cache_->Free(id).ok());
    RC_ASSERT(UsedPages(*cache_) == 0);
  }

 private:
  static void Cut(Line& line, int64_t to) {
    if (!line.events.empty() && to < line.length()) {
      line.events.push_back({.tokens = line.tokens, .cut_to = to});
    }
    line.tokens.resize(static_cast<size_t>(to));
  }
  void Shift(SequenceId id, Line& line, int amount) {
    const int64_t keep = cache_->PossibleKeep(amount % 150), drop = 64 * (1 + amount % 3);
    const bool possible = cache_->CheckShift(line.length(), keep, drop).ok();
    RC_ASSERT(cache_->Shift(id, keep, drop, ropes_).ok() == possible);
    if (!possible) return;
    line.is_known &= !IsAhead(line.tokens);
    line.events.push_back({.tokens = line.tokens, .keep = keep, .drop = drop});
    line.tokens.erase(line.tokens.begin() + keep, line.tokens.begin() + keep + drop);
    ++shifts_;
  }
  Picture Alone(const Line& line) const {
    auto cache = MakeCache(kTiny, spec_);
    const SequenceId seq = NewSequence(*cache);
    for (const Line::Event& event : line.events) {
      ExtendMixed(*cache, seq, event.tokens, std::ssize(event.tokens));
      const Status status = event.cut_to >= 0 ? cache->Truncate(seq, event.cut_to)
                                              : cache->Shift(seq, event.keep, event.drop, ropes_);
      RC_ASSERT(status.ok());
    }
    ExtendMixed(*cache, seq, line.tokens, line.length());
    return MixedPictureOf(*cache, seq);
  }
  void Grow(Timeline& tokens, int count) {
    for (int i = 0; i < count; ++i) tokens.push_back(++next_token_);
  }
  // Where stored tokens leave, a page that came for a step that was abandoned stays in the pools.
  bool IsAhead(const Timeline& tokens) const {
    return !mode_.once && tokens.size() % kPageTokens == 0;
  }

  const Mode& mode_;
  const KvSpec spec_;
  const std::vector<Rope> ropes_;
  std::unique_ptr<Cache> cache_;
  std::map<SequenceId, Line> lines_;
  uint32_t next_token_ = 0;
  int shifts_ = 0;
};

RC_GTEST_PROP(CacheMixedProperty, AnythingInAnyOrderLeavesWhatAStraightRunLeaves, ()) {
  const Mode& mode = kModes[*rc::gen::inRange(0, 4)];
  World world(mode, *rc::gen::element(0, 4, 64), *rc::gen::element(0, 64, 128));
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 13), rc::gen::resize(100, rc::gen::inRange(0, 200))));
  for (const auto& [what, amount] : steps) {
    world.Do(what, amount);
    world.Check();
  }
  world.CheckAgainstStraightRuns();
  RC_CLASSIFY(world.shifts() > 0, "shifted");
  world.FreeAll();
  world.Check();
}

}  // namespace
}  // namespace kvant
