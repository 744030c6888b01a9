// Random matrices and inputs for the tests of this module.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "matmul/packed_matrix.h"

namespace kvant::matmul_testing {

// The unpacked truth behind a grouped matrix.
struct GroupedTruth {
  int64_t rows, cols;
  GroupedSpec spec;
  std::vector<uint8_t> codes;          // [rows][cols]
  std::vector<float> scales, offsets;  // [rows][cols / group]

  int64_t groups() const { return cols / spec.group; }

  double Value(int64_t row, int64_t col) const {
    const int64_t g = row * groups() + col / spec.group;
    const double scaled = static_cast<double>(scales[g]) * (codes[row * cols + col] - spec.zero);
    return spec.has_offset ? scaled + offsets[g] : scaled;
  }

  GroupedRowSource Source() const {
    return [this](int64_t row, const GroupedRow& out) {
      for (int64_t c = 0; c < cols; ++c) out.codes[c] = codes[row * cols + c];
      for (int64_t g = 0; g < groups(); ++g) out.scales[g] = scales[row * groups() + g];
      for (int64_t g = 0; g < groups() && out.offsets != nullptr; ++g) {
        out.offsets[g] = offsets[row * groups() + g];
      }
      return Status::Ok();
    };
  }
};

inline GroupedTruth RandomGrouped(int64_t rows, int64_t cols, const GroupedSpec& spec,
                                  bool half_scales, uint32_t seed) {
  GroupedTruth truth = {rows, cols, spec, {}, {}, {}};
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> code(0, (1 << spec.bits) - 1);
  std::uniform_real_distribution<float> number(-0.1f, 0.1f);
  truth.codes.resize(rows * cols);
  for (uint8_t& c : truth.codes) c = static_cast<uint8_t>(code(random));
  const auto fill = [&](std::vector<float>& numbers) {
    numbers.resize(rows * truth.groups());
    for (float& n : numbers) {
      n = number(random);
      if (half_scales) n = F16ToF32(F32ToF16(n));
    }
  };
  fill(truth.scales);
  if (spec.has_offset) fill(truth.offsets);
  return truth;
}

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

inline std::unique_ptr<ThreadPool> MakePool(int threads) {
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::Create(threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

// One spec for each GGUF type that has an integer form.
struct NamedSpec {
  const char* name;
  GroupedSpec spec;
};
inline const NamedSpec kSpecs[] = {
    {"Q4_0", {4, 32, 8, false}},           {"Q4_1", {4, 32, 0, true}},
    {"Q5_0", {5, 32, 16, false}},          {"Q5_1", {5, 32, 0, true}},
    {"Q6_K", {6, 16, 32, false}},          {"Q8_0", {8, 32, 128, false}},
    {"4bit_g16", {4, 16, 8, false}},       {"4bit_g16_offset", {4, 16, 0, true}},
    {"8bit_g16_offset", {8, 16, 0, true}}, {"8bit_offset", {8, 32, 0, true}},
};

}  // namespace kvant::matmul_testing
