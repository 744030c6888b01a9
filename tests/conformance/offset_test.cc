// The outlier stress, without a model: 200 is added to four channels of every key, as the key bias
// of some models does. Softmax does not see it. No preset named int4 or int8 may lose much more
// than without; formats that do are shown to fail, so that the test is known to see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention_world.h"
#include "base/float16.h"
#include "cache/cache.h"

namespace kvant {
namespace {

using testing::RandomValues;
using testing::ReferenceAttention;

constexpr int kTokens = 700, kHeadDim = 64, kQueries = 16;
constexpr KvGeometry kGeometry{1, 1, kHeadDim, kQueries};

// Where the offset comes in: on four channels as they are stored, or, as a bias of the projection
// does, before RoPE, on the two pairs of channels that turn slowest.
enum class Bias { kAfterRope, kBeforeRope };

void Turn(const Rope& rope, int position, float* k) {
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const double angle = position * rope.frequencies[static_cast<size_t>(i)];
    const double a = k[i], b = k[i + kHeadDim / 2];
    k[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    k[i + kHeadDim / 2] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
}

// K as the cache's f16 pages would hold it: what f16 loses of a large value is not the format's.
std::vector<float> Keys(Bias bias, float offset) {
  std::vector<float> k = RandomValues(kTokens * kHeadDim, 1);
  for (size_t i = 0; i < k.size(); ++i) {
    const size_t channel = i % kHeadDim;
    if (bias == Bias::kAfterRope && channel % 16 == 5) k[i] += channel % 32 == 5 ? offset : -offset;
    if (bias == Bias::kBeforeRope && channel % 32 >= 30) k[i] += offset;
  }
  const Rope rope = UsualRope(kHeadDim);
  for (int t = 0; bias == Bias::kBeforeRope && t < kTokens; ++t) {
    Turn(rope, t, k.data() + t * kHeadDim);
  }
  for (float& x : k) x = F16ToF32(F32ToF16(x));
  return k;
}

// Tokens that attention rests on: 1 / the sum of the squared probabilities.
double TokensInEffect(const float* q, const std::vector<float>& k) {
  std::vector<double> scores(kTokens);
  for (int t = 0; t < kTokens; ++t) {
    for (int c = 0; c < kHeadDim; ++c) scores[t] += 0.125 * q[c] * k[t * kHeadDim + c];
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0, squares = 0;
  for (double score : scores) {
    const double p = std::exp(score - top);
    sum += p;
    squares += p * p;
  }
  return sum * sum / squares;
}

// Mean square error of a preset's output against f64 attention over the keys as they came, times
// the tokens in effect: errors of different tokens are independent, whether of K or of V, so the
// square of what is left of them in a mean goes as the sum of the squared weights. A bias before
// RoPE moves scores by several units and leaves fewer tokens, which is not the format's doing.
double OutputError(const std::string& preset, float offset, Bias bias = Bias::kAfterRope) {
  const KvSpec spec = ParseKvPreset(preset).value();
  auto cache = Cache::CreateWithoutModel(kGeometry, spec, {.context_tokens = kTokens}).value();
  const std::vector<float> k = Keys(bias, offset), v = RandomValues(kTokens * kHeadDim, 2);
  const SequenceId seq = cache->NewSequence().value();
  EXPECT_TRUE(cache->Reserve(seq, kTokens).ok());
  EXPECT_TRUE(cache->Append(seq, 0, 0, k.data(), kHeadDim, v.data(), kHeadDim, kTokens).ok());
  EXPECT_TRUE(cache->Seal(seq, 0, 0).ok());
  cache->Release(seq, 0, 0);
  cache->Commit(seq, kTokens);

  const auto q = RandomValues(kQueries * kHeadDim, 3);
  std::vector<float> out(q.size());
  AttentionTask task;
  task.view = cache->View(seq, 0, 0, (kTokens - 1) / cache->page_tokens());
  task.first_position = kTokens - 1;
  task.queries = 1;
  task.group_ratio = kQueries;
  task.q = q.data();
  task.out = out.data();
  task.q_query_stride = task.out_query_stride = kQueries * kHeadDim;
  const auto pool = std::move(ThreadPool::Create(1).value());
  AttentionWorkspace workspace;
  EXPECT_TRUE(Attend(*pool, std::span(&task, 1), kHeadDim, 0.125f, workspace).ok());
  double error = 0;
  for (int r = 0; r < kQueries; ++r) {
    const double tokens = TokensInEffect(q.data() + r * kHeadDim, k);
    const auto want = ReferenceAttention(q.data() + r * kHeadDim, k, v, kHeadDim, kTokens, 0.125);
    for (int c = 0; c < kHeadDim; ++c) {
      error +=
          tokens *
          std::pow(out[static_cast<size_t>(r * kHeadDim + c)] - want[static_cast<size_t>(c)], 2);
    }
  }
  return error / (kQueries * kHeadDim);
}

// KL is proportional to the square of the error of the scores: twice the KL is twice this error.
TEST(KeyOffset, PresetsNamedInt4AndInt8LoseAtMostTwiceAsMuch) {
  int seen = 0;
  for (const std::string& name : KvPresetNames()) {
    if (!name.starts_with("int4") && !name.starts_with("int8")) continue;
    EXPECT_LT(OutputError(name, 200), 2 * OutputError(name, 0)) << name;
    ++seen;
  }
  EXPECT_GE(seen, 2);
}

TEST(KeyOffset, OtherPresetsWithPageMeansOrChannelScalesHoldToo) {
  for (const char* name : {"int3", "int2", "int2s", "trellis4", "trellis3", "plain4", "kivi4"}) {
    EXPECT_LT(OutputError(name, 200), 2 * OutputError(name, 0)) << name;
  }
}

// A bias before RoPE drifts through a page by 64 * 1.3e-4 * 200, two units of the partner channel:
// formats with channel scales widen by that much.
TEST(KeyOffset, ABiasBeforeRopeIsStoodByPageMeansChannelScalesAndKeysBeforeRope) {
  for (const char* name : {"int8", "int4", "int3", "int2", "trellis4", "plain4", "kivi4",
                           "kvquant4", "kvquant3", "kvquant2"}) {
    EXPECT_LT(OutputError(name, 200, Bias::kBeforeRope),
              2 * OutputError(name, 0, Bias::kBeforeRope))
        << name;
  }
}

TEST(KeyOffset, ABiasBeforeRopeCollapsesTokenScalesWithoutMean) {
  for (const char* name : {"q4_0", "turbo4", "int4:token", "int4:token:none", "fp8"}) {
    EXPECT_GT(OutputError(name, 200, Bias::kBeforeRope),
              10 * OutputError(name, 0, Bias::kBeforeRope))
        << name;
  }
}

TEST(KeyOffset, TokenScalesWithoutMeanCollapse) {
  for (const char* name : {"turbo4", "q4_0", "int4:token"}) {
    EXPECT_GT(OutputError(name, 200), 10 * OutputError(name, 0)) << name;
  }
}

}  // namespace
}  // namespace kvant
