#include "kvant/bench_attention.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "eval/filled_cache.h"

namespace kvant {
namespace {

constexpr int64_t kMaxDepthTokens = 1 << 24;

// All specs at one depth, on one level after another; the specs take turns within a repetition, so
// that a slow second of the machine hits all of them.
Status BenchDepth(const AttentionBenchOptions& o, const std::vector<Isa>& isas, int64_t depth,
                  const RandomTokens& tokens, DecodeStage& stage,
                  std::vector<AttentionBenchRow>* rows, const std::function<void()>& advance) {
  if (o.probabilities) {
    stage.probabilities.resize(static_cast<size_t>(o.batch * o.geometry.q_heads * depth));
  }
  std::vector<FilledCache> caches;
  for (const KvSpec& spec : o.specs) {
    KVANT_ASSIGN_OR_RETURN(FilledCache cache,
                           FilledCache::Create(o.geometry, spec, o.batch, depth, tokens));
    caches.push_back(std::move(cache));
    advance();
  }
  for (Isa isa : isas) {
    KVANT_RETURN_IF_ERROR(SetActiveIsa(isa));
    const size_t first = rows->size();
    for (size_t i = 0; i < caches.size(); ++i) {
      rows->push_back({o.specs[i], isa, depth, caches[i].bytes_read_per_step(), {}, 0});
      KVANT_RETURN_IF_ERROR(RunDecodeStep(caches[i], stage));  // warms buffers, not timed
    }
    for (int repetition = 0; repetition < o.repetitions; ++repetition) {
      for (size_t i = 0; i < caches.size(); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        KVANT_RETURN_IF_ERROR(RunDecodeStep(caches[i], stage));
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
  DecodeStage stage;
  KVANT_ASSIGN_OR_RETURN(stage.pool, ThreadPool::Create(o.threads));
  const RandomTokens tokens(o.geometry.head_dim, o.seed);
  stage.q = tokens.Queries(o.batch * o.geometry.q_heads * o.geometry.head_dim);
  stage.out.resize(stage.q.size());
  const double parts = static_cast<double>(o.depths.size() * (o.specs.size() + isas.size()));
  double done = 0;
  const auto advance = [&] {
    done += 1;
    if (progress) progress(done / parts);
  };
  std::vector<AttentionBenchRow> rows;
  for (int64_t depth : o.depths) {
    KVANT_RETURN_IF_ERROR(BenchDepth(o, isas, depth, tokens, stage, &rows, advance));
  }
  for (AttentionBenchRow& row : rows) {
    std::vector<int64_t> sorted = row.samples_ns;
    std::sort(sorted.begin(), sorted.end());
    row.median_ns = sorted[sorted.size() / 2];
  }
  return rows;
}

}  // namespace kvant
