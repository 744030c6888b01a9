// Helpers for tests of the cache: timelines of made-up tokens whose K and V anybody can recompute,
// and pictures of all that a reader can see of a sequence.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/cache.h"
#include "codec/codec.h"

namespace kvant::testing {

// What token number `token` at `position` writes: a hash, spread over about [-4, 4], with an
// outlying channel and a constant one.
inline float TokenValue(uint32_t token, int64_t position, int layer, int kv_head, Side side,
                        int channel) {
  if (channel == 3) return 2.5f;
  uint64_t h = token * 0x9e3779b97f4a7c15u;
  for (int64_t part :
       {position, int64_t{layer}, int64_t{kv_head}, int64_t{side == Side::kK}, int64_t{channel}}) {
    h = (h ^ static_cast<uint64_t>(part + 1)) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
  }
  const float x = static_cast<float>(static_cast<int64_t>(h >> 40) - (1 << 23)) * 0x1p-21f;
  return channel == 5 ? 10 * x + 7 : x;
}

using Timeline = std::vector<uint32_t>;

inline Timeline Tokens(int64_t count, uint32_t seed = 1) {
  Timeline tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(seed * 1000003u + static_cast<uint32_t>(i));
  return tokens;
}

inline FormatPair MakePair(const std::string& k, const std::string& v) {
  const Result<Format> kf = ParseFormat(k, Side::kK), vf = ParseFormat(v, Side::kV);
  EXPECT_TRUE(kf.ok()) << kf.status().message();
  EXPECT_TRUE(vf.ok()) << vf.status().message();
  return {*kf, *vf};
}

inline KvSpec MakeSpec(const std::string& k, const std::string& v, int sinks = 4, int window = 64) {
  const FormatPair pair = MakePair(k, v);
  KvSpec spec;
  spec.k = pair.k;
  spec.v = pair.v;
  spec.sinks_tokens = sinks;
  spec.window_tokens = window;
  return spec;
}

// windows: [layers] or empty.
inline std::unique_ptr<Cache> MakeCache(const KvGeometry& geometry, const KvSpec& spec,
                                        int64_t context = 4096, int64_t budget = 0,
                                        std::span<const int64_t> windows = {}) {
  auto cache = Cache::CreateWithoutModel(
      geometry, spec,
      {.context_tokens = context, .budget_bytes = budget, .layer_windows = windows});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return cache.ok() ? std::move(cache).value() : nullptr;
}

// K and V rows of tokens [first, first + count) of a timeline for one head.
inline void MakeRows(const Timeline& tokens, int64_t first, int64_t count, int layer, int kv_head,
                     HeadChannels channels, std::vector<float>* k, std::vector<float>* v) {
  k->clear();
  v->clear();
  for (int64_t t = first; t < first + count; ++t) {
    const uint32_t token = tokens[static_cast<size_t>(t)];
    for (int c = 0; c < channels.k; ++c) {
      k->push_back(TokenValue(token, t, layer, kv_head, Side::kK, c));
    }
    for (int c = 0; c < channels.v; ++c) {
      v->push_back(TokenValue(token, t, layer, kv_head, Side::kV, c));
    }
  }
}

// Appends, seals and releases tokens [length, length + count) in every head, without Commit.
// `visit(layer, head)` runs while the head can be viewed.
template <typename Visit>
Status RunStep(Cache& cache, SequenceId seq, const Timeline& tokens, int64_t count,
               const Visit& visit) {
  KVANT_RETURN_IF_ERROR(cache.Reserve(seq, count));
  std::vector<float> k, v;
  const KvGeometry& g = cache.geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head) {
      MakeRows(tokens, cache.length(seq), count, layer, head, g, &k, &v);
      KVANT_RETURN_IF_ERROR(cache.Append(seq, layer, head, k.data(), g.k_channels(), v.data(),
                                         g.v_channels(), count));
      KVANT_RETURN_IF_ERROR(cache.Seal(seq, layer, head));
      visit(layer, head);
      cache.Release(seq, layer, head);
    }
  }
  return Status::Ok();
}

// One whole step; an abandoned one is rolled back.
inline Status Extend(Cache& cache, SequenceId seq, const Timeline& tokens, int64_t count) {
  const Status status = RunStep(cache, seq, tokens, count, [](int, int) {});
  if (status.ok()) {
    cache.Commit(seq, count);
  } else {
    cache.Rollback(seq);
  }
  return status;
}

// Extends to `length` in steps of at most `chunk`.
inline void ExtendTo(Cache& cache, SequenceId seq, const Timeline& tokens, int64_t length,
                     int64_t chunk) {
  while (cache.length(seq) < length) {
    const Status status = Extend(cache, seq, tokens, std::min(chunk, length - cache.length(seq)));
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

inline SequenceId NewSequence(Cache& cache) {
  const Result<SequenceId> id = cache.NewSequence();
  EXPECT_TRUE(id.ok());
  return *id;
}

// Everything a reader can see of a sequence: length, runs, stored bytes, visible float values.
// Prints as its size and a hash, since the bytes would fill a log.
struct Picture {
  std::string bytes;
  bool operator==(const Picture&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Picture& picture) {
    return out << picture.bytes.size() << " bytes, hash "
               << std::hash<std::string>()(picture.bytes);
  }
};

inline Picture PictureOf(const Cache& cache, SequenceId seq) {
  Picture out;
  const auto add = [&](const void* bytes, size_t count) {
    out.bytes.append(static_cast<const char*>(bytes), count);
  };
  const auto add_int = [&](int64_t value) { add(&value, sizeof value); };
  const int64_t length = cache.length(seq);
  add_int(length);
  if (length == 0) return out;
  const KvGeometry& g = cache.geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head) {
      for (int64_t p = 0; p <= length / cache.page_tokens() + 1; ++p) {
        const std::byte* page = cache.StoredPage(seq, layer, head, p);
        add_int(page != nullptr);
        if (page != nullptr) add(page, static_cast<size_t>(cache.stored_layout(layer).page_bytes));
      }
      const HeadView view = cache.View(seq, layer, head, (length - 1) / cache.page_tokens());
      for (const Run& run : view.runs) {
        for (int64_t n : {run.num_pages, run.first_position, run.first_token, run.end_token}) {
          add_int(n);
        }
        for (int t = run.first_token; t < run.end_token; ++t) {
          const PageLayout& layout = *run.layout;
          const std::byte* page = run.pages[t / layout.tokens];
          if (!layout.k.format.is_float() || !layout.v.format.is_float()) break;
          const auto add_side = [&](const SideLayout& side, const std::byte* from) {
            for (int c = 0; c < side.head_dim; ++c) {
              const float value = LoadFloatValue(side, from, t % layout.tokens, c);
              add(&value, sizeof value);
            }
          };
          add_side(layout.k, page);
          add_side(layout.v, page + layout.v_offset_bytes);
        }
      }
    }
  }
  return out;
}

// The picture of a fresh sequence that took the first `length` tokens in steps of `chunk`.
inline Picture SoloPicture(const KvGeometry& geometry, const KvSpec& spec, const Timeline& tokens,
                           int64_t length, int64_t chunk = 4096) {
  auto cache = MakeCache(geometry, spec);
  const SequenceId seq = NewSequence(*cache);
  ExtendTo(*cache, seq, tokens, length, chunk);
  return PictureOf(*cache, seq);
}

inline void ExpectPoolsBalance(const Cache& cache) {
  int64_t total_bytes = 0;
  for (const Cache::PoolCount& c : cache.pool_counts()) {
    EXPECT_EQ(c.free_pages + c.used_pages, c.total_pages);
    EXPECT_GE(c.free_pages, 0);
    total_bytes += c.total_pages * c.page_bytes;
  }
  EXPECT_EQ(total_bytes, cache.ledger().allocated_bytes);
}

inline int64_t UsedPages(const Cache& cache) {
  int64_t used = 0;
  for (const Cache::PoolCount& c : cache.pool_counts()) used += c.used_pages;
  return used;
}

// Sets g_allocate for a scope. Tests only; not thread-safe.
class ScopedAllocate {
 public:
  explicit ScopedAllocate(AllocateFn allocate) : before_(g_allocate) { g_allocate = allocate; }
  ~ScopedAllocate() { g_allocate = before_; }
  ScopedAllocate(const ScopedAllocate&) = delete;

 private:
  const AllocateFn before_;
};

inline void* AllocatePoisoned(size_t alignment, size_t bytes) {
  void* block = std::aligned_alloc(alignment, bytes);
  if (block != nullptr) std::memset(block, 0xff, bytes);
  return block;
}
inline void* AllocateZeroed(size_t alignment, size_t bytes) {
  void* block = std::aligned_alloc(alignment, bytes);
  if (block != nullptr) std::memset(block, 0, bytes);
  return block;
}

// Of a model without a file: one rope for all layers.
inline std::vector<Rope> UsualRopes(const KvGeometry& g) {
  return std::vector<Rope>(static_cast<size_t>(g.layers), UsualRope(g.k_channels()));
}

}  // namespace kvant::testing
