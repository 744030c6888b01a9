// What the integer dots add to the error of a format: the query and the probabilities are rounded
// to 8 bits (where codes have more than five to two terms of them), and that must stay small beside
// what the codes themselves lose.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention_world.h"

namespace kvant {
namespace {

using testing::AttendHead;
using testing::HeadSetup;
using testing::PagedHead;
using testing::RandomValues;
using testing::ReferenceAttention;

struct Errors {
  double dots = 0;    // of the kernel against f64 over the decoded values
  double format = 0;  // of f64 over the decoded values against f64 over the original ones
};

// wide: two channels of a query are 30 times as large as the others, as weights of a QK norm do it.
Errors ErrorsOf(const KvSpec& spec, int dim = 64, bool wide = false) {
  constexpr int kTokens = 700, kRatio = 16;
  const HeadSetup setup{spec.k, spec.v, dim, kTokens, 4, 1};
  const double scale = 1 / std::sqrt(dim);
  const auto values = static_cast<size_t>(dim);
  Errors errors;
  const auto pool = std::move(ThreadPool::Create(1).value());
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const auto k = RandomValues(kTokens * values, seed),
               v = RandomValues(kTokens * values, seed + 10);
    auto q = RandomValues(kRatio * values, seed + 20);
    for (size_t i = 0; wide && i < q.size(); i += values) {
      q[i + 5] *= 30;
      q[i + 37] *= 30;
    }
    const PagedHead head(setup, k, v);
    const auto out = AttendHead(*pool, head, setup, q, 1, kRatio);
    for (int r = 0; r < kRatio; ++r) {
      const float* row = q.data() + r * dim;
      const auto decoded = ReferenceAttention(row, head.seen_k, head.seen_v, dim, kTokens, scale);
      const auto original = ReferenceAttention(row, k, v, dim, kTokens, scale);
      for (size_t c = 0; c < values; ++c) {
        errors.dots += std::pow(out[static_cast<size_t>(r) * values + c] - decoded[c], 2);
        errors.format += std::pow(decoded[c] - original[c], 2);
      }
    }
  }
  return errors;
}

// KL goes with the square of the error. One rounded query costs as much as keys of 8 bits do, and
// probabilities rounded once 2.5 times what 8-bit values do.
TEST(IntegerDots, CostATenthOfTheFormatsOwnError) {
  for (const std::string& name : KvPresetNames()) {
    const KvSpec spec = ParseKvPreset(name).value();
    if (spec.k.is_float() || spec.k.is_float8()) continue;  // no integer dots
    const Errors e = ErrorsOf(spec);
    EXPECT_LT(e.dots, 0.1 * e.format) << name;
  }
}

// Every way of scales through phases one and two, with one term and with two.
TEST(IntegerDots, CostATenthAlongEitherAxis) {
  for (const char* const spec :
       {"int8:token:none/int8:channel:g64:min", "int8:token:g32:min/int8:token:g32:min",
        "int8:channel:g32:min/int8:token:none", "int6:token:min/int6:channel:g64:min",
        "int6:channel:g64:min/int6:token:min", "int5:channel:g64:min/int5:token:min",
        "int4:token:min/int4:channel:g64:min"}) {
    const Errors e = ErrorsOf(ParseKvPreset(spec).value());
    EXPECT_LT(e.dots, 0.1 * e.format) << spec;
  }
}

TEST(IntegerDots, CostKeysOfInt8ATenthOfTheirOwnErrorWithAnyQuery) {
  const KvSpec spec = ParseKvPreset("int8:channel:g64:min/f16").value();
  for (const int dim : {64, 80, 128, 256}) {
    for (const bool wide : {false, true}) {
      const Errors e = ErrorsOf(spec, dim, wide);
      EXPECT_LT(e.dots, 0.1 * e.format) << dim << (wide ? " wide" : "");
    }
  }
}

}  // namespace
}  // namespace kvant
