#include "calibrate/layer_statistics.h"

#include <algorithm>
#include <cmath>

#include "calibrate/eigenvectors.h"
#include "codec/rotation.h"
#include "model/key_balance.h"

namespace kvant {
namespace {

// Of the queries every eighth stands for all in the attention: a token's mass is a sum over
// hundreds.
constexpr int64_t kQueryStride = 8;

// products += weight * x x^T
void AddProducts(const float* x, double weight, int n, std::vector<double>* products) {
  for (int i = 0; i < n; ++i) {
    const double scaled = weight * static_cast<double>(x[i]);
    double* const row = products->data() + static_cast<int64_t>(i) * n;
    for (int j = 0; j < n; ++j) row[j] += scaled * static_cast<double>(x[j]);
  }
}

float Dot(const float* a, const float* b, int n) {
  float sums[4] = {};
  for (int i = 0; i < n; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A vector divided by its rms into the histogram, value c with the weight square * weights[c].
void AddNormalised(const float* x, int n, const float* weights, ValueHistogram* histogram) {
  const float square = Dot(x, x, n) / static_cast<float>(n);
  if (!(square > 0)) return;
  const float inverse = 1.0f / std::sqrt(square);
  for (int c = 0; c < n; ++c) histogram->Add(x[c] * inverse, square * weights[c]);
}

}  // namespace

LayerStatistics::LayerStatistics(const ModelConfig& config, std::span<const float> k_balance)
    : config_(config) {
  const auto d = static_cast<size_t>(config.head_dim);
  for (size_t i = 0; i < k_balance.size(); ++i) {
    const float sign = RotationSign(static_cast<int>(i % d));
    to_key_.push_back(sign * k_balance[i]);
    to_query_.push_back(sign / k_balance[i]);
    signs_.push_back(sign);
  }
  heads_.assign(static_cast<size_t>(config.kv_heads),
                {std::vector<float>(d), std::vector<double>(d * d), std::vector<double>(d * d)});
}

void LayerStatistics::Add(const LayerVectors& sequence) {
  for (int head = 0; head < config_.kv_heads; ++head) AddHead(sequence, head);
}

void LayerStatistics::AddHead(const LayerVectors& s, int kv_head) {
  const int d = config_.head_dim, ratio = config_.q_heads / config_.kv_heads;
  Head& head = heads_[static_cast<size_t>(kv_head)];
  const std::vector<float> mass = SquaredMass(s, kv_head);
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int g = 0; g < ratio; ++g) {
      AddProducts(s.Query(t, kv_head * ratio + g), 1, d, &head.q_products);
    }
    if (t < kSinkTokens) continue;
    const float* const k = s.Key(t, kv_head);
    for (int c = 0; c < d; ++c) {
      float& largest = head.largest_k[static_cast<size_t>(c)];
      largest = std::max(largest, std::fabs(k[c]));
    }
    AddProducts(s.Value(t, kv_head), static_cast<double>(mass[static_cast<size_t>(t)]), d,
                &head.v_products);
  }
  AddKeyValues(s, kv_head);
  AddValueValues(s, kv_head, mass);
}

std::vector<float> LayerStatistics::SquaredMass(const LayerVectors& s, int kv_head) const {
  const int d = config_.head_dim, ratio = config_.q_heads / config_.kv_heads;
  const int64_t window = config_.layer_windows[static_cast<size_t>(s.layer)];
  std::vector<float> mass(static_cast<size_t>(s.rows)), p(mass.size());
  for (int64_t t = kQueryStride - 1; t < s.rows; t += kQueryStride) {
    const auto first = static_cast<size_t>(window == 0 ? 0 : std::max<int64_t>(0, t + 1 - window));
    const auto end = static_cast<size_t>(t + 1);
    for (int g = 0; g < ratio; ++g) {
      const float* const q = s.Query(t, kv_head * ratio + g);
      float largest = -INFINITY, sum = 0;
      for (size_t i = first; i < end; ++i) {
        p[i] = Dot(q, s.Key(static_cast<int64_t>(i), kv_head), d) * config_.softmax_scale;
        largest = std::max(largest, p[i]);
      }
      for (size_t i = first; i < end; ++i) sum += p[i] = std::exp(p[i] - largest);
      for (size_t i = first; i < end; ++i) mass[i] += p[i] / sum * (p[i] / sum);
    }
  }
  return mass;
}

// Page by page, as an encoder sees them.
void LayerStatistics::AddKeyValues(const LayerVectors& s, int kv_head) {
  const int d = config_.head_dim, ratio = config_.q_heads / config_.kv_heads;
  const auto turned = [&](const float* x, const std::vector<float>& multipliers) {
    std::vector<float> y(x, x + d);
    Rotate({.multiplier = multipliers.data() + kv_head * d, .hadamard = true}, d, y.data());
    return y;
  };
  std::vector<float> weights(static_cast<size_t>(d));  // mean square of a query's channel
  const float per_query = 1.0f / static_cast<float>(s.rows * ratio);
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int g = 0; g < ratio; ++g) {
      const std::vector<float> q = turned(s.Query(t, kv_head * ratio + g), to_query_);
      for (size_t c = 0; c < q.size(); ++c) weights[c] += q[c] * q[c] * per_query;
    }
  }
  for (int64_t page = 0; page + kPageTokens <= s.rows; page += kPageTokens) {
    std::vector<std::vector<float>> keys;
    std::vector<float> mean(static_cast<size_t>(d));
    for (int64_t t = std::max<int64_t>(page, kSinkTokens); t < page + kPageTokens; ++t) {
      keys.push_back(turned(s.Key(t, kv_head), to_key_));
      for (size_t c = 0; c < mean.size(); ++c) mean[c] += keys.back()[c];
    }
    for (float& m : mean) m /= static_cast<float>(keys.size());
    for (std::vector<float>& k : keys) {
      for (size_t c = 0; c < k.size(); ++c) k[c] -= mean[c];
      AddNormalised(k.data(), d, weights.data(), &k_values_);
    }
  }
}

void LayerStatistics::AddValueValues(const LayerVectors& s, int kv_head,
                                     const std::vector<float>& mass) {
  const int d = config_.head_dim;
  for (int64_t t = kSinkTokens; t < s.rows; ++t) {
    std::vector<float> v(s.Value(t, kv_head), s.Value(t, kv_head) + d);
    Rotate({.multiplier = signs_.data(), .hadamard = true}, d, v.data());
    const std::vector<float> weights(static_cast<size_t>(d), mass[static_cast<size_t>(t)]);
    AddNormalised(v.data(), d, weights.data(), &v_values_);
  }
}

std::vector<float> LayerStatistics::Factors() const {
  std::vector<float> factors;
  for (const Head& head : heads_) {
    for (int c = 0; c < config_.head_dim; ++c) {
      const float largest = std::max(head.largest_k[static_cast<size_t>(c)],
                                     head.largest_k[static_cast<size_t>(RopePartner(config_, c))]);
      factors.push_back(largest > 0 ? std::clamp(std::sqrt(largest), 0x1p-10f, 0x1p10f) : 1.0f);
    }
  }
  return factors;
}

std::vector<float> LayerStatistics::RotationOf(const std::vector<double> Head::*products) const {
  const auto d = static_cast<size_t>(config_.head_dim);
  std::vector<float> rotation;
  for (const Head& head : heads_) {
    const std::vector<double> u = Eigenvectors(head.*products, config_.head_dim);
    for (size_t i = 0; i < d; ++i) {
      std::vector<float> row(u.begin() + static_cast<std::ptrdiff_t>(i * d),
                             u.begin() + static_cast<std::ptrdiff_t>((i + 1) * d));
      Rotate({.hadamard = true}, config_.head_dim, row.data());
      rotation.insert(rotation.end(), row.begin(), row.end());
    }
  }
  return rotation;
}

Result<LayerCalibration> LayerStatistics::Finish(const std::string& name) const {
  LayerCalibration layer;
  const auto fit = [&](const ValueHistogram& histogram, const char* side,
                       std::array<FittedLevels, kFittedWidths>* levels) -> Status {
    const std::vector<WeightedValue> values = histogram.Values();
    for (int i = 0; i < kFittedWidths; ++i) {
      const Result<std::vector<double>> centres = FitCentres(values, 1 << (kLeastFittedBits + i));
      if (!centres.ok()) {
        return Status::Corrupt(side + (" of " + name) + ": " + centres.status().message());
      }
      (*levels)[static_cast<size_t>(i)] = RoundLevels(*centres);
    }
    return Status::Ok();
  };
  KVANT_RETURN_IF_ERROR(fit(k_values_, "K", &layer.k_levels));
  KVANT_RETURN_IF_ERROR(fit(v_values_, "V", &layer.v_levels));
  layer.k_factors = Factors();
  layer.k_rotation = RotationOf(&Head::q_products);
  layer.v_rotation = RotationOf(&Head::v_products);
  return layer;
}

}  // namespace kvant
