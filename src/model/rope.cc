#include "model/rope.h"

#include <cmath>
#include <utility>

namespace kvant {

Rope MakeRope(const RopeSpec& spec, int dims, RopePairs pairs, const std::vector<float>& factors) {
  Rope rope{pairs, RopeFrequencies(spec.base, dims)};
  for (size_t i = 0; i < rope.frequencies.size(); ++i) {
    rope.frequencies[i] /= spec.position_scale;
    if (!factors.empty()) rope.frequencies[i] /= factors[i];
  }
  return rope;
}

RopeTable::RopeTable(Rope rope, int64_t max_rows) : rope_(std::move(rope)) {
  cos_sin_.resize(static_cast<size_t>(max_rows * this->dims()));
}

void RopeTable::Fill(int64_t row, int64_t position) {
  float* out = cos_sin_.data() + row * dims();
  for (const double frequency : rope_.frequencies) {
    const double angle = static_cast<double>(position) * frequency;
    *out++ = static_cast<float>(std::cos(angle));
    *out++ = static_cast<float>(std::sin(angle));
  }
}

void RopeTable::Rotate(int64_t row, float* x) const {
  const int n = dims();
  const float* table = cos_sin_.data() + row * n;
  const bool halves = rope_.pairs == RopePairs::kHalves;
  const int step = halves ? 1 : 2, to_partner = halves ? n / 2 : 1;
  for (int i = 0; i < n; i += 2, x += step) {
    const float c = table[i], s = table[i + 1], a = x[0], b = x[to_partner];
    x[0] = a * c - b * s;
    x[to_partner] = a * s + b * c;
  }
}

}  // namespace kvant
