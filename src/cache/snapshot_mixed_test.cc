// Snapshots of sequences whose tokens have several widths.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "base/xxh64.h"
#include "cache/mixed_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::Bytes;
using testing::ExpectPoolsBalance;
using testing::ExtendMixed;
using testing::HeaderBytes;
using testing::MakeCache;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::Resealed;
using testing::RestoreInto;
using testing::RunStep;
using testing::Saved;
using testing::ScopedAllocate;
using testing::SoloMixedPictureOf;
using testing::Timeline;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 2, 32, 4};
constexpr char kPagePools[] = "16+8=int8+4=tq4:mean:n8/tq4:n8+2=int2:channel:g16/int2:token:g16";

// Tails and spare tails, tokens that leave, and a layer of one width.
std::vector<KvSpec> AllSpecs() {
  std::vector<KvSpec> specs = {MakeMixedSpec(kPagePools, HashedWidth, true),
                               MakeMixedSpec(kPagePools, HashedWidth, true, 0, 0),
                               MakeMixedSpec(kTokenPools, HashedWidth),
                               MakeMixedSpec(kTokenPools, AgeingWidth, false, 64, 128)};
  specs.push_back(specs[2]);
  specs.back().skip_layers = {0};
  return specs;
}

// Every policy that sums up attention.
std::vector<KvSpec> HeardSpecs() {
  std::vector<KvSpec> specs;
  for (const char* policy :
       {"h2o:0.3,0.2", "snapkv:0.5", "diffkv:0.5,1,8,4", "mikv:0.3,8,2", "qaq:0.02", "variance"}) {
    MixedSpec mixed{.pools = *ParseMixedPools(kTokenPools),
                    .policy = ParsePolicy(policy).value(),
                    .budget_bytes = 120000};
    SetMixed(mixed, &specs.emplace_back());
    specs.back().sinks_tokens = 4;
    specs.back().window_tokens = 64;
  }
  return specs;
}

TEST(SnapshotMixed, ARestoredSequenceGoesOnAsTheSavedOneWouldHave) {
  const Timeline tokens = Tokens(900);
  std::vector<KvSpec> specs = AllSpecs();
  for (const KvSpec& spec : HeardSpecs()) specs.push_back(spec);
  for (const KvSpec& spec : specs) {
    for (const int64_t length : {1, 64, 130, 193, 640, 700}) {
      auto source = MakeCache(kSmall, spec);
      const SequenceId saved = NewSequence(*source);
      ExtendMixed(*source, saved, tokens, length);
      const Bytes bytes = Saved(*source, saved);
      auto cache = MakeCache(kSmall, spec);
      const Result<SequenceId> seq = RestoreInto(*cache, bytes);
      ASSERT_TRUE(seq.ok()) << seq.status().message();
      ASSERT_EQ(MixedPictureOf(*cache, *seq), MixedPictureOf(*source, saved));
      ASSERT_EQ(cache->earliest_truncate(*seq), source->earliest_truncate(saved));
      const CacheLedger here = cache->ledger(), there = source->ledger();
      ASSERT_EQ(here.kv_bytes, there.kv_bytes);
      ASSERT_EQ(here.dropped_head_tokens, there.dropped_head_tokens);
      ASSERT_EQ(here.requantised_head_tokens, there.requantised_head_tokens);
      ASSERT_EQ(Saved(*cache, *seq), bytes);
      ASSERT_EQ(here.metadata_bytes, there.metadata_bytes);
      ExpectPoolsBalance(*cache);
      const int64_t cut = std::max(length - 64, cache->earliest_truncate(*seq));
      ASSERT_TRUE(cache->Truncate(*seq, cut).ok());
      ExtendMixed(*cache, *seq, tokens, length + 150, 40);
      ASSERT_EQ(MixedPictureOf(*cache, *seq),
                SoloMixedPictureOf(kSmall, spec, tokens, length + 150))
          << length;
      ASSERT_TRUE(cache->Free(*seq).ok());
      ASSERT_EQ(UsedPages(*cache), 0);
    }
  }
}

// A page that came for a step that was abandoned stays in the pools of the heads that took it.
TEST(SnapshotMixed, HoldsAPageThatCameForAnAbandonedStep) {
  std::vector<KvSpec> specs = HeardSpecs();
  specs.push_back(MakeMixedSpec(kTokenPools, AgeingWidth));
  const Timeline tokens = Tokens(1000);
  for (const KvSpec& spec : specs) {
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, tokens, 640);
    ASSERT_TRUE(RunStep(*cache, seq, tokens, 3, [](int, int) {}).ok());
    cache->Rollback(seq);
    const Bytes bytes = Saved(*cache, seq);
    const Result<SequenceId> again = RestoreInto(*cache, bytes);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(Saved(*cache, *again), bytes);
    ExtendMixed(*cache, *again, tokens, 800);
    EXPECT_EQ(MixedPictureOf(*cache, *again), SoloMixedPictureOf(kSmall, spec, tokens, 800))
        << spec.mixed->policy->name();
  }
}

// What nobody has written must not reach a file.
TEST(SnapshotMixed, BytesDependOnTheTokensOnly) {
  const Timeline tokens = Tokens(700), other = Tokens(700, 4);
  for (const KvSpec& spec : AllSpecs()) {
    const auto saved = [&](AllocateFn allocate, const Timeline& first) {
      const ScopedAllocate scoped(allocate);
      auto cache = MakeCache(kSmall, spec);
      const SequenceId seq = NewSequence(*cache);
      ExtendMixed(*cache, seq, first, 650);
      const bool cut_is_possible = cache->earliest_truncate(seq) <= 640;
      EXPECT_EQ(cache->Truncate(seq, 640).ok(), cut_is_possible);
      ExtendMixed(*cache, seq, tokens, 645);
      return Saved(*cache, seq);
    };
    Timeline ends_otherwise = tokens;
    std::copy(other.begin() + 640, other.end(), ends_otherwise.begin() + 640);
    const Bytes bytes = saved(testing::AllocatePoisoned, tokens);
    EXPECT_EQ(saved(testing::AllocateZeroed, tokens), bytes);
    EXPECT_EQ(saved(testing::AllocatePoisoned, ends_otherwise), bytes);
  }
}

// When page 8 leaves the window, page 7 goes from the end of the pool and page 8 does not come: the
// last page of the pool then has slots that tokens of page 7 have left.
TEST(SnapshotMixed, NothingIsLeftOfTokensThatHaveGone) {
  const auto width_of = [](int64_t position, int64_t length) {
    return position >= 512 || (position >= 448 && length >= 640) ? 0 : 8;
  };
  const KvSpec spec = MakeMixedSpec("8=int8:token/int8:token", width_of);
  const auto saved = [&](const Timeline& tokens) {
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, tokens, 650);
    EXPECT_EQ(cache->PoolPositions(seq, 0, 0, 8).size(), 444u);
    return Saved(*cache, seq);
  };
  Timeline tokens = Tokens(650), others = tokens;
  const Timeline more = Tokens(650, 4);
  std::copy(more.begin() + 448, more.begin() + 512, others.begin() + 448);
  EXPECT_EQ(saved(tokens), saved(others));
}

// ---- Files that are no snapshot of this cache

enum Kind { kOnce, kAgeing, kTotals, kSumsByQueryHead };

class BadMixedSnapshot : public ::testing::TestWithParam<Kind> {
 protected:
  static KvSpec SpecOf(Kind kind) {
    if (kind == kAgeing) return MakeMixedSpec(kTokenPools, AgeingWidth);
    if (kind == kTotals) return HeardSpecs()[0];
    if (kind == kSumsByQueryHead) return HeardSpecs()[2];
    return MakeMixedSpec(
        "8=int8/int8+4=int4/int4+2=int2/int2",
        [](int64_t position, int64_t) { return 2 << HashOf(position) % 3; }, true);
  }
  BadMixedSnapshot() : spec_(SpecOf(GetParam())), cache_(MakeCache(kShape, spec_)) {
    live_ = NewSequence(*cache_);
    ExtendMixed(*cache_, live_, Tokens(300), 300);
    good_ = Saved(*cache_, live_);
    before_ = Look();
  }

  std::pair<testing::Picture, std::vector<int64_t>> Look() const {
    std::vector<int64_t> counts{cache_->ledger().allocated_bytes};
    for (const Cache::PoolCount& c : cache_->pool_counts()) {
      counts.insert(counts.end(), {c.used_pages, c.total_pages});
    }
    return {MixedPictureOf(*cache_, live_), counts};
  }
  Status RefusalOf(std::span<const std::byte> bytes) {
    const Result<SequenceId> seq = RestoreInto(*cache_, bytes);
    EXPECT_FALSE(seq.ok());
    EXPECT_FALSE(seq.status().message().empty());
    return seq.status();
  }

  static constexpr KvGeometry kShape{1, 2, 16, 4};
  const KvSpec spec_;
  std::unique_ptr<Cache> cache_;
  SequenceId live_ = -1;
  Bytes good_;
  std::pair<testing::Picture, std::vector<int64_t>> before_;
};

TEST_P(BadMixedSnapshot, EveryCutAndFlippedByteIsRefused) {
  const size_t header = HeaderBytes(good_) + 16;
  for (size_t length = 0; length < good_.size(); length += length < header ? 1 : 97) {
    ASSERT_EQ(RefusalOf(std::span(good_).first(length)).code(), StatusCode::kCorrupt) << length;
  }
  for (size_t length = 4096; length < good_.size(); length += 4096) {
    ASSERT_EQ(RefusalOf(std::span(good_).first(length)).code(), StatusCode::kCorrupt) << length;
  }
  for (size_t at = 0; at < good_.size(); at += at < header ? 1 : 13) {
    Bytes bad = good_;
    bad[at] ^= std::byte{0x10};
    const bool version = at >= 8 && at < 16;
    ASSERT_EQ(RefusalOf(bad).code(), version ? StatusCode::kUnsupported : StatusCode::kCorrupt)
        << at;
  }
  EXPECT_EQ(Look(), before_);
  EXPECT_TRUE(RestoreInto(*cache_, good_).ok());
}

// Damage that no checksum sees, because it was computed afterwards: refused, or a sequence that can
// be read, saved, extended, cut and freed.
TEST_P(BadMixedSnapshot, AHeaderThatLiesIsRefusedOrHarmless) {
  std::mt19937 random(5);
  const uint64_t header_bytes = HeaderBytes(good_);
  const int64_t used = UsedPages(*cache_);
  int refused = 0, accepted = 0;
  const auto attempt = [&](const Bytes& bad) {
    const Result<SequenceId> seq = RestoreInto(*cache_, Resealed(bad));
    ++(seq.ok() ? accepted : refused);
    if (!seq.ok()) return;
    (void)Saved(*cache_, *seq);
    (void)testing::Extend(*cache_, *seq, Tokens(500), cache_->max_step_tokens(*seq));
    (void)cache_->Truncate(*seq, cache_->earliest_truncate(*seq));
    ASSERT_TRUE(cache_->Free(*seq).ok());
    ASSERT_EQ(UsedPages(*cache_), used);
  };
  for (uint64_t at = 24; at < header_bytes; ++at) {
    Bytes bad = good_;
    bad[at] ^= std::byte{1};
    ASSERT_NO_FATAL_FAILURE(attempt(bad)) << at;
  }
  // The model's hash is nothing to a cache, nor how many tokens each of two heads requantised, and
  // a token more has room in the open page, if not in the sums.
  EXPECT_EQ(accepted, 8 + 2 * 8 + (spec_.mixed->policy->needs_scores() ? 0 : 1));
  for (int round = 0; round < 1000; ++round) {
    Bytes bad = good_;
    for (int i = 0; i < 3; ++i) {
      bad[24 + random() % (header_bytes - 24)] = static_cast<std::byte>(random());
    }
    ASSERT_NO_FATAL_FAILURE(attempt(bad)) << round;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(MixedPictureOf(*cache_, live_), before_.first);
  ExpectPoolsBalance(*cache_);
}

INSTANTIATE_TEST_SUITE_P(Pools, BadMixedSnapshot,
                         ::testing::Values(kOnce, kAgeing, kTotals, kSumsByQueryHead));

// Positions lie behind the header, whose checksums say nothing of a writer that lies.
TEST(SnapshotMixed, PositionsThatStandTwiceAreRefused) {
  const KvSpec spec = MakeMixedSpec(
      "4=int4:token/int4:token", [](int64_t, int64_t) { return 4; }, false, 0, 0);
  constexpr KvGeometry kOne{1, 1, 16, 1};
  auto cache = MakeCache(kOne, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(130), 130);
  const Bytes good = Saved(*cache, seq);
  uint64_t at = 0;
  std::memcpy(&at, good.data() + 16, sizeof at);
  at += 3 * sizeof(uint64_t);  // hashes of header, tokens and state; both of these are empty
  const auto status_with = [&](size_t token, int32_t position) {
    Bytes bad = good;
    std::memcpy(bad.data() + at + token * sizeof position, &position, sizeof position);
    const uint64_t hash =
        Xxh64(std::span<const std::byte>(bad).subspan(at, bad.size() - at - sizeof hash));
    std::memcpy(bad.data() + bad.size() - sizeof hash, &hash, sizeof hash);
    return RestoreInto(*cache, bad).status();
  };
  EXPECT_TRUE(status_with(5, 5).ok());
  for (const int32_t wrong : {4, -1, 128, 1 << 30}) {
    EXPECT_EQ(status_with(5, wrong).code(), StatusCode::kCorrupt) << wrong;
  }
}

TEST(SnapshotMixed, OtherWidthsPoliciesAndLayersAreNamed) {
  const KvSpec spec = MakeMixedSpec(kTokenPools, HashedWidth);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(300), 300);
  const Bytes bytes = Saved(*cache, seq);
  const auto expect = [&](const KvSpec& other, const std::string& what) {
    auto into = MakeCache(kSmall, other);
    const Status status = RestoreInto(*into, bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    EXPECT_EQ(UsedPages(*into), 0);
  };
  KvSpec other = MakeMixedSpec("16+4=int4:token/int4:token", HashedWidth);
  other.k = spec.k;
  other.v = spec.v;
  expect(other, "this cache widths 16=f16/f16+4=int4:token");
  other = spec;
  other.mixed = nullptr;
  expect(other, "one width a layer");
  other = spec;
  other.skip_layers = {1};
  expect(other, "layer 1");
  MixedSpec budgeted = *spec.mixed;
  budgeted.budget_bytes = 1 << 20;
  other = spec;
  other.mixed = std::make_shared<const MixedSpec>(budgeted);
  expect(other, "policy by position with a budget of 1048576 bytes");
  budgeted.policy = std::move(ParsePolicy("full:2,4")).value();
  other.mixed = std::make_shared<const MixedSpec>(budgeted);
  expect(other, "policy full:2,4");
}

// A policy by position that asks for sums.
class Hearing : public WidthPolicy {
 public:
  explicit Hearing(ScoreKind kind) : WidthPolicy(HashedWidth), kind_(kind) {}
  ScoreKind score_kind() const override { return kind_; }

 private:
  const ScoreKind kind_;
};

// Policies of one name may ask for one sum a token, for one a query head, or for none.
TEST(SnapshotMixed, OtherSumsThanThePolicyAsksForAreRefused) {
  const auto cache_of = [](ScoreKind kind) {
    KvSpec spec = MakeMixedSpec(kTokenPools, HashedWidth);
    MixedSpec mixed = *spec.mixed;
    mixed.policy = std::make_shared<Hearing>(kind);
    SetMixed(mixed, &spec);
    return MakeCache(kSmall, spec);
  };
  constexpr ScoreKind kKinds[] = {ScoreKind::kNone, ScoreKind::kTotal, ScoreKind::kRecentTop};
  for (const ScoreKind there : kKinds) {
    auto source = cache_of(there);
    const SequenceId saved = NewSequence(*source);
    ExtendMixed(*source, saved, Tokens(300), 300);
    const Bytes bytes = Saved(*source, saved);
    for (const ScoreKind here : kKinds) {
      const Status status = RestoreInto(*cache_of(here), bytes).status();
      if (here == there) {
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("sums of attention a token"), std::string::npos)
          << status.message();
    }
  }
}

// Sums stand behind the pools of a head, and no checksum knows what attention can give.
TEST(SnapshotMixed, SumsThatNoAttentionGivesAreRefused) {
  constexpr KvGeometry kOne{1, 1, 16, 2};
  KvSpec spec = HeardSpecs()[0];
  spec.sinks_tokens = 0;
  auto cache = MakeCache(kOne, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, Tokens(60), 60);  // nothing is pooled: sums are all before the open page
  const Bytes good = Saved(*cache, seq);
  const size_t at = HeaderBytes(good) + 3 * sizeof(uint64_t);
  const auto status_with = [&](size_t token, float sum) {
    Bytes bad = good;
    std::memcpy(bad.data() + at + token * sizeof sum, &sum, sizeof sum);
    const uint64_t hash =
        Xxh64(std::span<const std::byte>(bad).subspan(at, bad.size() - at - sizeof hash));
    std::memcpy(bad.data() + bad.size() - sizeof hash, &hash, sizeof hash);
    return RestoreInto(*cache, bad).status();
  };
  EXPECT_TRUE(status_with(59, 3.5f).ok());
  for (const size_t token : {0, 59}) {
    for (const float wrong :
         {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      EXPECT_EQ(status_with(token, wrong).code(), StatusCode::kCorrupt) << token << ' ' << wrong;
    }
  }
}

// What is saved must be all that the policy will ask for.
TEST(SnapshotMixed, ACacheThatWasNotToldOfAttentionIsNotSaved) {
  auto cache = MakeCache(kSmall, HeardSpecs()[0]);
  const SequenceId seq = NewSequence(*cache);
  ASSERT_TRUE(testing::Extend(*cache, seq, Tokens(60), 60).ok());
  const auto ignore = [](std::span<const std::byte>) { return Status::Ok(); };
  const Status status = cache->Save(seq, {}, ignore);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("was not told"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kvant
