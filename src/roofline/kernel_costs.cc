#include <algorithm>
#include <iterator>

#include "kvant/regime.h"

namespace kvant {
namespace {

constexpr char kDecode[] = "nvcc 13.0, attention loop";
constexpr char kNaive[] = "nvcc 13.0, K loop, c * s + b in f32";

struct Row {
  int target;
  const char *name, *format;
  double issued, alu, fma, half2, xu, shared;
};

// src/cuda's kvant_decode_<format>_d128_g1 (core) and _g8 (tensor), and
// kvant_naive_scores_int4_d128. Printed by kvant meter; tests/sass holds them to what it counts.
constexpr Row kRows[] = {
    {80, "core", "f16", 0.67, 0.21, 0.06, 0.30, 0.00, 0.00},
    {80, "tensor", "f16", 0.56, 0.26, 0.07, 0.00, 0.02, 0.00},
    {80, "core", "int8", 2.12, 0.61, 0.15, 1.20, 0.01, 0.01},
    {80, "tensor", "int8", 1.29, 0.65, 0.15, 0.06, 0.04, 0.01},
    {80, "core", "int4", 4.42, 1.46, 0.31, 2.39, 0.01, 0.02},
    {80, "tensor", "int4", 2.74, 1.56, 0.30, 0.12, 0.07, 0.02},
    {80, "core", "int2", 8.46, 2.73, 0.55, 4.73, 0.02, 0.05},
    {80, "tensor", "int2", 5.24, 2.87, 0.62, 0.38, 0.14, 0.03},
    {80, "core", "fp8", 2.47, 1.59, 0.12, 0.63, 0.01, 0.00},
    {80, "tensor", "fp8", 2.14, 1.65, 0.16, 0.03, 0.04, 0.00},
    {80, "core", "tq4", 3.84, 0.19, 1.22, 1.26, 0.01, 1.00},
    {80, "tensor", "tq4", 3.20, 0.34, 1.29, 0.06, 0.07, 1.00},
    {80, "core", "int8_int4", 2.89, 0.89, 0.21, 1.59, 0.01, 0.02},
    {80, "tensor", "int8_int4", 1.76, 0.96, 0.20, 0.08, 0.05, 0.01},
    {80, "core", "int4_int2", 5.80, 1.87, 0.43, 3.19, 0.02, 0.03},
    {80, "tensor", "int4_int2", 3.56, 1.99, 0.41, 0.21, 0.09, 0.02},
    {80, "naive", "int4", 11.72, 4.20, 4.25, 0.50, 2.00, 0.00},
    {89, "core", "f16", 0.70, 0.23, 0.07, 0.30, 0.00, 0.00},
    {89, "tensor", "f16", 0.56, 0.26, 0.08, 0.00, 0.02, 0.00},
    {89, "core", "int8", 2.12, 0.61, 0.15, 1.20, 0.01, 0.01},
    {89, "tensor", "int8", 1.29, 0.65, 0.15, 0.06, 0.04, 0.01},
    {89, "core", "int4", 4.42, 1.46, 0.31, 2.39, 0.01, 0.02},
    {89, "tensor", "int4", 2.75, 1.56, 0.30, 0.12, 0.07, 0.02},
    {89, "core", "int2", 8.46, 2.73, 0.55, 4.73, 0.02, 0.05},
    {89, "tensor", "int2", 5.24, 2.87, 0.62, 0.38, 0.14, 0.03},
    {89, "core", "fp8", 1.99, 0.62, 0.12, 1.13, 0.01, 0.00},
    {89, "tensor", "fp8", 1.19, 0.65, 0.16, 0.03, 0.04, 0.00},
    {89, "core", "tq4", 3.85, 0.20, 1.22, 1.26, 0.01, 1.00},
    {89, "tensor", "tq4", 3.18, 0.34, 1.29, 0.06, 0.07, 1.00},
    {89, "core", "int8_int4", 2.89, 0.89, 0.21, 1.59, 0.01, 0.02},
    {89, "tensor", "int8_int4", 1.76, 0.96, 0.20, 0.08, 0.05, 0.01},
    {89, "core", "int4_int2", 5.80, 1.87, 0.43, 3.19, 0.02, 0.03},
    {89, "tensor", "int4_int2", 3.56, 1.99, 0.41, 0.21, 0.09, 0.02},
    {89, "naive", "int4", 11.72, 6.04, 4.41, 0.50, 0.00, 0.00},
    {90, "core", "f16", 0.69, 0.24, 0.06, 0.30, 0.00, 0.00},
    {90, "tensor", "f16", 0.51, 0.26, 0.07, 0.00, 0.02, 0.00},
    {90, "core", "int8", 2.11, 0.62, 0.14, 1.20, 0.01, 0.01},
    {90, "tensor", "int8", 1.27, 0.66, 0.15, 0.06, 0.04, 0.01},
    {90, "core", "int4", 4.41, 1.48, 0.28, 2.39, 0.01, 0.02},
    {90, "tensor", "int4", 2.73, 1.56, 0.30, 0.12, 0.07, 0.02},
    {90, "core", "int2", 8.41, 2.77, 0.45, 4.73, 0.02, 0.05},
    {90, "tensor", "int2", 5.27, 2.88, 0.61, 0.38, 0.14, 0.03},
    {90, "core", "fp8", 1.99, 0.62, 0.11, 1.13, 0.01, 0.00},
    {90, "tensor", "fp8", 1.18, 0.65, 0.16, 0.03, 0.04, 0.00},
    {90, "core", "tq4", 3.93, 0.23, 1.22, 1.26, 0.01, 1.00},
    {90, "tensor", "tq4", 3.27, 0.33, 1.29, 0.06, 0.07, 1.00},
    {90, "core", "int8_int4", 2.88, 0.91, 0.19, 1.59, 0.01, 0.02},
    {90, "tensor", "int8_int4", 1.76, 0.96, 0.20, 0.08, 0.05, 0.01},
    {90, "core", "int4_int2", 5.79, 1.90, 0.38, 3.20, 0.02, 0.03},
    {90, "tensor", "int4_int2", 3.58, 2.00, 0.41, 0.21, 0.09, 0.02},
    {90, "naive", "int4", 11.71, 6.04, 4.40, 0.50, 0.00, 0.00},
    {100, "core", "f16", 0.71, 0.26, 0.05, 0.30, 0.00, 0.00},
    {100, "tensor", "f16", 0.50, 0.25, 0.07, 0.00, 0.02, 0.00},
    {100, "core", "int8", 2.12, 0.63, 0.14, 1.19, 0.01, 0.00},
    {100, "tensor", "int8", 1.25, 0.65, 0.15, 0.06, 0.04, 0.00},
    {100, "core", "int4", 4.42, 1.50, 0.29, 2.39, 0.01, 0.00},
    {100, "tensor", "int4", 2.71, 1.55, 0.32, 0.12, 0.07, 0.00},
    {100, "core", "int2", 8.37, 2.78, 0.47, 4.73, 0.02, 0.00},
    {100, "tensor", "int2", 5.20, 2.83, 0.62, 0.38, 0.14, 0.00},
    {100, "core", "fp8", 1.99, 0.61, 0.11, 1.13, 0.01, 0.00},
    {100, "tensor", "fp8", 1.13, 0.65, 0.16, 0.03, 0.04, 0.00},
    {100, "core", "tq4", 3.95, 0.21, 1.22, 1.26, 0.01, 1.00},
    {100, "tensor", "tq4", 3.32, 0.32, 1.30, 0.06, 0.07, 1.00},
    {100, "core", "int8_int4", 2.90, 0.93, 0.19, 1.59, 0.01, 0.00},
    {100, "tensor", "int8_int4", 1.72, 0.95, 0.20, 0.08, 0.05, 0.00},
    {100, "core", "int4_int2", 5.80, 1.93, 0.39, 3.19, 0.02, 0.00},
    {100, "tensor", "int4_int2", 3.54, 1.97, 0.42, 0.21, 0.09, 0.00},
    {100, "naive", "int4", 11.00, 5.58, 4.16, 0.50, 0.00, 0.00},
};

// Of one side: "f16", or a name that ends in its width; of fp8 too.
int BitsOf(const std::string& side) { return side == "f16" ? 16 : side.back() - '0'; }

}  // namespace

std::vector<KernelCost> KernelCosts(int target) {
  int counted = kRows[0].target;
  for (const Row& row : kRows) {
    if (row.target <= target) counted = std::max(counted, row.target);
  }
  std::vector<KernelCost> costs;
  for (const Row& row : kRows) {
    if (row.target != counted) continue;
    KernelCost& cost = costs.emplace_back();
    cost.name = row.name;
    cost.format = row.format;
    cost.bits = BitsOf(cost.format.substr(0, cost.format.find('_')));
    cost.v_bits = BitsOf(cost.format.substr(cost.format.find('_') + 1));
    cost.target = row.target;
    cost.source = cost.name == "naive" ? kNaive : kDecode;
    cost.issued = row.issued;
    cost.alu = row.alu;
    cost.fma = row.fma;
    cost.half2 = row.half2;
    cost.xu = row.xu;
    cost.shared = row.shared;
    cost.on_tensor_cores = cost.name == "tensor";
    if (cost.on_tensor_cores) cost.q_heads = 8;  // the columns of one matrix instruction
  }
  return costs;
}

}  // namespace kvant
