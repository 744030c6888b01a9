// Shift: what stays keeps its values, keys turn by exactly what they moved, and nothing else does.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ExpectPoolsBalance;
using testing::Extend;
using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::PictureOf;
using testing::Timeline;
using testing::Tokens;
using testing::UsualRopes;

constexpr KvGeometry kSmall{2, 2, 64, 2};

// Normal keys with a channel that stands out, turned by their positions; the same content at
// `position + moved` and at `position` differs by the turn alone.
class RopeKeys {
 public:
  RopeKeys(const KvGeometry& g, Rope rope, int64_t tokens, uint32_t seed = 1)
      : g_(g), rope_(std::move(rope)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values_.resize(static_cast<size_t>(tokens * g.layers * g.kv_heads * g.head_dim * 2));
    for (float& v : values_) v = normal(random);
    for (size_t i = 3; i < values_.size(); i += static_cast<size_t>(g.head_dim)) values_[i] *= 6;
  }

  const float* Content(int64_t token, int layer, int head, Side side) const {
    const int64_t row = ((token * g_.layers + layer) * g_.kv_heads + head) * 2 + (side == Side::kV);
    return values_.data() + row * g_.head_dim;
  }
  // The key of content `token` at `position`, in double.
  std::vector<double> Key(int64_t token, int64_t position, int layer, int head) const {
    const float* x = Content(token, layer, head, Side::kK);
    std::vector<double> k(x, x + g_.head_dim);
    const size_t pairs = rope_.frequencies.size();
    const bool halves = rope_.pairs == RopePairs::kHalves;
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * rope_.frequencies[i];
      const size_t first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
      const double a = k[first], b = k[second];
      k[first] = a * std::cos(angle) - b * std::sin(angle);
      k[second] = a * std::sin(angle) + b * std::cos(angle);
    }
    return k;
  }
  // Appends contents [first, first + count) at the sequence's next positions.
  void Append(Cache& cache, SequenceId seq, int64_t first, int64_t count) const {
    ASSERT_TRUE(cache.Reserve(seq, count).ok());
    const int64_t start = cache.length(seq);
    std::vector<float> k(static_cast<size_t>(count * g_.head_dim)), v(k.size());
    for (int layer = 0; layer < g_.layers; ++layer) {
      for (int head = 0; head < g_.kv_heads; ++head) {
        for (int64_t t = 0; t < count; ++t) {
          const std::vector<double> key = Key(first + t, start + t, layer, head);
          std::copy(key.begin(), key.end(), k.begin() + t * g_.head_dim);
          std::copy_n(Content(first + t, layer, head, Side::kV), g_.head_dim,
                      v.begin() + t * g_.head_dim);
        }
        ASSERT_TRUE(
            cache.Append(seq, layer, head, k.data(), g_.head_dim, v.data(), g_.head_dim, count)
                .ok());
        ASSERT_TRUE(cache.Seal(seq, layer, head).ok());
        cache.Release(seq, layer, head);
      }
    }
    cache.Commit(seq, count);
  }

 private:
  KvGeometry g_;
  Rope rope_;
  std::vector<float> values_;
};

// K of one head at every position as the cache holds it, rotations undone; formats before RoPE are
// left before it.
std::vector<std::vector<float>> HeldKeys(const Cache& cache, SequenceId seq, int layer, int head) {
  const int d = cache.geometry().head_dim;
  std::vector<std::vector<float>> keys(static_cast<size_t>(cache.length(seq)));
  const HeadView view = cache.View(seq, layer, head, (cache.length(seq) - 1) / cache.page_tokens());
  for (const Run& run : view.runs) {
    if (run.empty()) continue;
    std::vector<float> rows(static_cast<size_t>(run.layout->tokens * d));
    for (int t = run.first_token; t < run.end_token; ++t) {
      const int in_page = t % run.layout->tokens;
      if (in_page == 0 || t == run.first_token) {
        DecodeSide(run.layout->k, run.pages[t / run.layout->tokens], rows.data(), d);
      }
      std::vector<float>& key = keys[static_cast<size_t>(run.first_position + t)];
      key.assign(rows.begin() + in_page * d, rows.begin() + (in_page + 1) * d);
      RotateBack(view.to_query, d, key.data());
    }
  }
  return keys;
}

// The error of held keys against the true ones at the new positions, over the keys' own size.
// Positions below `keep` hold the contents of their number, others those `moved` further on.
double KeyError(const Cache& cache, SequenceId seq, const RopeKeys& keys, int64_t keep,
                int64_t moved, int64_t from, int64_t to) {
  double error = 0, size = 0;
  for (int layer = 0; layer < cache.geometry().layers; ++layer) {
    for (int head = 0; head < cache.geometry().kv_heads; ++head) {
      const auto held = HeldKeys(cache, seq, layer, head);
      for (int64_t p = from; p < to; ++p) {
        const auto truth = keys.Key(p < keep ? p : p + moved, p, layer, head);
        for (size_t c = 0; c < truth.size(); ++c) {
          error += std::pow(held[static_cast<size_t>(p)][c] - truth[c], 2);
          size += truth[c] * truth[c];
        }
      }
    }
  }
  return std::sqrt(error / size);
}

// ---- What a shift does to keys

// With and without a rotation of the vectors, for even and odd heads: keys after RoPE are turned
// (a Hadamard does not make that needless), and coding them again costs one more error of the
// format's own size: two independent errors of equal size are sqrt(2) times one. A tenth is left
// for what is not independent and for the sample.
TEST(CacheShift, KeysTurnByWhatTheyMovedInEveryFormat) {
  const std::pair<const char*, const char*> kFormats[] = {
      {"f16", "f16"},   {"f32", "f32"},           {"f16", "int4"},           {"q8_0", "q8_0"},
      {"q4_0", "q4_0"}, {"int8", "int8"},         {"int4", "int4"},          {"tq4", "tq4"},
      {"tq3", "tq3"},   {"tq4:mean:n8", "tq4"},   {"nest4", "nest4"},        {"tcx4:mean", "tc3"},
      {"tc2", "tc2"},   {"fp8_e4m3", "fp8_e4m3"}, {"int4:out1", "int4:out1"}};
  for (const int head_dim : {64, 80}) {
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
      const KvGeometry g{1, 1, head_dim, 1};
      const Rope rope{pairs, RopeFrequencies(10000, head_dim - 16)};  // 16 channels do not turn
      const RopeKeys keys(g, rope, 700);
      for (const auto& [k, v] : kFormats) {
        const KvSpec spec = MakeSpec(k, v, 4, 64);
        auto cache = MakeCache(g, spec);
        const SequenceId seq = NewSequence(*cache);
        keys.Append(*cache, seq, 0, 650);
        // 320 .. 500 are stored, the last 64 are not.
        const double stored_before = KeyError(*cache, seq, keys, 0, 0, 320, 500);
        const Status status = cache->Shift(seq, 64, 192, std::vector<Rope>{rope});
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(cache->length(seq), 458);
        const double kept = KeyError(*cache, seq, keys, 64, 192, 4, 64);
        const double stored = KeyError(*cache, seq, keys, 64, 192, 128, 308);
        const double window = KeyError(*cache, seq, keys, 64, 192, 400, 458);
        const std::string name = std::string(k) + ' ' + std::to_string(head_dim) +
                                 (pairs == RopePairs::kHalves ? "h" : "n");
        EXPECT_LT(kept, 1.1 * stored_before + 1e-6) << name;
        EXPECT_LT(stored, 1.1 * std::numbers::sqrt2 * stored_before + 1e-6) << name;
        // Two roundings to f16 or none, half a place of 11 bits each (bf16 is not among them).
        EXPECT_LT(window, 0x1p-10) << name;
        const int64_t moved_pages = (458 - 1) / 64 - 1 - 1;
        const bool recoded = !spec.k.is_float();
        EXPECT_EQ(cache->ledger().recoded_tokens, recoded ? moved_pages * 64 : 0) << name;
      }
    }
  }
}

// A page turns every pair by quarters, which are exact in every float type, so a shift can be told
// from a fresh sequence bit by bit.
TEST(CacheShift, ExactTurnsGiveAFreshSequenceBitForBit) {
  const KvGeometry g{2, 2, 16, 2};
  Rope rope{RopePairs::kHalves, {}};
  for (int i = 0; i < 8; ++i) rope.frequencies.push_back(std::numbers::pi / 128 * (i - 3));
  const std::vector<Rope> ropes(2, rope);
  struct Case {
    KvSpec spec;
    int64_t keep;
  };
  const std::vector<Case> cases = {{MakeSpec("f16", "f16"), 64},
                                   {MakeSpec("f16", "f16"), 4},
                                   {MakeSpec("f32", "bf16"), 77},
                                   {MakeSpec("f16", "f16"), 0},
                                   {MakeSpec("f16", "int4", 4, 64), 64},
                                   {MakeSpec("int4:channel:g32:min:prerope", "int4", 4, 64), 64},
                                   {MakeSpec("int4:prerope:out1", "f16", 0, 128), 0},
                                   {MakeSpec("int4:prerope", "int8", 16, 0), 64}};
  for (const auto& [spec, keep] : cases) {
    for (const int64_t drop : {64, 128}) {
      Timeline tokens = Tokens(600);
      // Ten bits and never 0, whose sign would differ; token i has them at position i and turns by
      // whole pages.
      const auto row = [&](uint32_t token, int64_t position, int layer, int head, Side side) {
        std::vector<float> x;
        for (int c = 0; c < 16; ++c) {
          const float value = testing::TokenValue(token, 0, layer, head, side, c);
          x.push_back((std::round(value * 8) + 0.5f) / 8);
        }
        if (side == Side::kV) return x;
        const int64_t pages = (position - static_cast<int64_t>(token - tokens[0])) / 64;
        for (int i = 0; i < 8; ++i) {
          for (int64_t turn = 0; turn < ((pages * (i - 3)) % 4 + 4) % 4; ++turn) {
            std::swap(x[static_cast<size_t>(i)], x[static_cast<size_t>(i + 8)]);
            x[static_cast<size_t>(i)] *= -1;
          }
        }
        return x;
      };
      const auto grow = [&](Cache& cache, SequenceId seq, const Timeline& line, int64_t length) {
        const int64_t start = cache.length(seq), count = length - start;
        ASSERT_TRUE(cache.Reserve(seq, count).ok());
        for (int layer = 0; layer < 2; ++layer) {
          for (int head = 0; head < 2; ++head) {
            std::vector<float> k, v;
            for (int64_t p = start; p < length; ++p) {
              const uint32_t token = line[static_cast<size_t>(p)];
              for (const float x : row(token, p, layer, head, Side::kK)) k.push_back(x);
              for (const float x : row(token, p, layer, head, Side::kV)) v.push_back(x);
            }
            ASSERT_TRUE(cache.Append(seq, layer, head, k.data(), 16, v.data(), 16, count).ok());
            ASSERT_TRUE(cache.Seal(seq, layer, head).ok());
            cache.Release(seq, layer, head);
          }
        }
        cache.Commit(seq, count);
      };
      Timeline short_line = tokens;
      short_line.erase(short_line.begin() + keep, short_line.begin() + keep + drop);
      auto shifted = Cache::Create(g, spec, {.context_tokens = 1000, .ropes = ropes}).value();
      auto fresh = Cache::Create(g, spec, {.context_tokens = 1000, .ropes = ropes}).value();
      const SequenceId a = NewSequence(*shifted), b = NewSequence(*fresh);
      grow(*shifted, a, tokens, 500);
      const Status status = shifted->Shift(a, keep, drop, ropes);
      ASSERT_TRUE(status.ok()) << status.message();
      grow(*fresh, b, short_line, 500 - drop);
      EXPECT_EQ(PictureOf(*shifted, a), PictureOf(*fresh, b)) << FormatSpec(spec.k) << ' ' << keep;
      grow(*shifted, a, short_line, 450);
      grow(*fresh, b, short_line, 450);
      EXPECT_EQ(PictureOf(*shifted, a), PictureOf(*fresh, b)) << FormatSpec(spec.k) << ' ' << keep;
      EXPECT_EQ(shifted->ledger().kv_bytes, fresh->ledger().kv_bytes);
      EXPECT_EQ(shifted->ledger().recoded_tokens, 0);
      ExpectPoolsBalance(*shifted);
    }
  }
}

TEST(CacheShift, StoredPagesBeforeRopeStayWhatTheyAre) {
  const KvSpec spec = MakeSpec("int4:prerope:out1", "int4:out1", 4, 64);
  auto cache = MakeCache(kSmall, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(640), 640, 640);
  const auto page = [&](int64_t p) {
    const std::byte* at = cache->StoredPage(seq, 1, 1, p);
    return std::vector<std::byte>(at, at + cache->stored_layout(1).page_bytes);
  };
  const auto kept = page(0), moved = page(4), last = page(7);
  ASSERT_TRUE(cache->Shift(seq, 64, 128, UsualRopes(kSmall)).ok());
  EXPECT_EQ(page(0), kept);
  EXPECT_EQ(page(2), moved);
  EXPECT_EQ(page(5), last);
  EXPECT_EQ(cache->ledger().recoded_tokens, 0);
}

// Every coding adds one error of the format's size; at worst they all point the same way. (A
// context that is shifted by half of itself drops a key after one or two, a short one after three.)
TEST(CacheShift, DriftIsNoMoreThanItsErrorsAddUpTo) {
  const KvGeometry g{1, 2, 64, 2};
  const RopeKeys keys(g, UsualRope(64), 1300);
  for (const char* format : {"q8_0", "int4", "tq4:mean:bal:n8", "tq3"}) {
    auto cache = MakeCache(g, MakeSpec(format, "int4", 4, 64));
    const SequenceId seq = NewSequence(*cache);
    keys.Append(*cache, seq, 0, 1290);
    const double once = KeyError(*cache, seq, keys, 0, 0, 1088, 1152);
    for (int n = 1; n <= 16; ++n) {
      ASSERT_TRUE(cache->Shift(seq, 64, 64, std::vector<Rope>(1, UsualRope(64))).ok());
      if (n != 1 && n != 4 && n != 16) continue;
      const double error = KeyError(*cache, seq, keys, 64, 64 * n, 1088 - 64 * n, 1152 - 64 * n);
      EXPECT_LT(error, (n + 1) * once) << format << ' ' << n;
      RecordProperty(std::string(format) + " after " + std::to_string(n) + ", of once",
                     std::to_string(error / once));
    }
  }
}

// ---- What it must leave alone

TEST(CacheShift, AForkThatSharesPagesKeepsItsOwn) {
  for (const char* format : {"int4", "f16", "tq4", "int4:prerope"}) {
    const KvSpec spec = MakeSpec(format, "int4", 4, 64);
    auto cache = MakeCache(kSmall, spec);
    const SequenceId seq = NewSequence(*cache);
    ExtendTo(*cache, seq, Tokens(700), 600, 100);
    const SequenceId fork = *cache->Fork(seq);
    const auto before = PictureOf(*cache, fork);
    ASSERT_TRUE(cache->Shift(seq, 4, 128, UsualRopes(kSmall)).ok());
    EXPECT_EQ(PictureOf(*cache, fork), before) << format;
    // The same shift of the fork gives the same bytes.
    ASSERT_TRUE(cache->Shift(fork, 4, 128, UsualRopes(kSmall)).ok());
    EXPECT_EQ(PictureOf(*cache, fork), PictureOf(*cache, seq)) << format;
    ExpectPoolsBalance(*cache);
    ASSERT_TRUE(cache->Free(seq).ok());
    ASSERT_TRUE(cache->Free(fork).ok());
    EXPECT_EQ(testing::UsedPages(*cache), 0);
  }
}

TEST(CacheShift, WhatIsImpossibleIsRefusedAndChangesNothing) {
  const std::vector<Rope> ropes = UsualRopes(kSmall);
  auto cache = MakeCache(kSmall, MakeSpec("int4", "int4", 4, 128));
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, Tokens(500), 500, 500);
  const auto before = PictureOf(*cache, seq);
  const auto refused = [&](const Status& status, StatusCode code, const std::string& what) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    EXPECT_EQ(PictureOf(*cache, seq), before);
  };
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  refused(cache->Shift(seq, 4, 100, ropes), kInvalid, "whole pages go, of 64 tokens");
  refused(cache->Shift(seq, 4, 0, ropes), kInvalid, "whole pages");
  refused(cache->Shift(seq, -64, 64, ropes), kInvalid, "-64");
  refused(cache->Shift(seq, 0, 64, ropes), kInvalid, "the 4 sinks can stay");
  refused(cache->Shift(seq, 70, 64, ropes), kInvalid, "whole pages of 64");
  // Pages 5 to 7 are window.
  refused(cache->Shift(seq, 64, 320, ropes), StatusCode::kOutOfRange, "the newest 3 pages");
  refused(cache->Shift(seq, 448, 64, ropes), StatusCode::kOutOfRange, "nothing would follow");
  refused(cache->Shift(seq, 64, 64, std::span(ropes).first(1)), kInvalid, "there are 1");
  refused(cache->Shift(9, 64, 64, ropes), StatusCode::kNotFound, "sequence 9");
  EXPECT_TRUE(cache->Shift(seq, 64, 256, ropes).ok());
  ASSERT_TRUE(cache->Reserve(seq, 1).ok());
  EXPECT_EQ(cache->Shift(seq, 64, 64, ropes).code(), kInvalid);
}

// A key near the end of f16 whose channels swap their sizes when it turns.
TEST(CacheShift, AKeyThatItsPageCannotHoldOnceTurnedIsRefusedWithItsPlace) {
  const KvGeometry g{1, 1, 16, 1};
  const std::vector<Rope> ropes(1, Rope{RopePairs::kHalves, {std::numbers::pi / 256}});
  for (const char* format : {"f16", "int8"}) {
    auto cache = MakeCache(g, MakeSpec(format, "f16", 0, 64));
    const SequenceId seq = NewSequence(*cache);
    std::vector<float> k(300 * 16, 1.0f);
    k[280 * 16] = k[280 * 16 + 1] = 60000;
    ASSERT_TRUE(cache->Reserve(seq, 300).ok());
    ASSERT_TRUE(cache->Append(seq, 0, 0, k.data(), 16, k.data(), 16, 300).ok());
    ASSERT_TRUE(cache->Seal(seq, 0, 0).ok());
    cache->Commit(seq, 300);
    const auto before = PictureOf(*cache, seq);
    const Status status = cache->Shift(seq, 0, 64, ropes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("position 216"), std::string::npos) << status.message();
    EXPECT_EQ(PictureOf(*cache, seq), before);
  }
}

TEST(CacheShift, KeepIsRoundedToWhatPagesAllow) {
  const auto coded = MakeCache(kSmall, MakeSpec("int4", "int4", 4, 64));
  EXPECT_EQ(coded->PossibleKeep(0), 4);
  EXPECT_EQ(coded->PossibleKeep(4), 4);
  EXPECT_EQ(coded->PossibleKeep(5), 64);
  EXPECT_EQ(coded->PossibleKeep(129), 192);
  EXPECT_EQ(MakeCache(kSmall, MakeSpec("f16", "f16"))->PossibleKeep(129), 129);
}

}  // namespace
}  // namespace kvant
