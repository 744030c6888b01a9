#include "kvant/bench_mixed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "eval/fetch_count.h"
#include "eval/filled_cache.h"
#include "eval/inline_tokens.h"
#include "kvant/isa.h"
#include "kvant/mixed_spec.h"
#include "policy/width_policy.h"

namespace kvant {
namespace {

constexpr int64_t kMaxDepthTokens = 65'536;  // places of InlineTokens have 27 bits
constexpr int64_t kEvictedAge = 256;
constexpr size_t kWidths = kMixedBenchWidths.size();

// Between 0 and 1, the same for a position on every host.
double Lot(int64_t position, bool for_eviction) {
  uint64_t hash =
      (2 * static_cast<uint64_t>(position) + (for_eviction ? 1 : 0) + 1) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;  // the finish of SplitMix64
  hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((hash ^ hash >> 31) >> 16) / 0x1p48;
}

// Which width a position has and whether it has gone, by lot.
class Lots {
 public:
  Lots(const MixedBenchOptions& o, double evicted_share) : evicted_share_(evicted_share) {
    std::partial_sum(o.shares.begin(), o.shares.end(), up_to_.begin());
  }

  int WidthOf(int64_t position) const {
    size_t i = 0;
    while (i + 1 < kWidths && Lot(position, false) * up_to_.back() >= up_to_[i]) ++i;
    return kMixedBenchWidths[i];
  }
  // length: when it was last asked.
  bool IsGone(int64_t position, int64_t length) const {
    return length - position > kEvictedAge && Lot(position, true) < evicted_share_;
  }

 private:
  const double evicted_share_;
  std::array<double, kWidths> up_to_ = {};
};

MixedPool PoolOf(int width) {
  const std::string name = std::to_string(width);
  const std::string format = "int" + name + ":token:min";
  return ParseMixedPools(width == 16 ? name : name + "=" + format + "/" + format)->front();
}

// Caches of one width have neither sinks nor window, so that nearly all they hold has it.
KvSpec OneWidthSpec(int width) {
  KvSpec spec;
  const FormatPair formats = PoolOf(width).formats;
  spec.k = formats.k;
  spec.v = formats.v;
  spec.sinks_tokens = spec.window_tokens = 0;
  return spec;
}

KvSpec PoolsSpec(const MixedBenchOptions& o, const Lots& lots) {
  MixedSpec mixed;
  for (size_t i = 0; i < kWidths; ++i) {
    if (o.shares[i] > 0) mixed.pools.push_back(PoolOf(kMixedBenchWidths[i]));
  }
  mixed.policy = std::make_shared<WidthPolicy>([lots](int64_t position, int64_t length) {
    return lots.IsGone(position, length) ? 0 : lots.WidthOf(position);
  });
  KvSpec spec;
  SetMixed(std::move(mixed), &spec);
  return spec;
}

// ---- Ways to hold the tokens

// One row and what it takes to measure it.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual Status Step(DecodeStage& stage) = 0;

  MixedBenchRow row;
  std::array<int64_t, kWidths> read_bytes = {};  // of a step, by width

 protected:
  // Counts what one head reads. `widths`: of its tokens, in the order of reading.
  void CountTokens(const std::vector<uint8_t>& widths, int head_dim) {
    row.head_tokens += std::ssize(widths);
    for (size_t i = 0; i < widths.size(); ++i) {
      row.useful_bytes += InlineTokens::RecordBytes(widths[i], head_dim);
      if (i % 32 != 0) continue;
      std::vector<uint8_t> some(widths.begin() + i,
                                widths.begin() + std::min(i + 32, widths.size()));
      std::sort(some.begin(), some.end());
      row.widths_in_32 += static_cast<double>(std::unique(some.begin(), some.end()) - some.begin());
      ++warps_;
    }
  }
  void CountFetched(const FetchedBytes& bytes) {
    row.line_bytes += bytes.in_lines;
    row.sector_bytes += bytes.in_sectors;
  }
  void FinishCounting() { row.widths_in_32 /= static_cast<double>(warps_); }
  static size_t IndexOf(int width) {
    return static_cast<size_t>(
        std::find(kMixedBenchWidths.begin(), kMixedBenchWidths.end(), width) -
        kMixedBenchWidths.begin());
  }

 private:
  int64_t warps_ = 0;
};

class CacheContender : public Contender {
 public:
  CacheContender(FilledCache cache, int width) : cache_(std::move(cache)) {
    row.width = width;
    const KvGeometry& g = cache_.cache().geometry();
    for (int layer = 0; layer < g.layers; ++layer) {
      for (int head = 0; head < g.kv_heads; ++head) CountHead(layer, head);
    }
    FinishCounting();
  }
  Status Step(DecodeStage& stage) override { return RunDecodeStep(cache_, stage); }

 private:
  void CountHead(int layer, int head) {
    FetchCount count;
    std::vector<uint8_t> widths;
    for (const Run& run : cache_.View(0, layer, head).runs) {
      if (run.empty()) continue;
      const int width = run.layout->k.format.is_float() ? 16 : run.layout->k.format.bits;
      FetchCount alone;
      alone.ReadRun(run);
      read_bytes[IndexOf(width)] += alone.Total().read;
      count.ReadRun(run);
      widths.insert(widths.end(), static_cast<size_t>(run.tokens()), static_cast<uint8_t>(width));
    }
    CountFetched(count.Total());
    CountTokens(widths, cache_.cache().geometry().head_dim);
  }

  FilledCache cache_;
};

class InlineContender : public Contender {
 public:
  // width 0: by lot, sinks and window in 16 as those of a cache.
  InlineContender(const MixedBenchOptions& o, MixedLayout layout, int width, const Lots& lots,
                  const RandomTokens& tokens)
      : geometry_(o.geometry) {
    row.layout = layout;
    row.width = width;
    for (int head = 0; head < o.geometry.layers * o.geometry.kv_heads; ++head) {
      AddHead(o, layout, lots, tokens, head);
    }
    FinishCounting();
  }

  // The outputs of the last layer stay.
  Status Step(DecodeStage& stage) override {
    const int rows = geometry_.group_ratio();
    const float scale = UsualSoftmaxScale(geometry_.head_dim);
    const size_t values = static_cast<size_t>(rows * geometry_.head_dim);
    outs_.resize(heads_.size() * values);
    stage.pool->ParallelFor(std::ssize(heads_), [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const size_t kv_head = i % static_cast<size_t>(geometry_.kv_heads);
        heads_[i].Attend(stage.q.data() + kv_head * values, rows, scale, outs_.data() + i * values);
      }
    });
    std::copy(outs_.end() - std::ssize(stage.out), outs_.end(), stage.out.begin());
    return Status::Ok();
  }

 private:
  void AddHead(const MixedBenchOptions& o, MixedLayout layout, const Lots& lots,
               const RandomTokens& tokens, int head) {
    const int head_dim = geometry_.head_dim;
    const KvSpec usual;
    // As a cache asks: when the newest page began.
    const int64_t asked_at = (o.depth_tokens - 1) / kPageTokens * kPageTokens;
    const int64_t window =
        asked_at - (usual.window_tokens + kPageTokens - 1) / kPageTokens * kPageTokens;
    InlineTokens& held = heads_.emplace_back(layout, head_dim);
    for (int64_t t = 0; t < o.depth_tokens; ++t) {
      const bool is_fixed = t < usual.sinks_tokens || t >= window;
      const int width = row.width != 0 ? row.width : is_fixed ? 16 : lots.WidthOf(t);
      const bool is_gone = row.width == 0 && !is_fixed && lots.IsGone(t, asked_at);
      held.Add(width, is_gone, tokens.Rows(Side::kK, head, t), tokens.Rows(Side::kV, head, t));
    }
    FetchCount count;
    held.CountReads(count);
    CountFetched(count.Total());
    const std::vector<uint8_t> widths = held.Widths();
    for (const uint8_t width : widths) {
      read_bytes[IndexOf(width)] += InlineTokens::RecordBytes(width, head_dim);
    }
    CountTokens(widths, head_dim);
  }

  const KvGeometry geometry_;
  std::vector<InlineTokens> heads_;
  std::vector<float> outs_;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

Result<Contenders> MakeContenders(const MixedBenchOptions& o, const RandomTokens& tokens) {
  Contenders all;
  const Lots none(o, 0), lots(o, o.evicted_share);
  const auto add_cache = [&](const KvSpec& spec, int width) {
    KVANT_ASSIGN_OR_RETURN(FilledCache cache,
                           FilledCache::Create(o.geometry, spec, 1, o.depth_tokens, tokens));
    all.push_back(std::make_unique<CacheContender>(std::move(cache), width));
    return Status::Ok();
  };
  const auto add_inline = [&](MixedLayout layout, int width, const Lots& by) {
    all.push_back(std::make_unique<InlineContender>(o, layout, width, by, tokens));
  };
  for (const int width : kMixedBenchWidths) {
    KVANT_RETURN_IF_ERROR(add_cache(OneWidthSpec(width), width));
  }
  for (const int width : kMixedBenchWidths) add_inline(MixedLayout::kStream, width, none);
  for (const Lots* by : {&none, &lots}) {
    const size_t first = all.size();
    KVANT_RETURN_IF_ERROR(add_cache(PoolsSpec(o, *by), 0));
    for (const MixedLayout layout :
         {MixedLayout::kStream, MixedLayout::kIndexed, MixedLayout::kSlots}) {
      add_inline(layout, 0, *by);
    }
    for (size_t i = first; i < all.size(); ++i) all[i]->row.is_evicted = by == &lots;
  }
  return all;
}

// ---- Measuring

// What the bytes of each width take where all tokens have it, in the repetition that ran last.
double NsAtOneWidth(const Contenders& all, const Contender& mixed) {
  const size_t first = mixed.row.layout == MixedLayout::kPools ? 0 : kWidths;
  double ns = 0;
  for (size_t i = 0; i < kWidths; ++i) {
    const Contender& one = *all[first + i];
    const int64_t bytes = std::accumulate(one.read_bytes.begin(), one.read_bytes.end(), int64_t{0});
    ns += static_cast<double>(one.row.samples_ns.back()) *
          static_cast<double>(mixed.read_bytes[i]) / static_cast<double>(bytes);
  }
  return ns;
}

Status Repeat(const Contenders& all, DecodeStage& stage) {
  for (const auto& contender : all) {
    const auto begin = std::chrono::steady_clock::now();
    KVANT_RETURN_IF_ERROR(contender->Step(stage));
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    contender->row.samples_ns.push_back(
        std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }
  for (const auto& contender : all) {
    if (contender->row.width != 0) continue;
    contender->row.over_one_width.push_back(static_cast<double>(contender->row.samples_ns.back()) /
                                            NsAtOneWidth(all, *contender));
  }
  return Status::Ok();
}

// Runs each once, which warms buffers, and compares what the mixed ones answer.
Status Compare(const Contenders& all, DecodeStage& stage) {
  std::vector<float> pools;
  for (const auto& contender : all) {
    KVANT_RETURN_IF_ERROR(contender->Step(stage));
    if (contender->row.width != 0) continue;
    if (contender->row.layout == MixedLayout::kPools) pools = stage.out;
    for (size_t i = 0; i < pools.size(); ++i) {
      contender->row.answer_difference =
          std::max<double>(contender->row.answer_difference, std::abs(stage.out[i] - pools[i]));
    }
  }
  return Status::Ok();
}

Status CheckOptions(const MixedBenchOptions& o) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckGeometry(o.geometry));
  if (o.geometry.head_dim % 16 != 0 || o.geometry.head_dim > InlineTokens::kMaxHeadDim ||
      o.geometry.group_ratio() > InlineTokens::kMaxQueries) {
    return Status::InvalidArgument(
        "tokens in line take heads of a multiple of 16 channels up to 256 and at most 16 query "
        "heads a KV head, not " +
        std::to_string(o.geometry.head_dim) + " and " + std::to_string(o.geometry.group_ratio()));
  }
  if (o.depth_tokens < 512 || o.depth_tokens > kMaxDepthTokens) {
    return Status::InvalidArgument("a depth of " + std::to_string(o.depth_tokens) +
                                   " tokens is not between 512 and 65536");
  }
  const bool is_share = std::all_of(o.shares.begin(), o.shares.end(),
                                    [](double share) { return share >= 0 && share <= 1e6; });
  if (!is_share || !(std::accumulate(o.shares.begin(), o.shares.end(), 0.0) > 0)) {
    return Status::InvalidArgument("the shares of the widths are not all at least 0 and one above");
  }
  if (!(o.evicted_share >= 0 && o.evicted_share <= 0.95)) {
    return Status::InvalidArgument("a share of " + std::to_string(o.evicted_share) +
                                   " evicted tokens is not between 0 and 0.95");
  }
  if (o.repetitions < 1 || o.repetitions > 100000) {
    return Status::InvalidArgument(std::to_string(o.repetitions) +
                                   " repetitions are not between 1 and 100000");
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<MixedBenchRow>> BenchMixed(const MixedBenchOptions& o,
                                              const std::function<void(double)>& progress) {
  KVANT_RETURN_IF_ERROR(CheckOptions(o));
  DecodeStage stage;
  KVANT_ASSIGN_OR_RETURN(stage.pool, ThreadPool::Create(o.threads));
  const RandomTokens tokens(o.geometry.head_dim, o.seed);
  stage.q = tokens.Queries(o.geometry.q_heads * o.geometry.head_dim);
  stage.out.resize(stage.q.size());
  KVANT_ASSIGN_OR_RETURN(const Contenders all, MakeContenders(o, tokens));
  KVANT_RETURN_IF_ERROR(Compare(all, stage));
  for (int repetition = 0; repetition < o.repetitions; ++repetition) {
    KVANT_RETURN_IF_ERROR(Repeat(all, stage));
    if (progress) progress((repetition + 1.0) / o.repetitions);
  }
  std::vector<MixedBenchRow> rows;
  for (const auto& contender : all) rows.push_back(std::move(contender->row));
  return rows;
}

}  // namespace kvant
