// Any order of appends, forks, cuts, shifts, saves, restores and frees over several sequences of
// one cache: each is what it would be alone, and no page is lost.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cache/cache_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::Picture;
using testing::Timeline;

constexpr KvGeometry kTiny{2, 1, 16, 1};
constexpr int64_t kContext = 700;

const char* const kFormats[][2] = {{"int4", "int4"},
                                   {"f16", "f16"},
                                   {"tq4:mean:n8", "tq3:n8"},
                                   {"int4:prerope:out1", "int4:out1"},
                                   {"tc2", "f32"},
                                   {"int2:channel:g16", "q4_0"},
                                   {"f16", "int8"},
                                   {"int3:channel:g128", "int3"}};

// Chosen by the test; what the numbers mean depends on what is alive.
struct Operation {
  int kind = 0;
  uint32_t who = 0, amount = 0;
};
std::ostream& operator<<(std::ostream& out, const Operation& op) {
  return out << '{' << op.kind << ", " << op.who << ", " << op.amount << '}';
}

// What was done to one sequence, as short as it can be told.
struct Event {
  enum Kind { kGrow, kCut, kShift } kind;
  int64_t keep = 0, drop = 0;  // kShift
  int64_t length = 0;          // after it
};

class Line {
 public:
  int64_t length() const { return events_.empty() ? 0 : events_.back().length; }
  const Timeline& tokens() const { return tokens_; }

  // The tokens of a step, which Grow then takes.
  Timeline With(int64_t count, uint32_t seed) const {
    Timeline grown = tokens_;
    for (int64_t i = 0; i < count; ++i) grown.push_back(seed * 7919u + static_cast<uint32_t>(i));
    return grown;
  }
  void Grow(Timeline grown) {
    tokens_ = std::move(grown);
    const auto length = static_cast<int64_t>(tokens_.size());
    if (!events_.empty() && events_.back().kind == Event::kGrow) {
      events_.pop_back();
      appended_.pop_back();
    }
    events_.push_back({Event::kGrow, 0, 0, length});
    appended_.push_back(tokens_);
  }
  void Cut(int64_t to) {
    tokens_.resize(static_cast<size_t>(to));
    // Back inside the last growth: it was a shorter one.
    const int64_t before = events_.size() < 2 ? 0 : events_[events_.size() - 2].length;
    if (!events_.empty() && events_.back().kind == Event::kGrow && to > before) {
      events_.back().length = to;
      appended_.back() = tokens_;
      return;
    }
    if (to == length()) return;
    events_.push_back({Event::kCut, 0, 0, to});
    appended_.push_back({});
  }
  void Shift(int64_t keep, int64_t drop) {
    tokens_.erase(tokens_.begin() + keep, tokens_.begin() + keep + drop);
    events_.push_back({Event::kShift, keep, drop, static_cast<int64_t>(tokens_.size())});
    appended_.push_back({});
  }

  // A fresh cache to which the same was done and nothing else.
  Picture Alone(const KvSpec& spec, const std::vector<Rope>& ropes) const {
    auto cache = MakeCache(kTiny, spec, kContext);
    const SequenceId seq = NewSequence(*cache);
    for (size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      if (event.kind == Event::kGrow) {
        testing::ExtendTo(*cache, seq, appended_[i], event.length, 4096);
      } else if (event.kind == Event::kCut) {
        RC_ASSERT(cache->Truncate(seq, event.length).ok());
      } else {
        RC_ASSERT(cache->Shift(seq, event.keep, event.drop, ropes).ok());
      }
    }
    return testing::PictureOf(*cache, seq);
  }

 private:
  Timeline tokens_;
  std::vector<Event> events_;
  std::vector<Timeline> appended_;  // of each growth, the whole timeline
};

// A cache, its sequences and what is known of them.
class World {
 public:
  explicit World(const KvSpec& spec)
      : spec_(spec),
        ropes_(2, UsualRope(kTiny.head_dim)),
        cache_(MakeCache(kTiny, spec, kContext)) {}

  void Do(const Operation& op) {
    if (live_.empty() || op.kind == 0) {
      if (live_.size() < 5) live_[NewSequence(*cache_)] = {};
      return;
    }
    const auto it = std::next(live_.begin(), static_cast<std::ptrdiff_t>(op.who % live_.size()));
    const SequenceId id = it->first;
    Line& line = it->second;
    if (op.kind < 3) return Grow(id, line, 1 + op.amount % 12, op.amount, false);
    if (op.kind < 8) return Grow(id, line, 1 + op.amount % 260, op.amount, false);
    if (op.kind < 9) return Grow(id, line, 1 + op.amount % 150, op.amount, true);
    if (op.kind < 11) return Cut(id, line, op.amount);
    if (op.kind < 14) return Shift(id, line, op.amount);
    if (op.kind < 16) return Save(id, line);
    if (op.kind < 17) return Restore();
    if (op.kind < 19) return Fork(id, line);
    RC_ASSERT(cache_->Free(id).ok());
    live_.erase(it);
  }

  int shifts() const { return shifts_; }

  void CheckPools() const {
    int64_t total_bytes = 0;
    for (const Cache::PoolCount& c : cache_->pool_counts()) {
      RC_ASSERT(c.free_pages + c.used_pages == c.total_pages);
      total_bytes += c.total_pages * c.page_bytes;
    }
    RC_ASSERT(total_bytes == cache_->ledger().allocated_bytes);
  }
  void CheckLines() const {
    for (const auto& [id, line] : live_) {
      RC_ASSERT(cache_->length(id) == line.length());
      RC_ASSERT(testing::PictureOf(*cache_, id) == line.Alone(spec_, ropes_));
    }
  }
  void FreeAll() {
    for (const auto& [id, line] : live_) RC_ASSERT(cache_->Free(id).ok());
    live_.clear();
    RC_ASSERT(testing::UsedPages(*cache_) == 0);
    CheckPools();
  }

 private:
  void Grow(SequenceId id, Line& line, int64_t count, uint32_t seed, bool abandon) {
    Timeline grown = line.With(count, seed);
    const Status status = testing::RunStep(*cache_, id, grown, count, [](int, int) {});
    if (static_cast<int64_t>(grown.size()) > kContext) {
      RC_ASSERT(status.code() == StatusCode::kOutOfRange);
    } else if (abandon) {
      RC_ASSERT(status.ok());
      cache_->Rollback(id);
    } else {
      RC_ASSERT(status.ok());
      cache_->Commit(id, count);
      line.Grow(std::move(grown));
    }
  }
  void Fork(SequenceId id, const Line& line) {
    if (live_.size() >= 5) return;
    const Result<SequenceId> child = cache_->Fork(id);
    RC_ASSERT(child.ok());
    live_[*child] = Line(line);
  }
  void Cut(SequenceId id, Line& line, uint32_t amount) {
    const int64_t to = line.length() - std::min<int64_t>(line.length(), amount % 150);
    const bool possible = to == line.length() || to >= cache_->earliest_truncate(id);
    RC_ASSERT(cache_->Truncate(id, to).ok() == possible);
    if (possible) line.Cut(to);
  }
  void Shift(SequenceId id, Line& line, uint32_t amount) {
    const int64_t keep = cache_->PossibleKeep(amount / 4 % 200);
    const int64_t drop = (1 + amount % 3) * cache_->page_tokens();
    const bool possible = cache_->CheckShift(line.length(), keep, drop).ok();
    RC_ASSERT(cache_->Shift(id, keep, drop, ropes_).ok() == possible);
    if (possible) line.Shift(keep, drop);
    if (possible) ++shifts_;
  }
  void Save(SequenceId id, const Line& line) {
    saved_ = testing::Saved(*cache_, id);
    saved_line_ = line;
  }
  void Restore() {
    if (saved_.empty() || live_.size() >= 5) return;
    const Result<SequenceId> id = testing::RestoreInto(*cache_, saved_);
    RC_ASSERT(id.ok());
    live_[*id] = saved_line_;
  }

  KvSpec spec_;
  std::vector<Rope> ropes_;
  std::unique_ptr<Cache> cache_;
  std::map<SequenceId, Line> live_;
  int shifts_ = 0;
  std::vector<std::byte> saved_;  // the newest
  Line saved_line_;
};

// Over the whole range, however small the case.
template <typename T>
rc::Gen<T> Even(T low, T end) {
  return rc::gen::resize(100, rc::gen::inRange(low, end));
}

rc::Gen<std::vector<Operation>> Operations() {
  return rc::gen::container<std::vector<Operation>>(rc::gen::build<Operation>(
      rc::gen::set(&Operation::kind, Even(0, 20)), rc::gen::set(&Operation::who, Even(0u, 5u)),
      rc::gen::set(&Operation::amount, Even(0u, 1u << 20))));
}

// RC_PARAMS, such as "seed=…", repeats a failure or asks for more.
const int kParametersSet = setenv("RC_PARAMS", "max_success=400 max_size=60", 0);

TEST(CacheTimelines, AreWhatTheyWouldBeAloneInAnyOrder) {
  ASSERT_EQ(kParametersSet, 0);
  const bool holds = rc::check([] {
    const auto& pair = kFormats[*Even(0, 8)];
    KvSpec spec = MakeSpec(pair[0], pair[1], *rc::gen::element(0, 4, 17, 64), 64 * *Even(0, 3));
    if (*Even(0, 4) == 0) spec.skip_layers = {1};
    World world(spec);
    for (const Operation& op : *Operations()) {
      world.Do(op);
      world.CheckPools();
    }
    world.CheckLines();
    world.FreeAll();
    RC_CLASSIFY(world.shifts() > 0, "shifted");
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace kvant
