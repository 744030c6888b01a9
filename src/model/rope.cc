#include "model/rope.h"

#include <cmath>

namespace kvant {

RopeTable::RopeTable(const RopeSpec& spec, int dims, RopePairs pairs,
                     const std::vector<float>& factors, int64_t max_rows)
    : pairs_(pairs) {
  for (int i = 0; i < dims / 2; ++i) {
    const double frequency =
        std::pow(static_cast<double>(spec.base), -2.0 * i / dims) / spec.position_scale;
    frequencies_.push_back(factors.empty() ? frequency
                                           : frequency / factors[static_cast<size_t>(i)]);
  }
  cos_sin_.resize(static_cast<size_t>(max_rows * this->dims()));
}

void RopeTable::Fill(int64_t row, int64_t position) {
  float* out = cos_sin_.data() + row * dims();
  for (const double frequency : frequencies_) {
    const double angle = static_cast<double>(position) * frequency;
    *out++ = static_cast<float>(std::cos(angle));
    *out++ = static_cast<float>(std::sin(angle));
  }
}

void RopeTable::Rotate(int64_t row, float* x) const {
  const int n = dims();
  const float* table = cos_sin_.data() + row * n;
  const bool halves = pairs_ == RopePairs::kHalves;
  const int step = halves ? 1 : 2, to_partner = halves ? n / 2 : 1;
  for (int i = 0; i < n; i += 2, x += step) {
    const float c = table[i], s = table[i + 1], a = x[0], b = x[to_partner];
    x[0] = a * c - b * s;
    x[to_partner] = a * s + b * c;
  }
}

}  // namespace kvant
