// Helpers for tests of layers that see only their newest tokens: a cache without windows, driven
// alike, holds the truth.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cache/cache_testing.h"

namespace kvant::testing {

using Windows = std::vector<int64_t>;

// Everything that the query at `position` sees of one head: positions, forms and values.
inline void AddSeen(const Cache& cache, SequenceId seq, int layer, int head, int64_t position,
                    int64_t window, Picture* out) {
  const int head_dim = cache.geometry().head_dim;
  const auto add = [&](const void* bytes, size_t count) {
    out->bytes.append(static_cast<const char*>(bytes), count);
  };
  const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window);
  const HeadView view = cache.View(seq, layer, head, position / cache.page_tokens());
  for (const Run& run : view.runs) {
    int64_t decoded_page = -1;
    std::vector<float> k, v;
    for (int64_t t = run.first_token; t < run.end_token; ++t) {
      const int64_t at = run.first_position + t;
      if (at < first || at > position) continue;
      const PageLayout& layout = *run.layout;
      if (t / layout.tokens != decoded_page) {
        decoded_page = t / layout.tokens;
        k.resize(static_cast<size_t>(layout.tokens * head_dim));
        v.resize(k.size());
        DecodeSide(layout.k, run.pages[decoded_page], k.data(), head_dim);
        DecodeSide(layout.v, run.pages[decoded_page] + layout.v_offset_bytes, v.data(), head_dim);
      }
      add(&at, sizeof at);
      add(&layout.k.format.bits, sizeof layout.k.format.bits);
      const auto row = static_cast<size_t>(t % layout.tokens * head_dim);
      add(k.data() + row, static_cast<size_t>(head_dim) * sizeof(float));
      add(v.data() + row, static_cast<size_t>(head_dim) * sizeof(float));
    }
  }
}

// Of the last token, in all heads.
inline Picture SeenAtTheEnd(const Cache& cache, SequenceId seq, const Windows& windows) {
  Picture out;
  const KvGeometry& g = cache.geometry();
  for (int layer = 0; layer < g.layers && cache.length(seq) > 0; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head) {
      AddSeen(cache, seq, layer, head, cache.length(seq) - 1, windows[static_cast<size_t>(layer)],
              &out);
    }
  }
  return out;
}

// A cache with windows and one without, which get the same calls.
struct Twins {
  Twins(const KvGeometry& geometry, const KvSpec& spec, const Windows& windows_in,
        int64_t context = 4096)
      : windows(windows_in),
        narrow(MakeCache(geometry, spec, context, 0, windows)),
        wide(MakeCache(geometry, spec, context)) {}

  // One step, and whether every query of it sees the same in both.
  void Step(SequenceId n, SequenceId w, const Timeline& tokens, int64_t count) {
    const int64_t before = narrow->length(n);
    ASSERT_EQ(wide->length(w), before);
    Picture seen_narrow, seen_wide;
    const auto look = [&](const Cache& cache, SequenceId seq, Picture* out) {
      return [&cache, seq, out, before, count, this](int layer, int head) {
        const int64_t window = windows[static_cast<size_t>(layer)];
        for (const int64_t step : {int64_t{1}, int64_t{63}}) {  // some of them, of every page
          for (int64_t p = before; p < before + count && (step == 63 || p < before + 2);
               p += step) {
            AddSeen(cache, seq, layer, head, p, window, out);
          }
        }
        AddSeen(cache, seq, layer, head, before + count - 1, window, out);
      };
    };
    ASSERT_TRUE(RunStep(*narrow, n, tokens, count, look(*narrow, n, &seen_narrow)).ok());
    ASSERT_TRUE(RunStep(*wide, w, tokens, count, look(*wide, w, &seen_wide)).ok());
    ASSERT_EQ(seen_narrow, seen_wide) << "step of " << count << " at " << before;
  }
  void Commit(SequenceId n, SequenceId w, int64_t count) {
    narrow->Commit(n, count);
    wide->Commit(w, count);
  }
  void ExpectSame(SequenceId n, SequenceId w) const {
    ASSERT_EQ(narrow->length(n), wide->length(w));
    ASSERT_EQ(SeenAtTheEnd(*narrow, n, windows), SeenAtTheEnd(*wide, w, windows))
        << "length " << narrow->length(n);
  }

  const Windows windows;
  std::unique_ptr<Cache> narrow, wide;
};

inline const char* const kWindowFormats[] = {"int4", "f16",   "q4_0", "int2:channel:g32",
                                             "f32",  "tq4:n8"};

// Three layers with windows, formats, sinks and an f16 window of any size. below(n): 0 to n - 1.
template <typename Below>
Twins RandomTwins(const Below& below) {
  const int64_t sizes[] = {0, 1, 5, 64, 65, 66, 100, 129, 200, 512};
  const char* const k = kWindowFormats[below(6)];
  const char* const v = kWindowFormats[below(6)];
  const int sinks = static_cast<int>(below(65)), window = 64 * static_cast<int>(below(3));
  KvSpec spec = MakeSpec(k, v, sinks, window);
  if (below(3) == 0) spec.skip_layers = {1};
  const int64_t first = sizes[below(10)], second = sizes[below(10)], third = sizes[1 + below(9)];
  return Twins({3, 1, 16, 1}, spec, {first, second, third}, 1500);
}

}  // namespace kvant::testing
