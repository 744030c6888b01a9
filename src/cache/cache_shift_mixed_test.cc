// Shift of layers whose tokens have several widths: what stays keeps its width, its values and all
// that a policy is promised.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "cache/mixed_testing.h"
#include "cache/page_turner.h"
#include "cache/snapshot_testing.h"
#include "cache/token_writer.h"
#include "codec/codec.h"

namespace kvant {
namespace {

using testing::ExpectPoolsBalance;
using testing::ExpectSinksAndWindow;
using testing::ExtendMixed;
using testing::MakeCache;
using testing::MakeSpec;
using testing::MixedPictureOf;
using testing::NewSequence;
using testing::RestoreInto;
using testing::Saved;
using testing::SeeHead;
using testing::SeenHead;
using testing::Timeline;
using testing::Tokens;
using testing::UsualRopes;

constexpr KvGeometry kSmall{2, 2, 64, 2};

// A pair of channels turned back by `positions`, in double.
std::vector<double> TurnedBack(const std::vector<float>& k, const Rope& rope, int64_t positions) {
  std::vector<double> out(k.begin(), k.end());
  const size_t pairs = rope.frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(positions) * rope.frequencies[i];
    out[i] = k[i] * std::cos(angle) + k[i + pairs] * std::sin(angle);
    out[i + pairs] = k[i + pairs] * std::cos(angle) - k[i] * std::sin(angle);
  }
  return out;
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// Who stays, at which width, with which values: V as it was, K of what did not move too, and K of
// what moved turned by that and no more than a step of its width away.
TEST(CacheShiftMixed, EveryTokenKeepsItsWidthAndItsValuesButForTheTurn) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  const struct {
    int sinks;
    int64_t keep, drop, length;
  } cases[] = {{4, 4, 64, 520},   {4, 4, 320, 520},   {0, 0, 128, 448},
               {4, 128, 64, 513}, {64, 64, 192, 600}, {4, 128, 256, 520}};
  for (const auto& c : cases) {
    auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, AgeingWidth, false, c.sinks));
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, Tokens(700), c.length);
    std::vector<SeenHead> before;
    for (int h = 0; h < 4; ++h) before.push_back(SeeHead(*cache, seq, h / 2, h % 2));
    const Status status = cache->Shift(seq, c.keep, c.drop, ropes);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cache->length(seq), c.length - c.drop);
    ExpectPoolsBalance(*cache);
    for (int h = 0; h < 4; ++h) {
      const SeenHead after = SeeHead(*cache, seq, h / 2, h % 2);
      size_t stayed = 0;
      for (const auto& [position, was] : before[static_cast<size_t>(h)].rows) {
        if (position >= c.keep && position < c.keep + c.drop) continue;
        ++stayed;
        const int64_t moved = position < c.keep ? 0 : c.drop;
        const auto at = after.rows.find(position - moved);
        ASSERT_NE(at, after.rows.end()) << position;
        ASSERT_EQ(at->second.width, was.width) << position;
        ASSERT_EQ(at->second.v, was.v) << position;
        if (moved == 0) {
          ASSERT_EQ(at->second.k, was.k) << position;
          continue;
        }
        // Rounding to the evenly spaced values of a group errs by half a step at most, whose width
        // is at most the range of the token, twice its largest channel, over 2^bits - 2 steps. The
        // f16 before it and the f16 scale take 2^-9 of the largest.
        const std::vector<double> wanted = TurnedBack(was.k, ropes[0], moved);
        const double step = was.width == 16 ? 0 : 2 / (std::pow(2, was.width) - 2);
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_NEAR(at->second.k[i], wanted[i], (step + 0x1p-9) * Largest(wanted))
              << position << " channel " << i << " width " << was.width;
        }
      }
      ASSERT_EQ(after.rows.size(), stayed);
    }
  }
}

// Where all tokens have one width, a mixed cache is shifted as one of that width is.
TEST(CacheShiftMixed, OneWidthIsShiftedAsAUniformCacheIs) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  const Timeline tokens = Tokens(700);
  const struct {
    const char* format;
    int sinks;  // of formats that share figures none: pages of pools then begin where others do
  } cases[] = {{"int4:token", 4}, {"int8:token", 4}, {"tq4", 4}, {"int4", 0}, {"int8", 0}};
  for (const auto& [format, sinks] : cases) {
    auto mixed = MakeCache(kSmall, MakeMixedSpec(
                                       "4=" + std::string(format) + "/" + format,
                                       [](int64_t, int64_t) { return 4; }, sinks == 0, sinks));
    auto uniform = MakeCache(kSmall, MakeSpec(format, format, sinks));
    const SequenceId a = NewSequence(*mixed), b = NewSequence(*uniform);
    ExtendMixed(*mixed, a, tokens, 520);
    testing::ExtendTo(*uniform, b, tokens, 520, 64);
    for (const auto& [keep, drop] :
         {std::pair<int64_t, int64_t>{sinks, 128}, {64, 64}, {sinks, 64}}) {
      ASSERT_TRUE(mixed->Shift(a, keep, drop, ropes).ok());
      ASSERT_TRUE(uniform->Shift(b, keep, drop, ropes).ok());
      ASSERT_EQ(mixed->ledger().recoded_tokens, uniform->ledger().recoded_tokens);
      for (int h = 0; h < 4; ++h) {
        const auto seen = SeeHead(*mixed, a, h / 2, h % 2).rows;
        const HeadView view = uniform->View(b, h / 2, h % 2, (uniform->length(b) - 1) / 64);
        size_t compared = 0;
        for (const kvant::Run& run : view.runs) {
          std::vector<float> k(64 * 64), v(64 * 64);
          const std::byte* decoded = nullptr;
          for (int t = run.first_token; t < run.end_token; ++t, ++compared) {
            const std::byte* page = run.pages[t / run.layout->tokens];
            if (page != decoded) DecodeSide(run.layout->k, page, k.data(), 64);
            if (page != decoded)
              DecodeSide(run.layout->v, page + run.layout->v_offset_bytes, v.data(), 64);
            decoded = page;
            const auto& row = seen.at(run.first_position + t);
            const auto at = t % run.layout->tokens * 64;
            ASSERT_TRUE(std::equal(row.k.begin(), row.k.end(), k.begin() + at)) << format << t;
            ASSERT_TRUE(std::equal(row.v.begin(), row.v.end(), v.begin() + at)) << format << t;
          }
        }
        ASSERT_EQ(compared, seen.size());
      }
    }
  }
}

// A shift leaves as much of the past as it does of a uniform cache: the newest page can be taken
// out again, and what was saved afterwards is what was there.
TEST(CacheShiftMixed, CutsForksAndSavesGoOnAfterIt) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  const Timeline tokens = Tokens(900);
  const auto four_or_eight = [](int64_t position, int64_t) { return HashOf(position) % 2 ? 8 : 4; };
  for (const auto& [keep, drop] : {std::pair<int64_t, int64_t>{4, 64}, {4, 384}, {128, 128}}) {
    auto cache = MakeCache(kSmall, MakeMixedSpec(kTokenPools, four_or_eight));
    const SequenceId seq = NewSequence(*cache);
    ExtendMixed(*cache, seq, tokens, 530);  // page 8 is open, 6 is the newest that is stored
    const SequenceId untouched = *cache->Fork(seq);
    const auto before = MixedPictureOf(*cache, seq);
    ASSERT_TRUE(cache->Truncate(seq, 510).ok());
    ASSERT_TRUE(cache->Shift(seq, keep, drop, ropes).ok());
    const auto cut_first = MixedPictureOf(*cache, seq);
    const SequenceId shifted = *cache->Fork(untouched);
    ASSERT_TRUE(cache->Shift(shifted, keep, drop, ropes).ok());
    EXPECT_EQ(MixedPictureOf(*cache, untouched), before);
    const auto whole = MixedPictureOf(*cache, shifted);
    const testing::Bytes bytes = Saved(*cache, shifted);
    const Result<SequenceId> again = RestoreInto(*cache, bytes);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(MixedPictureOf(*cache, *again), whole);
    EXPECT_TRUE(Saved(*cache, *again) == bytes);
    // As far back as a uniform cache goes; page 0 may be open again where six of seven went.
    EXPECT_EQ(cache->earliest_truncate(shifted), drop == 384 ? 0 : 449 - drop);
    if (cache->earliest_truncate(shifted) <= 510 - drop) {
      ASSERT_TRUE(cache->Truncate(shifted, 510 - drop).ok());
      EXPECT_EQ(MixedPictureOf(*cache, shifted), cut_first);
    }
    ExpectPoolsBalance(*cache);
    for (const SequenceId id : {seq, untouched, shifted, *again}) ASSERT_TRUE(cache->Free(id).ok());
    EXPECT_EQ(testing::UsedPages(*cache), 0);
  }
}

// Sinks and window stay as written, and each policy can be asked again about what was shifted.
TEST(CacheShiftMixed, PoliciesGoOnAfterIt) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  const Timeline tokens = Tokens(3000);
  for (const char* policy :
       {"full:2", "streaming:64,192", "keydiff:0.5", "lagkv:0.5,64", "h2o:0.3,0.2", "snapkv:0.5",
        "diffkv:0.5,1,8,4", "mikv:0.3,8,2", "qaq:0.02", "variance"}) {
    KvSpec spec = MakeMixedSpec(kTokenPools, HashedWidth);
    MixedSpec mixed = *spec.mixed;
    mixed.policy = ParsePolicy(policy).value();
    mixed.budget_bytes = 1 << 20;
    SetMixed(mixed, &spec);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    for (int round = 0; round < 6; ++round) {
      ExtendMixed(*cache, seq, tokens, 600 + round % 2);
      ASSERT_TRUE(cache->Shift(seq, 4, 192, ropes).ok()) << policy;
      ExpectSinksAndWindow(*cache, seq);
      ExpectPoolsBalance(*cache);
      const Result<SequenceId> again = RestoreInto(*cache, Saved(*cache, seq));
      ASSERT_TRUE(again.ok()) << policy << ": " << again.status().message();
      ASSERT_TRUE(cache->Free(*again).ok());
    }
  }
}

// What a page of a pool holds of rows that it is given: as written where coded is null.
void PassThroughPage(const PageLayout& open, const PageLayout* coded,
                     std::vector<std::vector<float>>* k, std::vector<std::vector<float>>* v) {
  const auto pass = [](const SideLayout& from, const SideLayout* to,
                       std::vector<std::vector<float>>* rows) {
    std::vector<std::byte> written(static_cast<size_t>(from.bytes));
    for (size_t t = 0; t < rows->size(); ++t) {
      WriteTokens(from, written.data(), static_cast<int>(t), 1, (*rows)[t].data(), from.head_dim);
    }
    std::vector<std::byte> page(static_cast<size_t>(to == nullptr ? 0 : to->bytes) + 64);
    if (to != nullptr) EncodeSide(from, written.data(), *to, 0, page.data());
    std::vector<float> out(static_cast<size_t>(64 * from.head_dim));
    DecodeSide(to == nullptr ? from : *to, to == nullptr ? written.data() : page.data(), out.data(),
               from.head_dim);
    for (size_t t = 0; t < rows->size(); ++t) {
      std::copy_n(out.begin() + static_cast<int64_t>(t) * from.head_dim, from.head_dim,
                  (*rows)[t].begin());
    }
  };
  pass(open.k, coded == nullptr ? nullptr : &coded->k, k);
  pass(open.v, coded == nullptr ? nullptr : &coded->v, v);
}

// Formats that share figures over a page: what stays closes up in its order, pages before the first
// change keep their bits, and each later one is what its tokens give when they are coded together.
TEST(CacheShiftMixed, PagesThatShareFiguresAreCodedAgain) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  const Timeline tokens = Tokens(1200);
  for (const auto& [keep, drop] :
       {std::pair<int64_t, int64_t>{4, 64}, {4, 640}, {448, 128}, {256, 64}}) {
    const KvSpec spec = MakeMixedSpec(
        "8=int8+4=int4/int4:token+2=int2:g32",
        [](int64_t t, int64_t) { return 2 << HashOf(t) % 3; }, true);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId whole = NewSequence(*cache);
    ExtendMixed(*cache, whole, tokens, 900);
    const auto before = MixedPictureOf(*cache, whole);
    const SequenceId seq = *cache->Fork(whole);
    const Status status = cache->Shift(seq, keep, drop, ropes);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(MixedPictureOf(*cache, whole), before);
    const KeyTurn turn(ropes[0], drop);
    for (int h = 0; h < 4; ++h) {
      const SeenHead was = SeeHead(*cache, whole, h / 2, h % 2);
      const SeenHead is = SeeHead(*cache, seq, h / 2, h % 2);
      const HeadView view = cache->View(seq, h / 2, h % 2, (cache->length(seq) - 1) / 64);
      for (size_t j = 0; j < 3; ++j) {
        const int width = spec.mixed->pools[j].width;
        const auto old_places = cache->PoolPositions(whole, h / 2, h % 2, width);
        std::vector<int32_t> left;
        for (const int32_t t : old_places) {
          if (t < keep || t >= keep + drop) left.push_back(t);
        }
        const auto places = cache->PoolPositions(seq, h / 2, h % 2, width);
        ASSERT_EQ(places.size(), left.size());
        const auto coded = static_cast<size_t>(view.runs[1 + 2 * j].tokens());
        ASSERT_EQ(coded, left.size() / 64 * 64);
        for (size_t first = 0; first < left.size(); first += 64) {
          const size_t end = std::min(first + 64, left.size());
          std::vector<std::vector<float>> k, v;
          bool changes = false;
          for (size_t i = first; i < end; ++i) {
            const int32_t moved = left[i] < keep ? 0 : static_cast<int32_t>(drop);
            ASSERT_EQ(places[i], left[i] - moved);
            k.push_back(was.rows.at(left[i]).k);
            v.push_back(was.rows.at(left[i]).v);
            if (moved != 0) turn.Turn(k.back().data());
            changes |= moved != 0;
          }
          if (changes || first == coded) {
            PassThroughPage(*view.runs[kMaxRuns - 1].layout,
                            first == coded ? nullptr : view.runs[1 + 2 * j].layout, &k, &v);
          }
          for (size_t i = first; i < end; ++i) {
            const auto& row = is.rows.at(places[i]);
            ASSERT_EQ(row.width, width);
            ASSERT_EQ(row.k, k[i - first]) << places[i] << " of width " << width;
            ASSERT_EQ(row.v, v[i - first]) << places[i] << " of width " << width;
          }
        }
      }
    }
    ExpectPoolsBalance(*cache);
    const Result<SequenceId> again = RestoreInto(*cache, Saved(*cache, seq));
    ASSERT_TRUE(again.ok()) << again.status().message();
    ExtendMixed(*cache, seq, tokens, 1000);
    ExtendMixed(*cache, *again, tokens, 1000);
    EXPECT_EQ(MixedPictureOf(*cache, seq), MixedPictureOf(*cache, *again));
    EXPECT_EQ(MixedPictureOf(*cache, whole), before);
    for (const SequenceId id : {whole, seq, *again}) ASSERT_TRUE(cache->Free(id).ok());
    EXPECT_EQ(testing::UsedPages(*cache), 0);
  }
}

// ---- Sums of attention

// Widths by age, so that tokens change pools and go; and what the policy was told, by the length at
// which it was asked.
class Listener : public WidthPolicy {
 public:
  explicit Listener(ScoreKind kind) : WidthPolicy(AgeingWidth), kind_(kind) {}
  ScoreKind score_kind() const override { return kind_; }
  void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
              std::span<uint8_t> width) const override {
    WidthPolicy::Choose(tokens, limits, width);
    std::map<int64_t, float>& scores = heard_[limits.length];
    scores.clear();
    for (size_t i = 0; i < width.size(); ++i) scores[tokens.position[i]] = tokens.score[i];
  }
  // By position.
  const std::map<int64_t, float>& At(int64_t length) const { return heard_[length]; }

 private:
  const ScoreKind kind_;
  mutable std::map<int64_t, std::map<int64_t, float>> heard_;
};

// What queries gave a token, in their order: all of them, those since a page began (of either query
// head, then of both), and the most of these.
struct GivenSums {
  float total = 0, recent[3] = {}, most = 0;
};

float ScoreWanted(ScoreKind kind, const GivenSums& given, int64_t position, int64_t length) {
  const auto seen_by = static_cast<float>(std::min<int64_t>(64, length - position));
  if (kind == ScoreKind::kTotal) return given.total;
  if (kind == ScoreKind::kRecentMean) return given.recent[2] / (seen_by * 2);
  if (kind == ScoreKind::kRecentTop) return std::max(given.recent[0], given.recent[1]) / seen_by;
  return given.most;
}

// The policy hears of each token what it would have heard without the shift.
TEST(CacheShiftMixed, SumsMoveWithTheirTokens) {
  constexpr KvGeometry kOne{1, 1, 32, 2};
  const std::vector<Rope> ropes = UsualRopes(kOne);
  const Timeline tokens = Tokens(3000);
  for (const ScoreKind kind :
       {ScoreKind::kTotal, ScoreKind::kRecentMean, ScoreKind::kRecentTop, ScoreKind::kRecentMax}) {
    const auto listener = std::make_shared<Listener>(kind);
    KvSpec spec = MakeMixedSpec(kTokenPools, AgeingWidth);
    MixedSpec mixed = *spec.mixed;
    mixed.policy = listener;
    SetMixed(mixed, &spec);
    auto cache = MakeCache(kOne, spec);
    SequenceId seq = NewSequence(*cache);
    std::vector<GivenSums> given;  // by position
    size_t compared = 0;
    const auto extend = [&](int64_t length) {
      while (cache->length(seq) < length) {
        const int64_t first = cache->length(seq);
        const int64_t count = std::min({int64_t{37}, length - first, cache->max_step_tokens(seq)});
        ASSERT_TRUE(testing::ExtendHeard(*cache, seq, tokens, count).ok());
        if (first % 64 == 0 && first >= 128) {
          for (const auto& [position, score] : listener->At(first)) {
            const auto& token = given[static_cast<size_t>(position)];
            ASSERT_EQ(score, ScoreWanted(kind, token, position, first)) << position;
            ++compared;
          }
        }
        for (int64_t query = first; query < first + count; ++query) {
          given.emplace_back();
          for (int64_t t = 0; t <= query; ++t) {
            GivenSums& token = given[static_cast<size_t>(t)];
            if (query % 64 == 0) token = {.total = token.total};
            for (int g = 0; g < 2; ++g) {
              const float p = testing::GivenAttention(query, t, g);
              token.total += p;
              token.recent[g] += p;
              token.recent[2] += p;
              token.most = std::max(token.most, p);
            }
          }
        }
      }
    };
    for (const auto& [grow, keep, drop] :
         {std::tuple<int64_t, int64_t, int64_t>{520, 4, 128}, {513, 128, 64}, {640, 4, 320}}) {
      ASSERT_NO_FATAL_FAILURE(extend(grow));
      const SequenceId fork = *cache->Fork(seq);
      const testing::Bytes before = Saved(*cache, fork);
      ASSERT_TRUE(cache->Shift(seq, keep, drop, ropes).ok());
      given.erase(given.begin() + keep, given.begin() + keep + drop);
      EXPECT_TRUE(Saved(*cache, fork) == before);
      ASSERT_TRUE(cache->Free(fork).ok());
      const Result<SequenceId> again = RestoreInto(*cache, Saved(*cache, seq));
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_TRUE(Saved(*cache, *again) == Saved(*cache, seq));
      ASSERT_TRUE(cache->Free(seq).ok());
      seq = *again;
    }
    ASSERT_NO_FATAL_FAILURE(extend(700));
    EXPECT_GT(compared, 2000u);
  }
}

}  // namespace
}  // namespace kvant
