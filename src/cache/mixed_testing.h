// Helpers for tests of caches whose tokens have several widths: what a reader sees of the pools.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "cache/cache_testing.h"
#include "cache/width_policy_for_test.h"
#include "codec/codec.h"
#include "kvant/mixed_spec.h"

namespace kvant::testing {

// What one query head's query gives a token: of its past, by hash, in [0, 1).
inline float GivenAttention(int64_t query, int64_t position, int row) {
  if (position > query) return 0;
  return static_cast<float>(HashOf(query * 8191 + position * 13 + row) % 4096) * 0x1p-12f;
}

// Tells the cache what the queries of the running step of `count` tokens give, as attention does:
// tokens of pools stand behind the sinks, in the order of the pools, all others by position.
inline Status TellAttention(Cache& cache, SequenceId seq, int64_t count, int layer, int head) {
  const int64_t first = cache.length(seq), length = first + count;
  const int group = cache.geometry().group_ratio();
  std::vector<float> rows(static_cast<size_t>(count * group * length));
  float* at = rows.data();
  for (int64_t query = first; query < length; ++query) {
    for (int g = 0; g < group; ++g, at += length) {
      for (int64_t t = 0; t < length; ++t) at[t] = GivenAttention(query, t, g);
      float* pooled = at + std::min<int64_t>(cache.spec().sinks_tokens, length);
      for (const MixedPool& pool : cache.spec().mixed->pools) {
        for (const int32_t t : cache.PoolPositions(seq, layer, head, pool.width)) {
          *pooled++ = GivenAttention(query, t, g);
        }
      }
    }
  }
  return cache.AddAttention(seq, layer, head, rows.data(), length);
}

// A step of a cache of several widths, whose policy hears what attention it asks for.
inline Status ExtendHeard(Cache& cache, SequenceId seq, const Timeline& tokens, int64_t count) {
  Status heard;
  Status status = RunStep(cache, seq, tokens, count, [&](int layer, int head) {
    if (heard.ok() && cache.measures_attention(layer)) {
      heard = TellAttention(cache, seq, count, layer, head);
    }
  });
  if (status.ok()) status = heard;
  if (status.ok()) {
    cache.Commit(seq, count);
  } else {
    cache.Rollback(seq);
  }
  return status;
}

// Extends to `length`, each step as long as the cache takes it, at most `chunk`.
inline void ExtendMixed(Cache& cache, SequenceId seq, const Timeline& tokens, int64_t length,
                        int64_t chunk = 64) {
  while (cache.length(seq) < length) {
    const int64_t count = std::min({chunk, length - cache.length(seq), cache.max_step_tokens(seq)});
    const Status status = ExtendHeard(cache, seq, tokens, count);
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

// What a query sees of one head: decoded rows by position.
struct SeenHead {
  struct Row {
    int width = 0;  // 16: sinks and open pages
    std::vector<float> k, v;
  };
  std::map<int64_t, Row> rows;

  // 0: the position is not there.
  int WidthOf(int64_t position) const {
    const auto at = rows.find(position);
    return at == rows.end() ? 0 : at->second.width;
  }
};

inline SeenHead SeeHead(const Cache& cache, SequenceId seq, int layer, int kv_head) {
  const int head_dim = cache.geometry().head_dim;
  const HeadView view =
      cache.View(seq, layer, kv_head, (cache.length(seq) - 1) / cache.page_tokens());
  SeenHead seen;
  const auto add = [&](const Run& run, int width, const std::function<int64_t(int)>& position) {
    const std::byte* decoded = nullptr;
    std::vector<float> k, v;
    for (int t = run.first_token; t < run.end_token; ++t) {
      const PageLayout& layout = *run.layout;
      const std::byte* page = run.pages[t / layout.tokens];
      if (page != decoded) {
        k.resize(static_cast<size_t>(layout.tokens * head_dim));
        v.resize(k.size());
        DecodeSide(layout.k, page, k.data(), head_dim);
        DecodeSide(layout.v, page + layout.v_offset_bytes, v.data(), head_dim);
        decoded = page;
      }
      const auto at = t % layout.tokens * head_dim;
      const bool is_new =
          seen.rows
              .emplace(position(t), SeenHead::Row{width,
                                                  {k.begin() + at, k.begin() + at + head_dim},
                                                  {v.begin() + at, v.begin() + at + head_dim}})
              .second;
      EXPECT_TRUE(is_new) << "position " << position(t) << " is there twice";
    }
  };
  for (size_t r : {size_t{0}, size_t{kMaxRuns - 1}}) {
    const Run& run = view.runs[r];
    add(run, 16, [&](int t) { return int64_t{run.first_position} + t; });
  }
  size_t r = 1;
  for (const MixedPool& pool : cache.spec().mixed->pools) {
    const auto positions = cache.PoolPositions(seq, layer, kv_head, pool.width);
    const int coded = view.runs[r].tokens(), tail = view.runs[r + 1].tokens();
    EXPECT_EQ(static_cast<size_t>(coded + tail), positions.size());
    EXPECT_LT(tail, kPageTokens);
    add(view.runs[r], pool.width, [&](int t) { return positions[static_cast<size_t>(t)]; });
    add(view.runs[r + 1], pool.width,
        [&](int t) { return positions[static_cast<size_t>(coded + t)]; });
    r += 2;
  }
  return seen;
}

// Snapshot() and, of every pool, positions in their order and what is decoded of them.
inline Picture MixedPictureOf(const Cache& cache, SequenceId seq) {
  Picture out = PictureOf(cache, seq);
  const auto add = [&](const void* bytes, size_t count) {
    out.bytes.append(static_cast<const char*>(bytes), count);
  };
  if (cache.length(seq) == 0) return out;
  const KvGeometry& g = cache.geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head) {
      for (const MixedPool& pool : cache.spec().mixed->pools) {
        const auto positions = cache.PoolPositions(seq, layer, head, pool.width);
        add(positions.data(), positions.size_bytes());
      }
      if (!IsMixedLayer(cache.spec(), layer)) continue;
      for (const auto& [position, row] : SeeHead(cache, seq, layer, head).rows) {
        add(&position, sizeof position);
        add(row.k.data(), row.k.size() * sizeof(float));
        add(row.v.data(), row.v.size() * sizeof(float));
      }
    }
  }
  return out;
}

inline Picture SoloMixedPictureOf(const KvGeometry& geometry, const KvSpec& spec,
                                  const Timeline& tokens, int64_t length, int64_t chunk = 64) {
  auto cache = MakeCache(geometry, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendMixed(*cache, seq, tokens, length, chunk);
  return MixedPictureOf(*cache, seq);
}

// visit(layer, head, what SeeHead finds) for every head whose tokens have several widths.
template <typename Visit>
void ForEachMixedHead(const Cache& cache, SequenceId seq, const Visit& visit) {
  const KvGeometry& g = cache.geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    if (!IsMixedLayer(cache.spec(), layer)) continue;
    for (int head = 0; head < g.kv_heads; ++head) {
      visit(layer, head, SeeHead(cache, seq, layer, head));
    }
  }
}

// What no policy may touch stands as written, and no position twice or behind the end.
inline void ExpectSinksAndWindow(const Cache& cache, SequenceId seq) {
  const int64_t length = cache.length(seq), page = cache.page_tokens();
  if (length == 0) return;
  const int64_t closed = (length - 1) / page * page - cache.window_pages() * page;
  ForEachMixedHead(cache, seq, [&](int, int, const SeenHead& seen) {
    for (int64_t t = 0; t < length; ++t) {
      if (t >= cache.spec().sinks_tokens && t < closed + page) continue;
      ASSERT_EQ(seen.WidthOf(t), 16) << "position " << t;
    }
    ASSERT_LT(seen.rows.rbegin()->first, length);
  });
}

// Every position stands once, at the width that the policy gave it when it was last asked, and
// nothing else does.
inline void ExpectKeptAsChosen(const Cache& cache, SequenceId seq, const WidthOf& width_of) {
  const int64_t length = cache.length(seq), page = cache.page_tokens();
  if (length == 0) return;
  const int64_t asked_at = (length - 1) / page * page;  // the newest page began there
  const int64_t closed = std::max<int64_t>(0, asked_at - cache.window_pages() * page);
  ForEachMixedHead(cache, seq, [&](int layer, int head, const SeenHead& seen) {
    for (int64_t t = 0; t < length; ++t) {
      const bool fixed = t < cache.spec().sinks_tokens || t >= closed;
      const int wanted = fixed ? 16 : width_of(t, asked_at);
      ASSERT_EQ(seen.WidthOf(t), wanted)
          << "position " << t << " of " << length << ", layer " << layer << ", head " << head;
    }
    ASSERT_TRUE(seen.rows.empty() || seen.rows.rbegin()->first < length);
  });
}

}  // namespace kvant::testing
