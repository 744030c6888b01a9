// Speed of the packed weights: GB/s of one-token products, GMAC/s of batches, for the shapes of
// SmolLM2-135M and Gemma 3 270M.
//
//   matmul_bench [seconds a line, default 0.3]
//
// One-token products walk over enough copies of their matrix to defeat the caches, as decode does;
// batches stay on one copy. Rounds of all cases of a shape are interleaved, and the median and the
// best are reported, because other work on the machine comes and goes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
    for (const int64_t tokens : {1, 4, 16, 64, 512}) {
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

  // One-token products run over all copies, so that weights come from memory; batches over one.
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
    const size_t count = c->tokens == 1 ? copies.size() : 1;
    MatMul(pool, copies[0], *a, outputs_.data(), rows);  // wakes the pool, touches the outputs
    const auto begin = Clock::now();
    for (size_t i = 0; i < count; ++i) MatMul(pool, copies[i], *a, outputs_.data(), rows);
    const std::chrono::duration<double> took = Clock::now() - begin;
    c->seconds.push_back(took.count() / static_cast<double>(count));
  }

  static void Print(Case* c, int64_t bytes) {
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
      if (c->tokens == 1) std::printf(" %6.2f GB/s", static_cast<double>(bytes) / s * 1e-9);
      if (c->tokens != 1) std::printf(" %6.1f GMAC/s", macs / s * 1e-9);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  const double seconds_;
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
