#include "model/key_balance.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

constexpr double kLargest = 1024;

// Square of the length of every row of a projection behind a norm; where heads [head_norm.size()]
// are normed, as if that gave each the mean 1 before its weights.
std::vector<double> RowSquares(const PackedMatrix& matrix, const std::vector<float>& norm,
                               const std::vector<float>& head_norm) {
  std::vector<double> squares;
  std::vector<float> row(static_cast<size_t>(matrix.cols()));
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    matrix.DecodeRow(r, row.data());
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const double x = static_cast<double>(row[i]) * norm[i];
      sum += x * x;
    }
    squares.push_back(sum);
  }
  const size_t d = head_norm.size();
  for (size_t head = 0; d != 0 && head < squares.size(); head += d) {
    double sum = 0;
    for (size_t c = 0; c < d; ++c) sum += squares[head + c];
    for (size_t c = 0; c < d && sum > 0; ++c) {
      squares[head + c] *= std::pow(head_norm[c], 2) * static_cast<double>(d) / sum;
    }
  }
  return squares;
}

}  // namespace

int RopePartner(const ModelConfig& config, int c) {
  if (c >= config.rope_dims) return c;
  if (config.rope_pairs == RopePairs::kNeighbours) return c ^ 1;
  const int half = config.rope_dims / 2;
  return c < half ? c + half : c - half;
}

std::vector<float> KeyBalance(const ModelConfig& config, const ModelWeights& weights) {
  std::vector<float> balance;
  const int d = config.head_dim, group = config.q_heads / config.kv_heads;
  for (const LayerWeights& layer : weights.layers) {
    const std::vector<double> k = RowSquares(layer.k, layer.attention_norm, layer.k_norm);
    const std::vector<double> q = RowSquares(layer.q, layer.attention_norm, layer.q_norm);
    for (int h = 0; h < config.kv_heads; ++h) {
      // Sums over a channel and its partner, if it has one.
      const auto sum_of = [&](int c, const std::vector<double>& squares, int first_head,
                              int heads) {
        double sum = 0;
        for (int i = first_head; i < first_head + heads; ++i) {
          sum += squares[static_cast<size_t>(i * d + c)];
          const int partner = RopePartner(config, c);
          if (partner != c) sum += squares[static_cast<size_t>(i * d + partner)];
        }
        return sum / heads;
      };
      for (int c = 0; c < d; ++c) {
        const double of_k = sum_of(c, k, h, 1), of_q = sum_of(c, q, h * group, group);
        const double b = of_k > 0 && of_q > 0 ? std::pow(of_q / of_k, 0.25) : 1.0;
        balance.push_back(static_cast<float>(std::clamp(b, 1 / kLargest, kLargest)));
      }
    }
  }
  return balance;
}

}  // namespace kvant
