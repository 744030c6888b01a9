// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the absorbed form over what a cache
// stores, against f64 over the values that its pages decode to, and against the expanded form.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "attention_world.h"
#include "cache/cache_testing.h"
#include "format_pairs.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

using testing::kSanitized;
using testing::MakeCache;
using testing::MakeSpec;
using testing::NewSequence;
using testing::RandomValues;

struct LatentCase {
  const char* name;
  const char *k, *v;  // of the RoPE key and of the latent
  int latent_dim, rope_dim, heads;
};

KvGeometry GeometryOf(const LatentCase& c) {
  return {1, 1, c.latent_dim + c.rope_dim, c.heads, c.latent_dim};
}

// A sequence of random tokens in a cache, and its queries.
class LatentWorld {
 public:
  LatentWorld(const LatentCase& c, int tokens, int queries)
      : g_(GeometryOf(c)),
        tokens_(tokens),
        queries_(queries),
        rope_keys_(RandomValues(static_cast<size_t>(tokens * c.rope_dim), 1)),
        latents_(RandomValues(static_cast<size_t>(tokens * c.latent_dim), 2)),
        q_(RandomValues(static_cast<size_t>(queries * c.heads) * g_.head_dim, 3)),
        cache_(MakeCache(g_, MakeSpec(c.k, c.v))) {}

  // Attention of the last queries, [queries][heads][latent], in steps of `chunk` tokens.
  std::vector<float> Attend(int threads, int chunk, float* probabilities = nullptr) {
    auto pool = std::move(ThreadPool::Create(threads).value());
    std::vector<float> out(static_cast<size_t>(queries_ * g_.q_heads) * g_.latent_dim);
    AttentionWorkspace workspace;
    sequence_ = NewSequence(*cache_);
    for (int done = 0; done < tokens_;) {
      const int count = std::min(chunk, tokens_ - done);
      EXPECT_TRUE(cache_->Reserve(sequence_, count).ok());
      const Status status =
          cache_->Append(sequence_, 0, 0, &rope_keys_[static_cast<size_t>(done * g_.k_channels())],
                         g_.k_channels(), &latents_[static_cast<size_t>(done * g_.latent_dim)],
                         g_.latent_dim, count);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(cache_->Seal(sequence_, 0, 0).ok());
      const std::vector<AttentionTask> tasks = Tasks(done, done + count, out, probabilities);
      EXPECT_TRUE(kvant::Attend(*pool, tasks, g_.head_dim, Scale(), workspace).ok());
      cache_->Release(sequence_, 0, 0);
      cache_->Commit(sequence_, count);
      done += count;
    }
    return out;
  }

  // What the queries of the last page see, decoded: [tokens][head_dim], latents first.
  std::vector<float> Seen() const {
    const HeadView view = cache_->View(sequence_, 0, 0, (tokens_ - 1) / cache_->page_tokens());
    std::vector<float> seen(static_cast<size_t>(tokens_) * g_.head_dim, NAN);
    for (const Run& run : view.runs) {
      for (int t = run.first_token; t < run.end_token; ++t) {
        const PageLayout& layout = *run.layout;
        const std::byte* page = run.pages[t / layout.tokens];
        std::vector<float> k(static_cast<size_t>(layout.tokens * g_.k_channels()));
        std::vector<float> v(static_cast<size_t>(layout.tokens * g_.latent_dim));
        DecodeSideReference(layout.k, page, k.data(), g_.k_channels());
        DecodeSideReference(layout.v, page + layout.v_offset_bytes, v.data(), g_.latent_dim);
        float* const to = &seen[static_cast<size_t>(run.first_position + t) * g_.head_dim];
        std::copy_n(&v[static_cast<size_t>(t % layout.tokens * g_.latent_dim)], g_.latent_dim, to);
        std::copy_n(&k[static_cast<size_t>(t % layout.tokens * g_.k_channels())], g_.k_channels(),
                    to + g_.latent_dim);
      }
    }
    return seen;
  }

  std::span<const float> Query(int row) const {
    return std::span(q_).subspan(static_cast<size_t>(row) * g_.head_dim,
                                 static_cast<size_t>(g_.head_dim));
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(g_.head_dim)); }
  int PositionOf(int row) const { return tokens_ - queries_ + row / g_.q_heads; }
  const KvGeometry& geometry() const { return g_; }
  Cache& cache() { return *cache_; }
  SequenceId sequence() const { return sequence_; }

 private:
  // Of the queries at positions [begin, end), page by page.
  std::vector<AttentionTask> Tasks(int begin, int end, std::vector<float>& out,
                                   float* probabilities) const {
    std::vector<AttentionTask> tasks;
    const int page_tokens = cache_->page_tokens(), first_query = tokens_ - queries_;
    for (int position = std::max(begin, first_query); position < end;) {
      const int stop = std::min(end, (position / page_tokens + 1) * page_tokens);
      const int64_t row = int64_t{position - first_query} * g_.q_heads;
      AttentionTask task;
      task.view = cache_->View(sequence_, 0, 0, position / page_tokens);
      task.first_position = position;
      task.queries = stop - position;
      task.group_ratio = g_.q_heads;
      task.q = q_.data() + row * g_.head_dim;
      task.q_query_stride = int64_t{g_.q_heads} * g_.head_dim;
      task.out = out.data() + row * g_.latent_dim;
      task.out_query_stride = int64_t{g_.q_heads} * g_.latent_dim;
      if (probabilities != nullptr) {
        task.probabilities = probabilities + row * tokens_;
        task.probability_stride = tokens_;
      }
      tasks.push_back(task);
      position = stop;
    }
    return tasks;
  }

  const KvGeometry g_;
  const int tokens_, queries_;
  const std::vector<float> rope_keys_, latents_, q_;
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_ = 0;
};

double Dot(std::span<const float> a, const float* b) {
  double sum = 0;
  for (size_t c = 0; c < a.size(); ++c) sum += double{a[c]} * b[c];
  return sum;
}

// softmax(q . k) of the tokens that come no later than `position`.
std::vector<double> Weights(std::span<const float> q, const std::vector<float>& seen, int position,
                            double scale) {
  std::vector<double> weights;
  for (int t = 0; t <= position; ++t) {
    weights.push_back(scale * Dot(q, &seen[static_cast<size_t>(t) * q.size()]));
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (double& w : weights) w /= sum;
  return weights;
}

// How far f32 may be from f64, as a share of the largest value. A score is 16 sums of n / 16
// products each and 4 halvings, so it is off by that many roundings (2^-24) of the sum of their
// magnitudes at most; a weight by a factor of e to that, the quotient of two sums of weights by
// twice; 2^x, merging and the sums of weighted values add less than 1e-6.
double Tolerance(std::span<const float> q, const std::vector<float>& seen, int position,
                 double scale) {
  double most = 0;
  for (int t = 0; t <= position; ++t) {
    double magnitudes = 0;
    for (size_t c = 0; c < q.size(); ++c) {
      magnitudes += std::fabs(double{q[c]} * seen[static_cast<size_t>(t) * q.size() + c]);
    }
    most = std::max(most, magnitudes);
  }
  const double roundings = static_cast<double>(q.size()) / 16 + 5;
  return 2 * roundings * 0x1p-24 * scale * most + 1e-6;
}

// AVX-VNNI has no kernels of its own here.
std::vector<Isa> LatentLevels() {
  std::vector<Isa> levels = testing::LevelsToTest();
  std::erase(levels, Isa::kAvxVnni);
  return levels;
}

class Latents : public ::testing::TestWithParam<LatentCase> {
 protected:
  void TearDown() override { ASSERT_TRUE(SetActiveIsa(before_).ok()); }
  const Isa before_ = ActiveIsa();
};

TEST_P(Latents, MatchF64OverDecodedValuesAtEveryLength) {
  for (const int tokens : {1, 31, 64, 65, 129, 333, 640}) {
    if (kSanitized && tokens > 129) continue;
    LatentWorld world(GetParam(), tokens, 1);
    const KvGeometry& g = world.geometry();
    for (Isa isa : LatentLevels()) {
      ASSERT_TRUE(SetActiveIsa(isa).ok());
      const std::vector<float> out = world.Attend(2, 200);
      const std::vector<float> seen = world.Seen();
      for (int row = 0; row < g.q_heads; ++row) {
        const auto weights = Weights(world.Query(row), seen, tokens - 1, world.Scale());
        const double tolerance = Tolerance(world.Query(row), seen, tokens - 1, world.Scale());
        for (int c = 0; c < g.latent_dim; ++c) {
          double want = 0, largest = 0;
          for (int t = 0; t < tokens; ++t) {
            const double value = seen[static_cast<size_t>(t) * g.head_dim + c];
            want += weights[static_cast<size_t>(t)] * value;
            largest = std::max(largest, std::fabs(value));
          }
          ASSERT_NEAR(out[static_cast<size_t>(row * g.latent_dim + c)], want, tolerance * largest)
              << IsaName(isa) << " tokens " << tokens << " head " << row << " channel " << c;
        }
      }
    }
  }
}

// The last 30 positions of 777: two pages of queries, and runs of every kind.
TEST_P(Latents, LevelsThreadsAndChunkingGiveTheSameBits) {
  constexpr int kQueries = kSanitized ? 12 : 30;
  LatentWorld world(GetParam(), 777, kQueries);
  ASSERT_TRUE(SetActiveIsa(Isa::kScalar).ok());
  const std::vector<float> want = world.Attend(1, 777);
  for (Isa isa : LatentLevels()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    for (const auto& [threads, chunk] : {std::array{1, 64}, std::array{3, 777}, std::array{2, 7}}) {
      if (isa == Isa::kScalar && chunk != 64) continue;  // slow, adds nothing
      const std::vector<float> out = world.Attend(threads, chunk);
      ASSERT_EQ(std::memcmp(out.data(), want.data(), want.size() * sizeof(float)), 0)
          << IsaName(isa) << " threads " << threads << " chunk " << chunk;
    }
  }
}

TEST_P(Latents, UnusedStorageNeverReachesAResult) {
  for (const int tokens : {1, 33, 130, 577}) {
    const auto attend = [&](AllocateFn allocate) {
      const testing::ScopedAllocate scoped(allocate);
      return LatentWorld(GetParam(), tokens, 1).Attend(1, 64);
    };
    ASSERT_EQ(attend(testing::AllocatePoisoned), attend(testing::AllocateZeroed)) << tokens;
  }
}

TEST_P(Latents, ProbabilitiesAreThoseOfTheOutputs) {
  constexpr int kTokens = 333, kQueries = 5;
  LatentWorld world(GetParam(), kTokens, kQueries);
  const KvGeometry& g = world.geometry();
  std::vector<float> p(static_cast<size_t>(kQueries * g.q_heads) * kTokens);
  EXPECT_EQ(world.Attend(2, 100, p.data()), world.Attend(1, 100));
  const std::vector<float> seen = world.Seen();
  for (int row = 0; row < kQueries * g.q_heads; ++row) {
    const auto want = Weights(world.Query(row), seen, world.PositionOf(row), world.Scale());
    const double share = Tolerance(world.Query(row), seen, world.PositionOf(row), world.Scale());
    for (size_t t = 0; t < want.size(); ++t) {
      ASSERT_NEAR(p[static_cast<size_t>(row) * kTokens + t], want[t], share * want[t]) << row;
    }
  }
}

// Every head's own keys W_k c and values W_v c of what the cache decodes to, in double, against
// the absorbed form: in double the same but for its roundings, and by kvant but for those of f32.
TEST_P(Latents, TheAbsorbedFormIsTheExpandedOne) {
  constexpr int kTokens = 200, kPlain = 24, kValue = 20;
  LatentWorld world(GetParam(), kTokens, 1);
  const KvGeometry& g = world.geometry();
  const std::vector<float> out = world.Attend(1, kTokens);
  const std::vector<float> seen = world.Seen();
  const auto w_v = RandomValues(static_cast<size_t>(kValue * g.latent_dim), 5);
  const auto w_k = RandomValues(static_cast<size_t>(kPlain * g.latent_dim), 6);
  const auto q_plain = RandomValues(kPlain, 7);
  const size_t latent = static_cast<size_t>(g.latent_dim), d = static_cast<size_t>(g.head_dim);
  // One head: a query that does not rotate, and W_k^T of it, beside the RoPE part of query 0.
  std::vector<double> absorbed(latent);
  for (size_t c = 0; c < latent; ++c) {
    for (size_t i = 0; i < kPlain; ++i) absorbed[c] += double{w_k[i * latent + c]} * q_plain[i];
  }
  const auto softmax = [](std::vector<double> scores) {
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s - top);
    for (double& s : scores) s /= sum;
    return scores;
  };
  std::vector<double> absorbed_scores(kTokens), expanded_scores(kTokens);
  for (size_t t = 0; t < kTokens; ++t) {
    const float* const c = &seen[t * d];
    const double rope = Dot(world.Query(0).subspan(latent), c + latent);
    double expanded = rope;
    for (size_t i = 0; i < kPlain; ++i) {
      expanded += q_plain[i] * Dot(std::span(w_k).subspan(i * latent, latent), c);
    }
    absorbed_scores[t] = rope;
    for (size_t i = 0; i < latent; ++i) absorbed_scores[t] += absorbed[i] * c[i];
    expanded_scores[t] = expanded;
  }
  const auto expanded_weights = softmax(expanded_scores),
             absorbed_weights = softmax(absorbed_scores);
  const auto kvant_weights = Weights(world.Query(0), seen, kTokens - 1, world.Scale());
  for (size_t i = 0; i < kValue; ++i) {
    const std::span<const float> row = std::span(w_v).subspan(i * latent, latent);
    double expanded = 0, of_kvant = 0, expanded_kvant = 0, most = 0;
    std::vector<double> weighted(latent);
    for (size_t t = 0; t < kTokens; ++t) {
      const double value = Dot(row, &seen[t * d]);
      most = std::max(most, std::fabs(value));
      expanded += expanded_weights[t] * value;
      expanded_kvant += kvant_weights[t] * value;
      for (size_t c = 0; c < latent; ++c) weighted[c] += absorbed_weights[t] * seen[t * d + c];
    }
    double of_absorbed = 0, magnitudes = 0;
    for (size_t c = 0; c < latent; ++c) {
      of_absorbed += row[c] * weighted[c];
      of_kvant += double{row[c]} * out[c];
      magnitudes += std::fabs(row[c]);
    }
    // Scores are sums of some 1e4 products of magnitude 1, and weights off by as much.
    EXPECT_NEAR(of_absorbed, expanded, 1e-10 * most);
    // W_v multiplies what f32 loses of each channel; values of N(0, 1) data are below 6.
    const double tolerance = Tolerance(world.Query(0), seen, kTokens - 1, world.Scale());
    EXPECT_NEAR(of_kvant, expanded_kvant, 6 * tolerance * magnitudes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Latents,
    ::testing::Values(
        LatentCase{"F16", "f16", "f16", 64, 16, 5}, LatentCase{"F32", "f32", "f32", 32, 8, 1},
        LatentCase{"Bf16", "bf16", "bf16", 48, 16, 3},
        LatentCase{"DeepSeekInt8", "f16", "int8:token:g128:none", 512, 64, 5},
        LatentCase{"Int4", "f16", "int4:token:g64:min", 128, 32, 16},
        LatentCase{"CodedRopeKey", "int8:channel:g64:min", "int4:token:g32:min", 64, 32, 9},
        LatentCase{"LongPages", "int4:channel:g128:min", "int8:token:g64:min", 64, 16, 4},
        LatentCase{"Fp8", "f16", "fp8_e4m3", 64, 16, 7},
        LatentCase{"PartsThatNeedPadding", "q8_0", "q4_0", 36, 20, 6}),
    [](const auto& param) { return param.param.name; });

// K of 192 channels beside V of 128 is read as a whole or not at all.
TEST(Latents, PagesOfOtherSizesAreRefused) {
  auto pool = std::move(ThreadPool::Create(1).value());
  AttentionWorkspace workspace;
  std::vector<float> q(320), out(192);
  std::vector<std::byte> bytes(1 << 16);
  const std::byte* const page = bytes.data();
  HeadChannels channels(192);
  channels.v = 128;
  const PageLayout layout = MakePageLayout(kFormatF16, kFormatF16, channels, kPageTokens);
  ASSERT_LE(static_cast<size_t>(layout.page_bytes), bytes.size());
  AttentionTask task;
  task.queries = 1;
  task.q = q.data();
  task.out = out.data();
  task.view.runs[0] = {&layout, &page, 1, 0, 0, 1};
  for (const int latent_dim : {0, 64, 128}) {
    for (const int head_dim : {192, 128, 320}) {
      task.view.latent_dim = latent_dim;
      const Status status = Attend(*pool, {&task, 1}, head_dim, 1.0f, workspace);
      const bool fits = latent_dim == 128 && head_dim == 320;
      EXPECT_EQ(status.ok(), fits) << latent_dim << " " << head_dim;
      if (fits) continue;
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("192 channels of K and 128 of V"), std::string::npos)
          << status.message();
    }
  }
}

}  // namespace
}  // namespace kvant
