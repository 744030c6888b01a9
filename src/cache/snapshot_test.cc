// Snapshots: what is restored is what was saved, and nothing else is restored.
#include "cache/snapshot.h"

#include <gtest/gtest.h>

#include <random>

#include "cache/cache_testing.h"
#include "cache/snapshot_testing.h"

namespace kvant {
namespace {

using testing::Bytes;
using testing::ExpectPoolsBalance;
using testing::ExtendTo;
using testing::HeaderBytes;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::Resealed;
using testing::RestoreInto;
using testing::ScopedAllocate;
using testing::SoloPicture;
using testing::Timeline;
using testing::Tokens;
using testing::UsedPages;

constexpr KvGeometry kSmall{2, 2, 64, 4};
constexpr uint64_t kModel = 0x1234;

Bytes Saved(const Cache& cache, SequenceId seq,
            const SnapshotLabel& label = {.model_hash = kModel}) {
  return testing::Saved(cache, seq, label);
}

// A cache with a sequence of `length` tokens.
struct Filled {
  Filled(const KvGeometry& geometry, const KvSpec& spec, int64_t length)
      : cache(MakeCache(geometry, spec)), seq(NewSequence(*cache)) {
    ExtendTo(*cache, seq, Tokens(length), length, 4096);
  }
  std::unique_ptr<Cache> cache;
  SequenceId seq;
};

// Every preset, formats that none has, and layers that differ.
std::vector<KvSpec> AllSpecs() {
  std::vector<KvSpec> specs;
  for (const std::string& name : KvPresetNames()) specs.push_back(*ParseKvPreset(name));
  specs.push_back(MakeSpec("nest4:mean:bal:n8", "nest3:n8"));
  specs.push_back(MakeSpec("tq3", "tq1:n8", 0, 128));
  specs.push_back(MakeSpec("int4:channel:g128:min", "f16", 17));
  specs.push_back(MakeSpec("bf16", "int3:token:g32:min", 64, 0));
  specs.push_back(MakeSpec("int2:channel:g64:min:prerope:out2", "int4:token:min:out3"));
  specs.push_back(MakeSpec("int4", "int4"));
  specs.back().skip_layers = {1};
  specs.push_back(MakeSpec("int4", "int4"));
  specs.back().layers = {testing::MakePair("int8", "tq4:n8"), testing::MakePair("f32", "f16")};
  return specs;
}

std::string NameOf(const KvSpec& spec) {
  return FormatSpec(LayerFormats(spec, 0).k) + "/" + FormatSpec(LayerFormats(spec, 0).v);
}

TEST(Snapshot, ARestoredSequenceGoesOnAsTheSavedOneWouldHave) {
  const Timeline tokens = Tokens(700);
  for (const KvSpec& spec : AllSpecs()) {
    for (const int64_t length : {1, 3, 64, 65, 200, 330}) {
      Filled saved(kSmall, spec, length);
      const Bytes bytes = Saved(*saved.cache, saved.seq);
      auto cache = MakeCache(kSmall, spec);
      const Result<SequenceId> seq = RestoreInto(*cache, bytes);
      ASSERT_TRUE(seq.ok()) << NameOf(spec) << ": " << seq.status().message();
      ASSERT_EQ(testing::PictureOf(*cache, *seq), testing::PictureOf(*saved.cache, saved.seq));
      ASSERT_EQ(cache->earliest_truncate(*seq), saved.cache->earliest_truncate(saved.seq));
      ASSERT_EQ(Saved(*cache, *seq), bytes);
      ExpectPoolsBalance(*cache);
      // A step later, since what was coded ahead is not saved.
      ExtendTo(*cache, *seq, tokens, length + 1, 1);
      ExtendTo(*saved.cache, saved.seq, tokens, length + 1, 1);
      ASSERT_EQ(cache->ledger().kv_bytes, saved.cache->ledger().kv_bytes);
      ExtendTo(*cache, *seq, tokens, length + 150, 40);
      ASSERT_EQ(testing::PictureOf(*cache, *seq), SoloPicture(kSmall, spec, tokens, length + 150))
          << NameOf(spec) << ' ' << length;
      ASSERT_TRUE(cache->Free(*seq).ok());
      ASSERT_EQ(UsedPages(*cache), 0);
    }
  }
}

// Cut, forked and empty sequences, in a cache that holds others already.
TEST(Snapshot, HoldsWhateverStateASequenceIsIn) {
  const KvSpec spec = MakeSpec("int4", "int4", 4, 64);
  const Timeline tokens = Tokens(400);
  Filled f(kSmall, spec, 330);
  ASSERT_TRUE(f.cache->Truncate(f.seq, 300).ok());
  const SequenceId fork = *f.cache->Fork(f.seq), empty = NewSequence(*f.cache);
  const Bytes bytes = Saved(*f.cache, fork), none = Saved(*f.cache, empty);
  const Result<SequenceId> again = RestoreInto(*f.cache, bytes);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(f.cache->earliest_truncate(*again), f.cache->earliest_truncate(fork));
  EXPECT_EQ(f.cache->Truncate(*again, 100).code(), StatusCode::kOutOfRange);
  ASSERT_TRUE(f.cache->Truncate(*again, f.cache->earliest_truncate(fork)).ok());
  ExtendTo(*f.cache, *again, tokens, 400, 17);
  EXPECT_EQ(testing::PictureOf(*f.cache, *again), SoloPicture(kSmall, spec, tokens, 400));
  EXPECT_EQ(testing::PictureOf(*f.cache, fork), SoloPicture(kSmall, spec, tokens, 300));
  const Result<SequenceId> restored_empty = RestoreInto(*f.cache, none);
  ASSERT_TRUE(restored_empty.ok()) << restored_empty.status().message();
  EXPECT_EQ(f.cache->length(*restored_empty), 0);
  ExtendTo(*f.cache, *restored_empty, tokens, 100, 100);
  EXPECT_EQ(testing::PictureOf(*f.cache, *restored_empty), SoloPicture(kSmall, spec, tokens, 100));
}

// What nobody has written must not reach a file: neither old secrets nor chance.
TEST(Snapshot, BytesDependOnTheTokensOnly) {
  for (const KvSpec& spec : AllSpecs()) {
    for (const int64_t length : {1, 70, 200}) {
      const auto saved = [&](AllocateFn allocate) {
        const ScopedAllocate scoped(allocate);
        Filled f(kSmall, spec, length);
        return Saved(*f.cache, f.seq);
      };
      EXPECT_EQ(saved(testing::AllocatePoisoned), saved(testing::AllocateZeroed)) << NameOf(spec);
    }
  }
}

TEST(Snapshot, CarriesTheLabelOfItsCaller) {
  Filled f(kSmall, MakeSpec("int4", "f16"), 70);
  const std::vector<int32_t> tokens(70, 9);
  const std::vector<std::byte> state(33, std::byte{5});
  const Bytes bytes =
      Saved(*f.cache, f.seq, {.model_hash = kModel, .tokens = tokens, .state = state});
  const Result<Snapshot> snapshot = ParseSnapshot(bytes);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->header.model_hash, kModel);
  EXPECT_EQ(snapshot->tokens, tokens);
  EXPECT_EQ(Bytes(snapshot->state.begin(), snapshot->state.end()), state);
  const std::vector<int32_t> few(69, 9);
  EXPECT_EQ(f.cache->Save(f.seq, {.tokens = few}, [](auto) { return Status::Ok(); }).code(),
            StatusCode::kInvalidArgument);
}

TEST(Snapshot, TheErrorOfTheSinkComesBack) {
  Filled f(kSmall, MakeSpec("int4", "int4"), 200);
  int calls = 0;
  ASSERT_TRUE(f.cache->Save(f.seq, {}, [&](auto) { return ++calls, Status::Ok(); }).ok());
  for (int fail_at = 0; fail_at < calls; ++fail_at) {
    int left = fail_at;
    const Status status = f.cache->Save(f.seq, {}, [&](auto) {
      return left-- > 0 ? Status::Ok() : Status::Io("the disk is full");
    });
    ASSERT_EQ(status.message(), "the disk is full");
  }
  EXPECT_EQ(testing::PictureOf(*f.cache, f.seq),
            SoloPicture(kSmall, f.cache->spec(), Tokens(200), 200));
}

// ---- Files that are no snapshot of this cache

// A live cache and the bytes of a good snapshot, of which tests make bad ones.
class BadSnapshot : public ::testing::Test {
 protected:
  BadSnapshot() : live_(kGeometry, kSpec(), 150), before_(Look()) {
    Filled f(kGeometry, kSpec(), 200);
    const std::vector<int32_t> tokens(200, 7);
    const std::vector<std::byte> state(64, std::byte{1});
    good_ = Saved(*f.cache, f.seq, {.model_hash = kModel, .tokens = tokens, .state = state});
  }

  static KvSpec kSpec() { return MakeSpec("int4", "tq4:n8", 4, 64); }

  // The state of the live cache, pools and all.
  std::pair<testing::Picture, std::vector<int64_t>> Look() const {
    std::vector<int64_t> counts{live_.cache->ledger().allocated_bytes};
    for (const Cache::PoolCount& c : live_.cache->pool_counts()) {
      counts.insert(counts.end(), {c.used_pages, c.total_pages});
    }
    return {testing::PictureOf(*live_.cache, live_.seq), counts};
  }
  Status RefusalOf(std::span<const std::byte> bytes) {
    const Result<SequenceId> seq = RestoreInto(*live_.cache, bytes);
    EXPECT_FALSE(seq.ok());
    EXPECT_FALSE(seq.status().message().empty());
    EXPECT_EQ(Look(), before_);
    return seq.status();
  }
  void ExpectRefused(Cache& cache, StatusCode code, const std::string& what) {
    const Result<SequenceId> seq = RestoreInto(cache, good_);
    EXPECT_EQ(seq.status().code(), code) << seq.status().message();
    EXPECT_NE(seq.status().message().find(what), std::string::npos) << seq.status().message();
    EXPECT_EQ(UsedPages(cache), 0);
    ExpectPoolsBalance(cache);
  }

  static constexpr KvGeometry kGeometry{2, 1, 32, 1};
  Filled live_;
  std::pair<testing::Picture, std::vector<int64_t>> before_;
  Bytes good_;
};

TEST_F(BadSnapshot, EveryCutIsRefusedWithTheCacheUntouched) {
  for (size_t length = 0; length < good_.size(); length += length < 700 ? 1 : 97) {
    const Status status = RefusalOf(std::span(good_).first(length));
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << length << ": " << status.message();
  }
  Bytes longer = good_;
  longer.push_back(std::byte{0});
  EXPECT_NE(RefusalOf(longer).message().find("1 bytes are left over"), std::string::npos);
  ASSERT_TRUE(RestoreInto(*live_.cache, good_).ok());
}

TEST_F(BadSnapshot, EveryFlippedByteIsRefused) {
  Bytes bad = good_;
  for (size_t at = 0; at < bad.size(); at += at < 700 ? 1 : 13) {
    bad[at] ^= std::byte{0x10};
    const Status status = RefusalOf(bad);
    bad[at] ^= std::byte{0x10};
    const bool version = at >= 8 && at < 16;
    ASSERT_EQ(status.code(), version ? StatusCode::kUnsupported : StatusCode::kCorrupt)
        << at << ": " << status.message();
  }
}

TEST_F(BadSnapshot, OtherFilesAndVersionsAreNamed) {
  const auto message = [&](Bytes bytes) { return RefusalOf(bytes).message(); };
  EXPECT_NE(message({}).find("is no snapshot"), std::string::npos);
  EXPECT_NE(message(Bytes(300, std::byte{'G'})).find("is no snapshot"), std::string::npos);
  Bytes other = good_;
  other[8] = std::byte{9};
  EXPECT_NE(message(other).find("file version 9; this build reads version 1 to 4"),
            std::string::npos);
  other = good_;
  other[12] = std::byte{7};
  EXPECT_NE(message(other).find("page layout version 7"), std::string::npos);
}

// Damage that no checksum sees, because it was computed afterwards: refused, or harmless.
TEST_F(BadSnapshot, AHeaderThatLiesIsRefusedOrHarmless) {
  std::mt19937 random(5);
  const uint64_t header_bytes = HeaderBytes(good_);
  int refused = 0, accepted = 0;
  const auto attempt = [&](const Bytes& bad) {
    const Result<SequenceId> seq = RestoreInto(*live_.cache, bad);
    ++(seq.ok() ? accepted : refused);
    if (!seq.ok()) {
      ASSERT_FALSE(seq.status().message().empty());
      ASSERT_EQ(Look(), before_);
    } else {
      ASSERT_TRUE(live_.cache->Free(*seq).ok());
    }
  };
  for (uint64_t at = 24; at < header_bytes; ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      Bytes bad = good_;
      bad[at] ^= static_cast<std::byte>(change);
      ASSERT_NO_FATAL_FAILURE(attempt(Resealed(bad))) << at;
    }
  }
  for (int round = 0; round < 2000; ++round) {
    Bytes bad = good_;
    for (int i = 0; i < 3; ++i) {
      bad[24 + random() % (header_bytes - 24)] = static_cast<std::byte>(random());
    }
    ASSERT_NO_FATAL_FAILURE(attempt(Resealed(bad))) << round;
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 0);  // the model's hash is nothing to a cache
}

TEST_F(BadSnapshot, AnotherShapeFormatOrPolicyIsNamed) {
  const auto cache_of = [&](auto change, KvGeometry g = kGeometry, int64_t context = 4096) {
    KvSpec spec = kSpec();
    change(spec);
    return MakeCache(g, spec, context);
  };
  const auto same = [](KvSpec&) {};
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  ExpectRefused(*cache_of(same, {2, 1, 64, 1}), kInvalid, "64 channels");
  ExpectRefused(*cache_of(same, {3, 1, 32, 1}), kInvalid, "3 layers");
  ExpectRefused(*cache_of(same, {2, 1, 32, 2}), kInvalid, "2 query heads");
  ExpectRefused(*cache_of([](KvSpec& s) { s.v = kFormatF16; }), kInvalid, "tq4:n8");
  ExpectRefused(*cache_of([](KvSpec& s) { s.skip_layers = {1}; }), kInvalid, "layer 1");
  ExpectRefused(*cache_of([](KvSpec& s) { s.sinks_tokens = 5; }), kInvalid, "5 sinks");
  ExpectRefused(*cache_of([](KvSpec& s) { s.window_tokens = 128; }), kInvalid, "window of 128");
  ExpectRefused(*cache_of(same, kGeometry, 199), StatusCode::kOutOfRange, "199");
}

TEST_F(BadSnapshot, ABudgetThatIsTooSmallLeavesTheCacheAsItWas) {
  auto cache = MakeCache(kGeometry, kSpec(), 4096, 20'000);
  ExpectRefused(*cache, StatusCode::kOutOfMemory, "budget");
  EXPECT_EQ(cache->ledger().allocated_bytes, 0);
}

}  // namespace
}  // namespace kvant
