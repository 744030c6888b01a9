// A little world for attention tests: one KV head with given K and V, stored as a cache would store
// it, and an f64 attention over any K and V to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "cache/key_rope.h"
#include "codec/codec.h"
#include "codec/levels_for_test.h"
#include "kvant/format.h"

namespace kvant::testing {

struct HeadSetup {
  Format k = kFormatF16, v = kFormatF16;
  int head_dim = 64;
  int tokens = 0;
  int sinks = 0;
  int window_pages = 1;
  // Of formats with pre_rope: how k was turned. Empty: UsualRope(head_dim).
  Rope rope = {};
};

// Owns the pages of one head and the values that a reader of them sees.
class PagedHead {
 public:
  PagedHead(const HeadSetup& setup, const std::vector<float>& k, const std::vector<float>& v,
            std::byte fill = std::byte{0})
      : setup_(setup),
        page_tokens_(PageTokensFor(setup.k, setup.v)),
        stored_(MakePageLayout(setup.k, setup.v, setup.head_dim, page_tokens_)),
        open_(MakeOpen(setup, page_tokens_)),
        sink_(MakeOpen(setup, std::max(16, (setup.sinks + 15) / 16 * 16))),
        rope_(setup.rope.frequencies.empty() ? UsualRope(setup.head_dim) : setup.rope),
        seen_k(k),
        seen_v(v) {
    for (SideLayout* side : {&stored_.k, &stored_.v}) {
      if (side->format.levels == Levels::kFitted) side->fitted = &TestLevels(side->format.bits);
    }
    const int pages = (setup.tokens + page_tokens_ - 1) / page_tokens_;
    EXPECT_TRUE(rope_.Grow(setup.tokens).ok());
    for (int p = 0; p < pages; ++p) {
      open_pages_.push_back(NewPage(open_, fill));
      for (int t = p * page_tokens_; t < std::min((p + 1) * page_tokens_, setup.tokens); ++t) {
        StoreToken(open_, open_pages_.back(), t - p * page_tokens_, t, k, v);
      }
    }
    sink_pages_.push_back(NewPage(sink_, fill));
    for (int t = 0; t < std::min(setup.sinks, setup.tokens); ++t) {
      StoreToken(sink_, sink_pages_[0], t, t, k, v);
    }
    const int last = (setup.tokens - 1) / page_tokens_;
    for (int p = 0; p + setup.window_pages < last; ++p) {
      stored_pages_.push_back(NewPage(stored_, fill));
      const int first = p == 0 ? setup.sinks : 0;
      const std::byte* from = open_pages_[static_cast<size_t>(p)];
      std::byte* to = stored_pages_.back();
      std::vector<std::byte> k_page(from, from + open_.k.bytes);
      if (setup.k.pre_rope) TurnBack(rope_.view(), open_.k, from, p * page_tokens_, k_page.data());
      EncodeSide(open_.k, k_page.data(), stored_.k, first, to);
      EncodeSide(open_.v, from + open_.v_offset_bytes, stored_.v, first,
                 to + stored_.v_offset_bytes);
    }
    ReadBack();
    open_view_.assign(open_pages_.begin(), open_pages_.end());
    stored_view_.assign(stored_pages_.begin(), stored_pages_.end());
    sink_view_.assign(sink_pages_.begin(), sink_pages_.end());
  }

  // What queries of page `page` see.
  HeadView View(int page) const {
    HeadView view;
    if (setup_.k.pre_rope) view.rope = rope_.view();
    const int first_open = std::max(0, page - setup_.window_pages);
    const int written = std::min(setup_.tokens, (page + 1) * page_tokens_);
    view.runs[0] = {&sink_, sink_view_.data(), 1, 0, 0, std::min(setup_.sinks, written)};
    view.runs[1] = {&stored_, stored_view_.data(), first_open,
                    0,        setup_.sinks,        first_open * page_tokens_};
    view.runs[2] = {&open_,
                    open_view_.data() + first_open,
                    page + 1 - first_open,
                    first_open * page_tokens_,
                    first_open == 0 ? setup_.sinks : 0,
                    written - first_open * page_tokens_};
    if (first_open == 0) view.runs[1].end_token = 0;
    return view;
  }
  int page_tokens() const { return page_tokens_; }

 private:
  static PageLayout MakeOpen(const HeadSetup& s, int tokens) {
    const FormatPair open = OpenFormats({s.k, s.v});
    return MakePageLayout(open.k, open.v, s.head_dim, tokens);
  }
  std::byte* NewPage(const PageLayout& layout, std::byte fill) {
    buffers_.push_back(
        std::move(AlignedBuffer::Create(static_cast<size_t>(layout.page_bytes)).value()));
    std::memset(buffers_.back().data(), static_cast<int>(fill), buffers_.back().bytes());
    return buffers_.back().data();
  }
  void StoreToken(const PageLayout& layout, std::byte* page, int slot, int token,
                  const std::vector<float>& k, const std::vector<float>& v) const {
    for (int c = 0; c < setup_.head_dim; ++c) {
      const size_t at = static_cast<size_t>(token) * setup_.head_dim + c;
      StoreFloatValue(layout.k, page, slot, c, k[at]);
      StoreFloatValue(layout.v, page + layout.v_offset_bytes, slot, c, v[at]);
    }
  }
  // seen_k, seen_v := what the *last* query page reads.
  void ReadBack() {
    const int d = setup_.head_dim;
    std::vector<float> page_k(static_cast<size_t>(page_tokens_) * d), page_v = page_k;
    for (size_t p = 0; p < open_pages_.size(); ++p) {
      const bool coded = p < stored_pages_.size();
      const PageLayout& layout = coded ? stored_ : open_;
      const std::byte* page = coded ? stored_pages_[p] : open_pages_[p];
      DecodeSide(layout.k, page, page_k.data(), d);
      DecodeSide(layout.v, page + layout.v_offset_bytes, page_v.data(), d);
      for (int t = 0; t < page_tokens_; ++t) {
        const int token = static_cast<int>(p) * page_tokens_ + t;
        if (token >= setup_.tokens || (coded && token < setup_.sinks)) continue;
        if (coded && setup_.k.pre_rope) Turn(token, &page_k[static_cast<size_t>(t) * d]);
        std::memcpy(&seen_k[static_cast<size_t>(token) * d], &page_k[static_cast<size_t>(t) * d],
                    d * 4u);
        std::memcpy(&seen_v[static_cast<size_t>(token) * d], &page_v[static_cast<size_t>(t) * d],
                    d * 4u);
      }
    }
  }

  // As attention turns a decoded key, in double.
  void Turn(int position, float* k) const {
    const KeyRope r = rope_.view();
    for (int i = 0; i < r.count; ++i) {
      const double angle = position * rope_.rope().frequencies[static_cast<size_t>(i)];
      float &first = k[r.step * i], &second = k[r.step * i + r.to_partner];
      const double a = first, b = second;
      first = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      second = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
    }
  }

  HeadSetup setup_;
  int page_tokens_;
  PageLayout stored_, open_, sink_;
  KeyRopeTable rope_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<std::byte*> open_pages_, stored_pages_, sink_pages_;
  std::vector<const std::byte*> open_view_, stored_view_, sink_view_;

 public:
  std::vector<float> seen_k, seen_v;  // [tokens][head_dim]
};

// softmax(q k^T * scale) in f64 over the tokens [first, visible); 0 before them.
inline std::vector<double> ReferenceProbabilities(const float* q, const std::vector<float>& k,
                                                  int head_dim, int visible, double scale,
                                                  int first = 0) {
  std::vector<double> p(static_cast<size_t>(visible));
  double max = -INFINITY, sum = 0;
  for (int t = first; t < visible; ++t) {
    double dot = 0;
    for (int c = 0; c < head_dim; ++c) {
      dot += static_cast<double>(q[c]) * k[static_cast<size_t>(t) * head_dim + c];
    }
    p[static_cast<size_t>(t)] = dot * scale;
    max = std::max(max, dot * scale);
  }
  for (int t = first; t < visible; ++t) {
    double& x = p[static_cast<size_t>(t)];
    sum += x = std::exp(x - max);
  }
  for (double& x : p) x /= sum;
  return p;
}

// softmax(q k^T * scale) v in f64 over the first `visible` tokens.
inline std::vector<double> ReferenceAttention(const float* q, const std::vector<float>& k,
                                              const std::vector<float>& v, int head_dim,
                                              int visible, double scale) {
  const std::vector<double> p = ReferenceProbabilities(q, k, head_dim, visible, scale);
  std::vector<double> out(static_cast<size_t>(head_dim), 0.0);
  for (int t = 0; t < visible; ++t) {
    for (int c = 0; c < head_dim; ++c) {
      out[static_cast<size_t>(c)] +=
          p[static_cast<size_t>(t)] * v[static_cast<size_t>(t) * head_dim + c];
    }
  }
  return out;
}

inline std::vector<float> RandomValues(size_t count, uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

// Runs the last `queries` positions of one head; returns [queries][group_ratio][head_dim].
//   probabilities  [queries][group_ratio][tokens], null: not asked for
//   window_tokens  that a query sees; 0: all
inline std::vector<float> AttendHead(ThreadPool& pool, const PagedHead& head,
                                     const HeadSetup& setup, const std::vector<float>& q,
                                     int queries, int group_ratio, int chunk_queries = 1 << 30,
                                     float* probabilities = nullptr, int64_t window_tokens = 0) {
  const int d = setup.head_dim, b = head.page_tokens();
  std::vector<float> out(q.size(), -12345.0f);
  AttentionWorkspace workspace;
  for (int done = 0; done < queries;) {
    std::vector<AttentionTask> tasks;
    for (int taken = 0; done < queries && taken < chunk_queries;) {
      const int position = setup.tokens - queries + done;
      AttentionTask task;
      task.view = head.View(position / b);
      task.first_position = position;
      task.queries =
          std::min({queries - done, (position / b + 1) * b - position, chunk_queries - taken});
      task.group_ratio = group_ratio;
      task.q = q.data() + static_cast<size_t>(done) * group_ratio * d;
      task.q_query_stride = static_cast<int64_t>(group_ratio) * d;
      task.out = out.data() + static_cast<size_t>(done) * group_ratio * d;
      task.out_query_stride = task.q_query_stride;
      task.window_tokens = window_tokens;
      if (probabilities != nullptr) {
        task.probabilities = probabilities + int64_t{done} * group_ratio * setup.tokens;
        task.probability_stride = setup.tokens;
      }
      tasks.push_back(task);
      taken += task.queries;
      done += task.queries;
    }
    const Status status =
        Attend(pool, tasks, d, 1.0f / std::sqrt(static_cast<float>(d)), workspace);
    if (!status.ok()) return {};
  }
  return out;
}

}  // namespace kvant::testing
