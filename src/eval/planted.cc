#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "cache/cache.h"
#include "eval/filled_cache.h"
#include "kvant/isa.h"
#include "kvant/sampler.h"
#include "kvant/tasks.h"

namespace kvant {
namespace {

constexpr int kKvHeads = 4;
constexpr int kGroupRatio = 8;
constexpr int kOffsetChannels = 4;
constexpr int64_t kMinTokens = 512, kMaxTokens = 1 << 20;

// About normal, with unit variance, from additions only: the same on every platform.
float DrawNormal(RandomStream& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.NextUnit();
  return static_cast<float>(sum);
}

// Keys, values and queries of one KV head. Each query points along the key of its planted token.
struct PlantedHead {
  std::vector<float> k, v;      // [tokens][head_dim]
  std::vector<float> q;         // [kGroupRatio][head_dim]
  std::vector<int64_t> tokens;  // [kGroupRatio] planted

  std::span<const float> Row(const std::vector<float>& rows, int64_t row, int head_dim) const {
    return {rows.data() + row * head_dim, static_cast<size_t>(head_dim)};
  }
};

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

PlantedHead MakeHead(const PlantedOptions& o, RandomStream& random) {
  PlantedHead head;
  const size_t values = static_cast<size_t>(o.tokens) * static_cast<size_t>(o.head_dim);
  for (size_t i = 0; i < values; ++i) head.k.push_back(DrawNormal(random));
  for (size_t i = 0; i < values; ++i) head.v.push_back(DrawNormal(random));
  const double score = std::log(static_cast<double>(o.tokens)) + o.margin;
  // Behind the sinks and well before any window.
  const uint64_t first = 64, range = static_cast<uint64_t>(o.tokens) / 2;
  for (int g = 0; g < kGroupRatio; ++g) {
    const int64_t token = static_cast<int64_t>(first + random.Next() % range);
    const auto key = head.Row(head.k, token, o.head_dim);
    const double gain = score * std::sqrt(static_cast<double>(o.head_dim)) / Dot(key, key);
    for (const float x : key) head.q.push_back(static_cast<float>(gain * x));
    head.tokens.push_back(token);
  }
  const int step = o.head_dim / kOffsetChannels;
  for (size_t i = 0; i < values; i += static_cast<size_t>(step)) head.k[i] += o.channel_offset;
  return head;
}

// softmax(q k^T / sqrt(head_dim)) v in f64.
std::vector<float> ExactOutput(const PlantedOptions& o, const PlantedHead& head, int g) {
  const auto q = head.Row(head.q, g, o.head_dim);
  std::vector<double> scores;
  for (int64_t t = 0; t < o.tokens; ++t) {
    scores.push_back(Dot(q, head.Row(head.k, t, o.head_dim)) / std::sqrt(double(o.head_dim)));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(static_cast<size_t>(o.head_dim));
  double sum = 0;
  for (int64_t t = 0; t < o.tokens; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t)] - top);
    sum += p;
    const auto v = head.Row(head.v, t, o.head_dim);
    for (size_t c = 0; c < out.size(); ++c) out[c] += p * v[c];
  }
  std::vector<float> result;
  for (const double x : out) result.push_back(static_cast<float>(x / sum));
  return result;
}

double Mass(std::span<const float> out, std::span<const float> value) {
  return Dot(out, value) / Dot(value, value);
}

// The token whose value is nearest to the output.
int64_t NearestToken(const PlantedOptions& o, const PlantedHead& head, std::span<const float> out) {
  int64_t nearest = 0;
  double least = INFINITY;
  for (int64_t t = 0; t < o.tokens; ++t) {
    const auto v = head.Row(head.v, t, o.head_dim);
    const double distance = Dot(v, v) - 2 * Dot(v, out);  // less |out|^2
    if (distance < least) {
      least = distance;
      nearest = t;
    }
  }
  return nearest;
}

Status Fill(Cache& cache, SequenceId sequence, const PlantedOptions& o,
            const std::vector<PlantedHead>& heads) {
  KVANT_RETURN_IF_ERROR(cache.Reserve(sequence, o.tokens));
  for (int h = 0; h < kKvHeads; ++h) {
    const PlantedHead& head = heads[static_cast<size_t>(h)];
    KVANT_RETURN_IF_ERROR(cache.Append(sequence, 0, h, head.k.data(), o.head_dim, head.v.data(),
                                       o.head_dim, o.tokens));
    KVANT_RETURN_IF_ERROR(cache.Seal(sequence, 0, h));
    cache.Release(sequence, 0, h);
  }
  cache.Commit(sequence, o.tokens);
  return Status::Ok();
}

// [kKvHeads][kGroupRatio][head_dim], what the last token's queries read.
Result<std::vector<float>> CachedOutputs(const KvSpec& spec, const PlantedOptions& o,
                                         const std::vector<PlantedHead>& heads) {
  const KvGeometry geometry = {1, kKvHeads, o.head_dim, kKvHeads * kGroupRatio};
  KVANT_ASSIGN_OR_RETURN(const std::unique_ptr<Cache> cache,
                         Cache::CreateWithoutModel(geometry, spec, {.context_tokens = o.tokens}));
  KVANT_ASSIGN_OR_RETURN(const SequenceId sequence, cache->NewSequence());
  KVANT_RETURN_IF_ERROR(Fill(*cache, sequence, o, heads));
  const int64_t row = static_cast<int64_t>(kGroupRatio) * o.head_dim;
  std::vector<float> out(static_cast<size_t>(kKvHeads * row));
  std::vector<AttentionTask> tasks;
  for (int h = 0; h < kKvHeads; ++h) {
    AttentionTask task;
    task.view = cache->View(sequence, 0, h, (o.tokens - 1) / cache->page_tokens());
    task.first_position = o.tokens - 1;
    task.queries = 1;
    task.group_ratio = kGroupRatio;
    task.q = heads[static_cast<size_t>(h)].q.data();
    task.out = out.data() + h * row;
    task.q_query_stride = task.out_query_stride = row;
    tasks.push_back(task);
  }
  KVANT_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool, ThreadPool::Create(1));
  AttentionWorkspace workspace;
  KVANT_RETURN_IF_ERROR(Attend(*pool, tasks, o.head_dim, UsualSoftmaxScale(o.head_dim), workspace));
  return out;
}

}  // namespace

Result<PlantedResult> RunPlanted(const KvSpec& spec, const PlantedOptions& o) {
  if (o.tokens < kMinTokens || o.tokens > kMaxTokens || o.head_dim < kOffsetChannels ||
      o.head_dim > 1024 || !std::isfinite(o.margin) || !std::isfinite(o.channel_offset)) {
    return Status::InvalidArgument(
        "a planted key wants 512 to 1048576 tokens, heads of 4 to 1024 "
        "channels, and a finite margin and offset");
  }
  KVANT_RETURN_IF_ERROR(IsaStatus());
  RandomStream random(o.seed);
  std::vector<PlantedHead> heads;
  for (int h = 0; h < kKvHeads; ++h) heads.push_back(MakeHead(o, random));
  KVANT_ASSIGN_OR_RETURN(const std::vector<float> outputs, CachedOutputs(spec, o, heads));

  PlantedResult result;
  result.queries = kKvHeads * kGroupRatio;
  for (int row = 0; row < result.queries; ++row) {
    const PlantedHead& head = heads[static_cast<size_t>(row / kGroupRatio)];
    const int g = row % kGroupRatio;
    const int64_t planted = head.tokens[static_cast<size_t>(g)];
    const auto value = head.Row(head.v, planted, o.head_dim);
    const auto out = head.Row(outputs, row, o.head_dim);
    const double mass = Mass(out, value), exact = Mass(ExactOutput(o, head, g), value);
    result.hit_rate += NearestToken(o, head, out) == planted ? 1.0 / result.queries : 0;
    result.mean_mass += mass / result.queries;
    result.exact_mass += exact / result.queries;
    result.max_mass_error = std::max(result.max_mass_error, std::abs(mass - exact));
  }
  return result;
}

}  // namespace kvant
