// Speed of the packed weights: GB/s of decode, GMAC/s and MACs a cycle of batches, for the shapes
// of SmolLM2-135M and Gemma 3 270M.
//
//   matmul_bench [seconds a line, default 0.3]
//
// Batches up to 16 walk over enough copies of their matrix to defeat the caches, as decode does;
// taller ones stay on one copy, as prefill does within a row block. Rounds of all cases of a shape
// are interleaved, and the median and the best are reported, because other work on the machine
// comes and goes; one-thread cases count the time of their thread alone. 64 MACs a cycle are one
// 512-bit dot instruction, what a Zen 4 core starts at most; "%" is of that.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "kvant/isa.h"
#include "matmul/matmul.h"

namespace kvant {
namespace {

using Clock = std::chrono::steady_clock;

double WallSeconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Additions that wait for each other take a cycle each.
double MeasureGigahertz() {
  constexpr int kRounds = 20000, kUnroll = 64;
  double best = 1e9;
  for (int attempt = 0; attempt < 50; ++attempt) {
    uint64_t x = 0;
    const double begin = ThreadSeconds();
    for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 64
      for (int j = 0; j < kUnroll; ++j) {
        x += 3;
        asm volatile("" : "+r"(x));
      }
    }
    best = std::min(best, ThreadSeconds() - begin);
  }
  return kRounds * kUnroll / best * 1e-9;
}

struct Shape {
  const char* type;
  GroupedSpec spec;
  int64_t rows, cols;
};

const Shape kShapes[] = {
    {"Q4_1", {4, 32, 0, true}, 576, 576},      {"Q4_1", {4, 32, 0, true}, 192, 576},
    {"Q4_1", {4, 32, 0, true}, 1536, 576},     {"Q4_1", {4, 32, 0, true}, 576, 1536},
    {"Q8_0", {8, 32, 128, false}, 49152, 576}, {"Q4_0", {4, 32, 8, false}, 2048, 640},
    {"Q5_0", {5, 32, 16, false}, 640, 2048},   {"Q6_K", {6, 16, 32, false}, 2048, 640},
};

constexpr int64_t kColdBytes = int64_t{96} << 20;  // beyond the last-level cache's share
constexpr int kMaxCopies = 64;
constexpr int64_t kColdTokens = 16;  // the most that decode runs at once

PackedMatrix MakeMatrix(const Shape& shape) {
  std::mt19937 random(1);
  auto m = PackedMatrix::CreateGrouped(
      shape.rows, shape.cols, shape.spec, [&](int64_t, const GroupedRow& out) {
        for (int64_t i = 0; i < shape.cols; ++i) {
          out.codes[i] = static_cast<uint8_t>(random() >> (32 - shape.spec.bits));
        }
        for (int64_t g = 0; g < shape.cols / shape.spec.group; ++g) {
          out.scales[g] = 0.015625f;
          if (out.offsets != nullptr) out.offsets[g] = -0.125f;
        }
        return Status::Ok();
      });
  if (!m.ok()) {
    std::fprintf(stderr, "matmul_bench: %s\n", m.status().message().c_str());
    std::exit(1);
  }
  return std::move(m).value();
}

struct Case {
  const Shape* shape;
  ActivationMode mode;
  int64_t tokens;
  int threads;
  std::vector<double> seconds;  // of one product
};

class Bench {
 public:
  explicit Bench(double seconds) : seconds_(seconds) {
    for (int threads : {1, 2}) pools_.push_back(std::move(ThreadPool::Create(threads)).value());
  }

  void Run() {
    for (const Shape& shape : kShapes) RunShape(shape);
  }

 private:
  void RunShape(const Shape& shape) {
    std::vector<PackedMatrix> copies;
    int64_t bytes = 0;
    while (bytes < kColdBytes && copies.size() < kMaxCopies) {
      copies.push_back(MakeMatrix(shape));
      bytes += copies.back().packed_bytes();
    }
    std::vector<Case> cases;
    for (const int64_t tokens : {1, 4, 16, 128, 512}) {
      for (const int threads : {1, 2}) {
        cases.push_back({&shape, ActivationMode::kInt8, tokens, threads, {}});
      }
    }
    for (const int64_t tokens : {1, 16}) {
      cases.push_back({&shape, ActivationMode::kFloat, tokens, 1, {}});
    }
    const auto end =
        Clock::now() + std::chrono::duration<double>(seconds_ * static_cast<double>(cases.size()));
    do {
      for (Case& c : cases) Round(copies, &c);
    } while (Clock::now() < end);
    for (Case& c : cases) Print(&c, copies[0].packed_bytes());
  }

  // Small batches run over all copies, so that weights come from memory; tall ones over one.
  void Round(const std::vector<PackedMatrix>& copies, Case* c) {
    ThreadPool& pool = *pools_[c->threads - 1];
    const int64_t rows = c->shape->rows, cols = c->shape->cols;
    inputs_.assign(c->tokens * cols, 0.0f);
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (float& v : inputs_) v = normal(random);
    auto a = Activations::Create(c->tokens, cols, c->mode);
    if (!a.ok()) std::exit(1);
    a->Set(pool, inputs_.data(), cols, c->tokens, cols);
    outputs_.resize(c->tokens * rows);
    const size_t count = c->tokens <= kColdTokens ? copies.size() : 1;
    MatMul(pool, copies[0], *a, outputs_.data(), rows);  // wakes the pool, touches the outputs
    const auto now = c->threads == 1 ? ThreadSeconds : WallSeconds;
    const double begin = now();
    for (size_t i = 0; i < count; ++i) MatMul(pool, copies[i], *a, outputs_.data(), rows);
    c->seconds.push_back((now() - begin) / static_cast<double>(count));
  }

  void Print(Case* c, int64_t bytes) const {
    std::sort(c->seconds.begin(), c->seconds.end());
    const double median = c->seconds[c->seconds.size() / 2], best = c->seconds.front();
    const Shape& shape = *c->shape;
    const double macs = static_cast<double>(shape.rows * shape.cols * c->tokens);
    std::printf("%-4s %6lld x %-4lld %-5s tokens %3lld threads %d", shape.type,
                static_cast<long long>(shape.rows), static_cast<long long>(shape.cols),
                c->mode == ActivationMode::kInt8 ? "int8" : "float",
                static_cast<long long>(c->tokens), c->threads);
    for (const double s : {median, best}) {
      std::printf("  %s %9.1f us", s == median ? "median" : "best", s * 1e6);
      if (c->tokens <= kColdTokens)
        std::printf(" %6.2f GB/s", static_cast<double>(bytes) / s * 1e-9);
      if (c->tokens == 1) continue;
      const double a_cycle = macs / s * 1e-9 / gigahertz_ / c->threads;
      std::printf(" %6.1f GMAC/s %5.1f MAC/cycle %3.0f %%", macs / s * 1e-9, a_cycle,
                  a_cycle / 0.64);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  const double seconds_, gigahertz_ = MeasureGigahertz();
  std::vector<std::unique_ptr<ThreadPool>> pools_;
  std::vector<float> inputs_, outputs_;
};

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  std::printf("isa %s\n", std::string(kvant::IsaName(kvant::ActiveIsa())).c_str());
  kvant::Bench(argc > 1 ? std::atof(argv[1]) : 0.3).Run();
  return 0;
}
