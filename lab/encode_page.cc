// What it costs to code a page of 64 tokens and 64 channels of one KV head on one core, K and V,
// and to rotate one head. Not part of the build:
//   g++ -std=c++20 -O2 -DNDEBUG -Iinclude -Isrc lab/encode_page.cc build/release/src/libkvant.a
//       -pthread -o encode_page
//   ./encode_page plain4 int4 int2s trellis2s trellis3 trellis4 fp8
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "codec/codec.h"
#include "codec/rotation.h"

namespace {

constexpr int kDim = 64, kRepetitions = 200;

// The best of many runs, in microseconds.
template <typename Fn>
double Best(const Fn& fn) {
  double best = 1e9;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

void TimePreset(const char* name) {
  const kvant::Result<kvant::KvSpec> spec = kvant::ParseKvPreset(name);
  if (!spec.ok()) {
    std::printf("%s\n", spec.status().message().c_str());
    return;
  }
  using kvant::kFormatF16;
  const kvant::PageLayout open = kvant::MakePageLayout(kFormatF16, kFormatF16, kDim, 64);
  const kvant::PageLayout stored = kvant::MakePageLayout(spec->k, spec->v, kDim, 64);
  std::vector<std::byte> from(static_cast<size_t>(open.page_bytes));
  std::vector<std::byte> to(static_cast<size_t>(stored.page_bytes));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int t = 0; t < 64; ++t) {
    for (int c = 0; c < kDim; ++c) {
      kvant::StoreFloatValue(open.k, from.data(), t, c, normal(random));
      kvant::StoreFloatValue(open.v, from.data() + open.v_offset_bytes, t, c, normal(random));
    }
  }
  const double k = Best([&] { kvant::EncodeSide(open.k, from.data(), stored.k, 0, to.data()); });
  const double v = Best([&] {
    kvant::EncodeSide(open.v, from.data() + open.v_offset_bytes, stored.v, 0,
                      to.data() + stored.v_offset_bytes);
  });
  std::printf("%-10s K %6.2f us   V %6.2f us\n", name, k, v);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) TimePreset(argv[i]);
  std::vector<float> x(kDim, 1.0f), signs(kDim, 1.0f);
  const double many = Best([&] {
    for (int i = 0; i < 1000; ++i)
      kvant::Rotate({.multiplier = signs.data(), .hadamard = true}, kDim, x.data());
  });
  std::printf("rotate one head of %d: %.0f ns\n", kDim, many);
}
