// Many sequences in one call, forked from a common prefix: each gets the bits that it gets alone,
// and pages that they share are planned to be read once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "attention/attention.h"
#include "cache/cache_testing.h"

namespace kvant {
namespace {

using testing::ExtendTo;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::Timeline;
using testing::Tokens;

constexpr int kHeadDim = 64, kKvHeads = 2;

// Sequences that share their first tokens; the last token of each is the query.
class Forks {
 public:
  Forks(const KvSpec& spec, int layers, int prefix, int batch)
      : geometry_{.layers = layers,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim,
                  .q_heads = kKvHeads},
        cache_(MakeCache(geometry_, spec)) {
    const Timeline common = Tokens(prefix);
    const SequenceId parent = NewSequence(*cache_);
    ExtendTo(*cache_, parent, common, prefix, 512);
    for (int i = 0; i < batch; ++i) {
      ids_.push_back(cache_->Fork(parent).value());
      Timeline tokens = common;
      const Timeline own = Tokens(1 + 37 * i, 100 + static_cast<uint32_t>(i));
      tokens.insert(tokens.end(), own.begin(), own.end());
      ExtendTo(*cache_, ids_.back(), tokens, static_cast<int64_t>(tokens.size()), 512);
    }
  }

  // q, out: [sequences][kKvHeads][group_ratio][kHeadDim]
  std::vector<AttentionTask> Tasks(int layer, int group_ratio, const float* q, float* out) const {
    std::vector<AttentionTask> tasks;
    for (SequenceId id : ids_) {
      const int64_t position = cache_->length(id) - 1;
      for (int head = 0; head < kKvHeads; ++head) {
        const size_t at = tasks.size() * static_cast<size_t>(group_ratio) * kHeadDim;
        tasks.push_back({.view = cache_->View(id, layer, head, position / cache_->page_tokens()),
                         .first_position = position,
                         .queries = 1,
                         .group_ratio = group_ratio,
                         .q = q + at,
                         .out = out + at});
      }
    }
    return tasks;
  }
  Cache& cache() { return *cache_; }
  const std::vector<SequenceId>& ids() const { return ids_; }

 private:
  KvGeometry geometry_;
  std::unique_ptr<Cache> cache_;
  std::vector<SequenceId> ids_;
};

std::vector<float> RandomQueries(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(count);
  for (float& x : q) x = normal(random);
  return q;
}

void AttendAll(ThreadPool& pool, std::span<const AttentionTask> tasks,
               AttentionWorkspace& workspace) {
  const Status status = Attend(pool, tasks, kHeadDim, 0.125f, workspace);
  ASSERT_TRUE(status.ok()) << status.message();
}

// Bytes of all pages that the tasks see, each page once: counted over addresses, not over plans.
int64_t DistinctBytes(std::span<const AttentionTask> tasks) {
  std::map<const std::byte*, int64_t> bytes;
  for (const AttentionTask& task : tasks) {
    for (const Run& run : task.view.runs) {
      for (int p = 0; p < run.num_pages && !run.empty(); ++p) {
        const PageLayout& layout = *run.layout;
        const int first = std::max(run.first_token - p * layout.tokens, 0);
        const int end = std::min(run.end_token - p * layout.tokens, layout.tokens);
        if (first >= end) continue;
        const bool by_token = layout.k.format.is_float() && layout.v.format.is_float();
        bytes[run.pages[p]] =
            by_token ? (end - first) * kHeadDim * (layout.k.format.bits + layout.v.format.bits) / 8
                     : layout.page_bytes;
      }
    }
  }
  int64_t sum = 0;
  for (const auto& [page, page_bytes] : bytes) sum += page_bytes;
  return sum;
}

struct Pair {
  const char* name;
  const char* k;
  const char* v;
};
constexpr Pair kPairs[] = {{"f16", "f16", "f16"},
                           {"int4", "int4:channel:g64:min", "int4:token:g64:min"},
                           {"long_pages", "int2:channel:g128:min", "int8:token:none"},
                           {"prerope", "int4:channel:g64:min:prerope:out1", "int4:token:min:out1"}};

#ifdef KVANT_SMALL_TILES  // sanitized builds are fifty times slower
constexpr int kPrefixes[] = {1, 65, 513}, kBatches[] = {1, 5}, kRatios[] = {3};
#else
constexpr int kPrefixes[] = {1, 63, 64, 65, 500, 512, 513, 1536}, kBatches[] = {1, 2, 5, 16},
              kRatios[] = {1, 3, 8};
#endif

class Cascade : public ::testing::TestWithParam<Pair> {
 protected:
  const KvSpec spec_ = MakeSpec(GetParam().k, GetParam().v);
  const std::unique_ptr<ThreadPool> pool_ = std::move(ThreadPool::Create(2).value());
};

TEST_P(Cascade, ForksGetTheBitsThatEachGetsAloneAndSharedPagesAreReadOnce) {
  for (const int prefix : kPrefixes) {
    for (const int batch : kBatches) {
      const Forks forks(spec_, 1, prefix, batch);
      for (const int ratio : kRatios) {
        SCOPED_TRACE("prefix " + std::to_string(prefix) + " batch " + std::to_string(batch) +
                     " ratio " + std::to_string(ratio));
        const auto q = RandomQueries(static_cast<size_t>(batch) * kKvHeads * ratio * kHeadDim);
        std::vector<float> together(q.size()), alone(q.size());
        const auto tasks = forks.Tasks(0, ratio, q.data(), together.data());
        AttentionWorkspace workspace;
        AttendAll(*pool_, tasks, workspace);
        EXPECT_EQ(workspace.plan().read_bytes(), DistinctBytes(tasks));
        for (const AttentionTask& task : forks.Tasks(0, ratio, q.data(), alone.data())) {
          AttentionWorkspace own;
          AttendAll(*pool_, {&task, 1}, own);
        }
        EXPECT_EQ(std::memcmp(together.data(), alone.data(), q.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST_P(Cascade, ForksGetTheProbabilitiesThatEachGetsAlone) {
  constexpr int kPrefix = 1100, kBatch = 5, kRatio = 3, kStride = 2048;
  const Forks forks(spec_, 1, kPrefix, kBatch);
  const auto q = RandomQueries(size_t{kBatch} * kKvHeads * kRatio * kHeadDim);
  std::vector<float> out(q.size());
  std::vector<float> together(size_t{kBatch} * kKvHeads * kRatio * kStride, -7.0f),
      alone = together;
  const auto ask = [&](std::vector<float>& to) {
    std::vector<AttentionTask> tasks = forks.Tasks(0, kRatio, q.data(), out.data());
    for (size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].probabilities = to.data() + i * kRatio * kStride;
      tasks[i].probability_stride = kStride;
    }
    return tasks;
  };
  AttentionWorkspace workspace;
  AttendAll(*pool_, ask(together), workspace);
  for (const AttentionTask& task : ask(alone)) {
    AttentionWorkspace own;
    AttendAll(*pool_, {&task, 1}, own);
  }
  EXPECT_EQ(together, alone);
  // Behind the tokens of its view nothing of a row is written.
  const std::vector<AttentionTask> tasks = ask(together);
  for (const AttentionTask& task : tasks) {
    for (int row = 0; row < kRatio; ++row) {
      const float* const p = task.probabilities + row * kStride;
      double sum = 0;
      for (int64_t t = 0; t < task.view.end_position(); ++t) sum += static_cast<double>(p[t]);
      EXPECT_NEAR(sum, 1.0, 1e-5);
      for (int64_t t = task.view.end_position(); t < kStride; ++t) ASSERT_EQ(p[t], -7.0f);
    }
  }
}

TEST_P(Cascade, LayersOfAStepUseOnePlan) {
  constexpr int kLayers = 3;
  Forks forks(spec_, kLayers, 700, 3);
  const auto q = RandomQueries(3 * kKvHeads * kHeadDim);
  std::vector<float> out(q.size()), want(q.size());
  AttentionWorkspace workspace;
  for (int layer = 0; layer < kLayers; ++layer) {
    AttendAll(*pool_, forks.Tasks(layer, 1, q.data(), out.data()), workspace);
    AttentionWorkspace fresh;
    AttendAll(*pool_, forks.Tasks(layer, 1, q.data(), want.data()), fresh);
    EXPECT_EQ(out, want) << layer;
  }
  EXPECT_EQ(workspace.plan().plans_made(), 1);
}

// The same lengths throughout, but sequences that shared pages are replaced by one that does not.
TEST_P(Cascade, APlanIsNotUsedForTasksThatNoLongerShareTheirPages) {
  Forks forks(spec_, 1, 700, 1);
  Cache& cache = forks.cache();
  const SequenceId twin = cache.Fork(forks.ids()[0]).value(), stranger = NewSequence(cache);
  const int64_t length = cache.length(twin);
  ExtendTo(cache, stranger, Tokens(length, 77), length, 512);
  const auto q = RandomQueries(2 * kHeadDim);
  std::vector<float> out(q.size()), want(q.size());
  const auto tasks = [&](SequenceId second, float* to) {
    std::vector<AttentionTask> both = forks.Tasks(0, 1, q.data(), to);
    both[1] = both[0];
    both[1].view = cache.View(second, 0, 0, (length - 1) / cache.page_tokens());
    both[1].q = q.data() + kHeadDim;
    both[1].out = to + kHeadDim;
    return both;
  };
  AttentionWorkspace workspace, fresh;
  AttendAll(*pool_, tasks(twin, out.data()), workspace);
  const int64_t shared_bytes = workspace.plan().read_bytes();
  AttendAll(*pool_, tasks(stranger, out.data()), workspace);
  AttendAll(*pool_, tasks(stranger, want.data()), fresh);
  EXPECT_EQ(out, want);
  EXPECT_GT(workspace.plan().read_bytes(), shared_bytes);
}

// A short piece of a prompt that crosses a page boundary: two tasks of one sequence.
TEST_P(Cascade, QueryPagesOfOneSequenceShareWhatBothSee) {
  const auto cache =
      MakeCache({.layers = 1, .kv_heads = 1, .head_dim = kHeadDim, .q_heads = 1}, spec_);
  const SequenceId id = NewSequence(*cache);
  const int page = cache->page_tokens();
  const int64_t length = int64_t{page} * (1024 / page) + 2;
  ASSERT_TRUE(testing::Extend(*cache, id, Tokens(length), length - 4).ok());
  std::vector<AttentionTask> tasks;
  const auto q = RandomQueries(4 * kHeadDim);
  std::vector<float> out(q.size());
  const auto attend = [&](int, int) {
    for (int64_t position = length - 4, n = 0; position < length; position += 2, n += 2) {
      tasks.push_back({.view = cache->View(id, 0, 0, position / page),
                       .first_position = position,
                       .queries = 2,
                       .q = q.data() + n * kHeadDim,
                       .q_query_stride = kHeadDim,
                       .out = out.data() + n * kHeadDim,
                       .out_query_stride = kHeadDim});
    }
    AttentionWorkspace workspace;
    AttendAll(*pool_, tasks, workspace);
    const std::vector<float> together = out;
    int64_t bytes_alone = 0;
    for (const AttentionTask& task : tasks) {
      AttentionWorkspace own;
      AttendAll(*pool_, {&task, 1}, own);
      bytes_alone += own.plan().read_bytes();
    }
    EXPECT_EQ(out, together);
    EXPECT_LT(workspace.plan().read_bytes(), bytes_alone);
  };
  ASSERT_TRUE(testing::RunStep(*cache, id, Tokens(length), 4, attend).ok());
}

INSTANTIATE_TEST_SUITE_P(Formats, Cascade, ::testing::ValuesIn(kPairs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace kvant
