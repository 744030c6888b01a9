#include "model/key_balance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/model_impl.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

// Length of row `row` of a projection behind the attention norm.
double RowLength(const PackedMatrix& matrix, const std::vector<float>& norm, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.DecodeRow(row, values.data());
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += std::pow(double{values[i]} * norm[i], 2);
  return std::sqrt(sum);
}

TEST(KeyBalance, IsTheRootOfTheRatioOfQueriesToKeysPairByPair) {
  const ToyModel toy({.q_heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32});
  const Result<Model> model = toy.Load("key_balance");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Model::Impl& impl = model->impl();
  const std::vector<float> balance = KeyBalance(impl.config, impl.weights);
  ASSERT_EQ(balance.size(), static_cast<size_t>(impl.config.layers * 2 * 32));
  size_t at = 0;
  for (const LayerWeights& layer : impl.weights.layers) {
    for (int row = 0; row < 64; row += 2, at += 2) {  // neighbours turn together
      const auto pair = [&](const PackedMatrix& matrix) {
        return std::hypot(RowLength(matrix, layer.attention_norm, row),
                          RowLength(matrix, layer.attention_norm, row + 1));
      };
      EXPECT_NEAR(balance[at], std::sqrt(pair(layer.q) / pair(layer.k)), 1e-5) << at;
      EXPECT_EQ(balance[at], balance[at + 1]) << at;
    }
  }
}

TEST(KeyBalance, IsComputedOnceAModel) {
  const ToyModel toy;
  const Result<Model> model = toy.Load("key_balance_once");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Model::Impl& impl = model->impl();
  const std::vector<float>& first = impl.key_balance->Of(impl.config, impl.weights);
  EXPECT_EQ(first, KeyBalance(impl.config, impl.weights));
  EXPECT_EQ(&first, &impl.key_balance->Of(impl.config, impl.weights));
}

}  // namespace
}  // namespace kvant
