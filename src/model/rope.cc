#include "model/rope.h"

#include <cmath>

namespace kvant {

RopeTable::RopeTable(const ModelConfig& config, const std::vector<float>& factors,
                     int64_t max_rows) {
  const int pairs = config.rope_dims / 2;
  for (int i = 0; i < pairs; ++i) {
    const double frequency =
        std::pow(static_cast<double>(config.rope_base), -2.0 * i / config.rope_dims) /
        config.rope_position_scale;
    frequencies_.push_back(factors.empty() ? frequency
                                           : frequency / factors[static_cast<size_t>(i)]);
  }
  cos_sin_.resize(static_cast<size_t>(max_rows * pairs * 2));
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
  for (int i = 0; i < n; i += 2) {
    const float c = table[i], s = table[i + 1], even = x[i], odd = x[i + 1];
    x[i] = even * c - odd * s;
    x[i + 1] = even * s + odd * c;
  }
}

}  // namespace kvant
