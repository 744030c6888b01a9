// Attention over tokens of several widths, against an f64 attention over the decoded tokens of
// every pool.
#include <gtest/gtest.h>

#include "attention_world.h"
#include "cache/mixed_testing.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

using testing::NewSequence;
using testing::RandomValues;
using testing::ReferenceAttention;
using testing::SeeHead;

struct MixedCase {
  const char* pools;
  WidthOf width_of;
  bool once;
};
const MixedCase kCases[] = {
    {"16+8=int8:channel:g64:min/int8:token:none+4=int4:channel:g64:min/int4:token:g64:min+"
     "2=int2:channel:g32:min/int2:token:g32:min",
     HashedWidth, true},
    {kTokenPools, HashedWidth, false},
    {kTokenPools, AgeingWidth, false},
};
constexpr KvGeometry kShape{1, 2, 64, 4};

// As derived for KernelTolerance in attention_test.cc: 0.02 for the rounding of either side's
// vector to 8 bits, for K and V of unit variance. Here a query is turned to one token, which then
// has nearly all of the mass, so that a token that is lost, doubled or read at another's place
// changes the answer by about |v|, 25 times the bound.
constexpr double kTolerance = 0.04;

void Fill(Cache& cache, SequenceId seq, int64_t length) {
  const KvGeometry& g = cache.geometry();
  while (cache.length(seq) < length) {
    const int64_t count = std::min(cache.max_step_tokens(seq), length - cache.length(seq));
    ASSERT_TRUE(cache.Reserve(seq, count).ok());
    for (int head = 0; head < g.kv_heads; ++head) {
      const auto seed = static_cast<uint32_t>(2 * (cache.length(seq) * g.kv_heads + head));
      const size_t values = static_cast<size_t>(count * g.head_dim);
      const std::vector<float> k = RandomValues(values, seed), v = RandomValues(values, seed + 1);
      ASSERT_TRUE(
          cache.Append(seq, 0, head, k.data(), g.head_dim, v.data(), g.head_dim, count).ok());
      ASSERT_TRUE(cache.Seal(seq, 0, head).ok());
      cache.Release(seq, 0, head);
    }
    cache.Commit(seq, count);
  }
}

// One query for each token that one head holds, three times as long as its key.
void ExpectEachTokenIsFound(const Cache& cache, SequenceId seq, int head, ThreadPool& pool) {
  const int d = kShape.head_dim, ratio = kShape.group_ratio();
  const int64_t length = cache.length(seq);
  std::vector<float> k, v, q;
  for (const auto& [position, row] : SeeHead(cache, seq, 0, head).rows) {
    k.insert(k.end(), row.k.begin(), row.k.end());
    v.insert(v.end(), row.v.begin(), row.v.end());
  }
  const int visible = static_cast<int>(k.size()) / d;
  for (int t = 0; t < visible; ++t) {
    for (int r = 0; r < ratio; ++r) {
      for (int c = 0; c < d; ++c)
        q.push_back((r == 0 ? 3.0f : 2.5f) * k[static_cast<size_t>(t * d + c)]);
    }
  }
  std::vector<float> out(q.size());
  std::vector<AttentionTask> tasks;
  for (int t = 0; t < visible; ++t) {
    AttentionTask task;
    task.view = cache.View(seq, 0, head, (length - 1) / kPageTokens);
    task.first_position = length - 1;
    task.queries = 1;
    task.group_ratio = ratio;
    task.q = q.data() + t * ratio * d;
    task.q_query_stride = ratio * d;
    task.out = out.data() + t * ratio * d;
    task.out_query_stride = ratio * d;
    tasks.push_back(task);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  AttentionWorkspace workspace;
  ASSERT_TRUE(Attend(pool, tasks, d, scale, workspace).ok());
  for (int row = 0; row < visible * ratio; ++row) {
    const std::vector<double> truth = ReferenceAttention(&q[static_cast<size_t>(row) * d], k, v, d,
                                                         visible, static_cast<double>(scale));
    for (int c = 0; c < d; ++c) {
      ASSERT_NEAR(out[static_cast<size_t>(row * d + c)], truth[static_cast<size_t>(c)], kTolerance)
          << "row " << row << " of " << visible << " tokens, channel " << c;
    }
  }
}

TEST(MixedAttention, EqualsF64OverTheDecodedTokensOfEveryPool) {
  auto pool = std::move(ThreadPool::Create(2).value());
  const Isa before = ActiveIsa();
  for (const MixedCase& mixed : kCases) {
    auto cache = testing::MakeCache(kShape, MakeMixedSpec(mixed.pools, mixed.width_of, mixed.once));
    const SequenceId seq = NewSequence(*cache);
    for (const int64_t length : {60, 129, 300, 577}) {
      Fill(*cache, seq, length);
      for (const Isa isa : AvailableIsas()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        ExpectEachTokenIsFound(*cache, seq, static_cast<int>(length) % 2, *pool);
      }
      ASSERT_TRUE(SetActiveIsa(before).ok());
    }
  }
}

// Rows of probabilities over pools, sorted by position, against f64. The bound is that of
// probabilities_test.cc for coded K, which is derived there.
void ExpectProbabilities(const Cache& cache, SequenceId seq, int head, ThreadPool& pool) {
  const int d = kShape.head_dim, ratio = kShape.group_ratio();
  const int64_t length = cache.length(seq), stride = length + 3;
  const std::vector<float> q = RandomValues(static_cast<size_t>(ratio * d), 9);
  std::vector<float> out(q.size());
  std::vector<float> probabilities(static_cast<size_t>(ratio * stride), -1.0f);
  AttentionTask task;
  task.view = cache.View(seq, 0, head, (length - 1) / kPageTokens);
  task.first_position = length - 1;
  task.queries = 1;
  task.group_ratio = ratio;
  task.q = q.data();
  task.out = out.data();
  task.probabilities = probabilities.data();
  task.probability_stride = stride;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  AttentionWorkspace workspace;
  ASSERT_TRUE(Attend(pool, {&task, 1}, d, static_cast<float>(scale), workspace).ok());
  ASSERT_TRUE(cache.SortByPosition(seq, 0, head, ratio, stride, probabilities.data()).ok());
  const testing::SeenHead seen = SeeHead(cache, seq, 0, head);
  std::vector<float> k;
  for (const auto& [position, row] : seen.rows) k.insert(k.end(), row.k.begin(), row.k.end());
  for (int r = 0; r < ratio; ++r) {
    const std::vector<double> want = testing::ReferenceProbabilities(
        q.data() + r * d, k, d, static_cast<int>(seen.rows.size()), scale);
    const float* const row = probabilities.data() + r * stride;
    size_t i = 0;
    for (int64_t t = 0; t < length; ++t) {
      if (!seen.rows.contains(t)) {
        ASSERT_EQ(row[t], 0.0f) << "dropped position " << t;
        continue;
      }
      ASSERT_NEAR(row[t], want[i], 0.075 * want[i] + 1e-7) << "position " << t;
      ++i;
    }
    ASSERT_EQ(row[length], -1.0f) << "behind the last position";
  }
}

TEST(MixedAttention, ProbabilitiesSortedByPositionEqualF64) {
  auto pool = std::move(ThreadPool::Create(2).value());
  const Isa before = ActiveIsa();
  for (const MixedCase& mixed : kCases) {
    auto cache = testing::MakeCache(kShape, MakeMixedSpec(mixed.pools, mixed.width_of, mixed.once));
    const SequenceId seq = NewSequence(*cache);
    for (const int64_t length : {3, 60, 129, 300, 1100}) {
      Fill(*cache, seq, length);
      for (const Isa isa : AvailableIsas()) {
        ASSERT_TRUE(SetActiveIsa(isa).ok());
        ExpectProbabilities(*cache, seq, static_cast<int>(length) % 2, *pool);
      }
      ASSERT_TRUE(SetActiveIsa(before).ok());
    }
  }
}

TEST(MixedAttention, ProbabilitiesThatDoNotFitTheirViewAreRefused) {
  auto pool = std::move(ThreadPool::Create(1).value());
  auto cache = testing::MakeCache(kShape, MakeMixedSpec(kTokenPools, HashedWidth));
  const SequenceId seq = NewSequence(*cache);
  Fill(*cache, seq, 300);
  const std::vector<float> q = RandomValues(64, 9);
  std::vector<float> out(64), probabilities(300, -1.0f);
  AttentionTask task;
  task.view = cache->View(seq, 0, 0, 299 / kPageTokens);
  task.view.runs[kMaxRuns - 1].first_position = 0;
  task.first_position = 299;
  task.queries = 1;
  task.q = q.data();
  task.out = out.data();
  task.probabilities = probabilities.data();
  task.probability_stride = 300;
  AttentionWorkspace workspace;
  EXPECT_EQ(Attend(*pool, {&task, 1}, 64, 0.125f, workspace).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(probabilities, std::vector<float>(300, -1.0f));
}

// Forks read their common pages together, and each its own.
TEST(MixedAttention, ForksOfOneSequenceAnswerAsTheyWouldAlone) {
  auto pool = std::move(ThreadPool::Create(2).value());
  auto cache = testing::MakeCache(kShape, MakeMixedSpec(kTokenPools, HashedWidth));
  const SequenceId a = NewSequence(*cache);
  Fill(*cache, a, 1000);
  const SequenceId b = cache->Fork(a).value();
  Fill(*cache, b, 1200);
  const std::vector<float> q = RandomValues(2 * 2 * 64, 9);
  std::vector<float> alone(q.size()), together(q.size());
  const auto task = [&](SequenceId seq, size_t first, std::vector<float>& out) {
    AttentionTask t;
    const int64_t length = cache->length(seq);
    t.view = cache->View(seq, 0, 1, (length - 1) / kPageTokens);
    t.first_position = length - 1;
    t.queries = 1;
    t.group_ratio = 2;
    t.q = q.data() + first;
    t.out = out.data() + first;
    return t;
  };
  AttentionWorkspace workspace;
  const std::vector<AttentionTask> both = {task(a, 0, together), task(b, 128, together)};
  ASSERT_TRUE(Attend(*pool, both, 64, 0.125f, workspace).ok());
  const int64_t shared_bytes = workspace.plan().read_bytes();
  int64_t alone_bytes = 0;
  for (const auto& [seq, first] : {std::pair(a, 0), std::pair(b, 128)}) {
    const std::vector<AttentionTask> one = {task(seq, static_cast<size_t>(first), alone)};
    ASSERT_TRUE(Attend(*pool, one, 64, 0.125f, workspace).ok());
    alone_bytes += workspace.plan().read_bytes();
  }
  EXPECT_EQ(together, alone);
  // Read once: four sinks of 256 bytes, and the full pages of the shorter one.
  const HeadView common = cache->View(a, 0, 1, 999 / kPageTokens);
  int64_t common_bytes = 4 * 256;
  for (size_t run = 1; run < kMaxRuns - 1; run += 2) {
    const kvant::Run& pages = common.runs[run];
    if (!pages.empty()) {
      common_bytes += int64_t{pages.end_token / kPageTokens} * pages.layout->page_bytes;
    }
  }
  EXPECT_EQ(alone_bytes - shared_bytes, common_bytes);
}

}  // namespace
}  // namespace kvant
