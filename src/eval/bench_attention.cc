#include "kvant/bench_attention.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "attention/attention.h"
#include "base/thread_pool.h"
#include "cache/cache.h"

namespace kvant {
namespace {

constexpr int64_t kFillTokens = 512;  // appended to a cache at once
constexpr int64_t kNoiseValues = 1 << 20;
constexpr int64_t kMaxDepthTokens = 1 << 24;

// Numbers of about unit variance; what they are does not matter to the time, only that no format
// finds them constant.
std::vector<float> MakeNoise(uint64_t state) {
  std::vector<float> noise(kNoiseValues);
  for (float& value : noise) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5f;
    }
    value = sum * std::sqrt(3.0f);
  }
  return noise;
}

// A cache with `batch` sequences of `depth` random tokens.
class FilledCache {
 public:
  static Result<FilledCache> Create(const AttentionBenchOptions& o, const KvSpec& spec,
                                    int64_t depth, const std::vector<float>& noise) {
    FilledCache filled;
    KVANT_ASSIGN_OR_RETURN(filled.cache_,
                           Cache::CreateWithoutModel(o.geometry, spec, {.context_tokens = depth}));
    for (int64_t i = 0; i < o.batch; ++i) {
      KVANT_ASSIGN_OR_RETURN(const SequenceId sequence, filled.cache_->NewSequence());
      filled.sequences_.push_back(sequence);
      for (int64_t done = 0; done < depth;) {
        const int64_t count =
            std::min({kFillTokens, depth - done, filled.cache_->max_step_tokens(sequence)});
        KVANT_RETURN_IF_ERROR(filled.Fill(sequence, count, noise));
        done += count;
      }
    }
    return filled;
  }

  int64_t bytes_read_per_step() const {
    int64_t bytes = 0;
    for (SequenceId sequence : sequences_) bytes += cache_->bytes_read_per_token(sequence);
    return bytes;
  }

  // The newest token's queries against one layer, for every sequence and KV head.
  //   q, out         [sequences][q_heads][head_dim]
  //   probabilities  [sequences][q_heads][tokens], or null
  void AddTasks(int layer, const float* q, float* out, float* probabilities,
                std::vector<AttentionTask>* tasks) const {
    const KvGeometry& g = cache_->geometry();
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const int64_t position = cache_->length(sequences_[i]) - 1;
      for (int head = 0; head < g.kv_heads; ++head) {
        const int64_t first_row = static_cast<int64_t>(i) * g.q_heads + head * g.group_ratio();
        const int64_t first = first_row * g.head_dim;
        AttentionTask task;
        task.view = cache_->View(sequences_[i], layer, head, position / cache_->page_tokens());
        task.first_position = position;
        task.queries = 1;
        task.group_ratio = g.group_ratio();
        task.q = q + first;
        task.q_query_stride = int64_t{g.q_heads} * g.head_dim;
        task.out = out + first;
        task.out_query_stride = task.q_query_stride;
        task.probability_stride = position + 1;
        if (probabilities != nullptr) {
          task.probabilities = probabilities + first_row * task.probability_stride;
        }
        tasks->push_back(task);
      }
    }
  }

 private:
  Status Fill(SequenceId sequence, int64_t tokens, const std::vector<float>& noise) {
    const KvGeometry& g = cache_->geometry();
    KVANT_RETURN_IF_ERROR(cache_->Reserve(sequence, tokens));
    const int64_t room = kNoiseValues - tokens * g.head_dim;
    for (int layer = 0; layer < g.layers; ++layer) {
      for (int head = 0; head < g.kv_heads; ++head) {
        const float* k = noise.data() + (step_ += 997) % room;
        const float* v = noise.data() + (step_ += 997) % room;
        KVANT_RETURN_IF_ERROR(
            cache_->Append(sequence, layer, head, k, g.head_dim, v, g.head_dim, tokens));
        KVANT_RETURN_IF_ERROR(cache_->Seal(sequence, layer, head));
        cache_->Release(sequence, layer, head);
      }
    }
    cache_->Commit(sequence, tokens);
    return Status::Ok();
  }

  std::unique_ptr<Cache> cache_;
  std::vector<SequenceId> sequences_;
  int64_t step_ = 0;
};

// What a step needs besides the cache.
struct Stage {
  std::unique_ptr<ThreadPool> pool;
  AttentionWorkspace workspace;
  std::vector<float> q, out, probabilities;  // the last empty where nobody asks for them
  std::vector<AttentionTask> tasks;
};

Status RunStep(const FilledCache& cache, const KvGeometry& g, Stage& stage) {
  for (int layer = 0; layer < g.layers; ++layer) {
    stage.tasks.clear();
    float* const probabilities = stage.probabilities.empty() ? nullptr : stage.probabilities.data();
    cache.AddTasks(layer, stage.q.data(), stage.out.data(), probabilities, &stage.tasks);
    KVANT_RETURN_IF_ERROR(Attend(*stage.pool, stage.tasks, g.head_dim,
                                 1.0f / std::sqrt(static_cast<float>(g.head_dim)),
                                 stage.workspace));
  }
  return Status::Ok();
}

// All specs at one depth, on one level after another; the specs take turns within a repetition, so
// that a slow second of the machine hits all of them.
Status BenchDepth(const AttentionBenchOptions& o, const std::vector<Isa>& isas, int64_t depth,
                  const std::vector<float>& noise, Stage& stage,
                  std::vector<AttentionBenchRow>* rows, const std::function<void()>& advance) {
  if (o.probabilities) {
    stage.probabilities.resize(static_cast<size_t>(o.batch * o.geometry.q_heads * depth));
  }
  std::vector<FilledCache> caches;
  for (const KvSpec& spec : o.specs) {
    KVANT_ASSIGN_OR_RETURN(FilledCache cache, FilledCache::Create(o, spec, depth, noise));
    caches.push_back(std::move(cache));
    advance();
  }
  for (Isa isa : isas) {
    KVANT_RETURN_IF_ERROR(SetActiveIsa(isa));
    const size_t first = rows->size();
    for (size_t i = 0; i < caches.size(); ++i) {
      rows->push_back({o.specs[i], isa, depth, caches[i].bytes_read_per_step(), {}, 0});
      KVANT_RETURN_IF_ERROR(RunStep(caches[i], o.geometry, stage));  // warms buffers, not timed
    }
    for (int repetition = 0; repetition < o.repetitions; ++repetition) {
      for (size_t i = 0; i < caches.size(); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        KVANT_RETURN_IF_ERROR(RunStep(caches[i], o.geometry, stage));
        const auto elapsed = std::chrono::steady_clock::now() - begin;
        (*rows)[first + i].samples_ns.push_back(
            std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
      }
    }
    advance();
  }
  return Status::Ok();
}

Status CheckOptions(const AttentionBenchOptions& o) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  if (o.specs.empty() || o.depths.empty()) {
    return Status::InvalidArgument("a benchmark needs at least one format and one depth");
  }
  for (const KvSpec& spec : o.specs) KVANT_RETURN_IF_ERROR(CheckKvSpec(spec, o.geometry));
  for (int64_t depth : o.depths) {
    if (depth < 1 || depth > kMaxDepthTokens) {
      return Status::InvalidArgument("a depth of " + std::to_string(depth) +
                                     " tokens is not between 1 and 16777216");
    }
  }
  if (o.batch < 1 || o.batch > 4096 || o.repetitions < 1 || o.repetitions > 100000) {
    return Status::InvalidArgument(std::to_string(o.batch) + " sequences and " +
                                   std::to_string(o.repetitions) +
                                   " repetitions are not both positive and sane");
  }
  return Status::Ok();
}

// Puts the active level back however the benchmark ends.
class IsaRestorer {
 public:
  IsaRestorer() : isa_(ActiveIsa()) {}
  ~IsaRestorer() { (void)SetActiveIsa(isa_); }

 private:
  Isa isa_;
};

}  // namespace

Result<std::vector<AttentionBenchRow>> BenchAttention(const AttentionBenchOptions& o,
                                                      const std::function<void(double)>& progress) {
  KVANT_RETURN_IF_ERROR(CheckOptions(o));
  const IsaRestorer restorer;
  const std::vector<Isa> isas = o.isas.empty() ? std::vector<Isa>{ActiveIsa()} : o.isas;
  Stage stage;
  KVANT_ASSIGN_OR_RETURN(stage.pool, ThreadPool::Create(o.threads));
  const std::vector<float> noise = MakeNoise(o.seed);
  stage.q.assign(noise.begin(), noise.begin() + o.geometry.q_heads * o.geometry.head_dim);
  for (int64_t i = 1; i < o.batch; ++i) {
    stage.q.insert(stage.q.end(), stage.q.begin(),
                   stage.q.begin() + o.geometry.q_heads * o.geometry.head_dim);
  }
  stage.out.resize(stage.q.size());
  const double parts = static_cast<double>(o.depths.size() * (o.specs.size() + isas.size()));
  double done = 0;
  const auto advance = [&] {
    done += 1;
    if (progress) progress(done / parts);
  };
  std::vector<AttentionBenchRow> rows;
  for (int64_t depth : o.depths) {
    KVANT_RETURN_IF_ERROR(BenchDepth(o, isas, depth, noise, stage, &rows, advance));
  }
  for (AttentionBenchRow& row : rows) {
    std::vector<int64_t> sorted = row.samples_ns;
    std::sort(sorted.begin(), sorted.end());
    row.median_ns = sorted[sorted.size() / 2];
  }
  return rows;
}

}  // namespace kvant
