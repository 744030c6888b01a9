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
  double issued, alu, fma, half2, xu;
};

// src/cuda's kvant_decode_<format>_d128_g1 (core) and _g8 (tensor), and
// kvant_naive_scores_int4_d128. Printed by kvant meter; tests/sass holds them to what it counts.
constexpr Row kRows[] = {
    {80, "core", "f16", 0.68, 0.22, 0.06, 0.30, 0.00},
    {80, "tensor", "f16", 0.56, 0.26, 0.07, 0.00, 0.02},
    {80, "core", "int8", 2.13, 0.62, 0.15, 1.20, 0.01},
    {80, "tensor", "int8", 1.29, 0.65, 0.15, 0.06, 0.04},
    {80, "core", "int4", 4.45, 1.48, 0.32, 2.39, 0.01},
    {80, "tensor", "int4", 2.74, 1.56, 0.30, 0.12, 0.07},
    {80, "core", "int2", 8.60, 2.72, 0.66, 4.78, 0.02},
    {80, "tensor", "int2", 5.24, 2.87, 0.62, 0.38, 0.14},
    {80, "core", "fp8", 2.46, 1.60, 0.12, 0.63, 0.01},
    {80, "tensor", "fp8", 2.14, 1.65, 0.16, 0.03, 0.04},
    {80, "naive", "int4", 11.72, 4.20, 4.25, 0.50, 2.00},
    {89, "core", "f16", 0.69, 0.23, 0.06, 0.30, 0.00},
    {89, "tensor", "f16", 0.56, 0.26, 0.07, 0.00, 0.02},
    {89, "core", "int8", 2.13, 0.62, 0.15, 1.20, 0.01},
    {89, "tensor", "int8", 1.29, 0.65, 0.15, 0.06, 0.04},
    {89, "core", "int4", 4.45, 1.48, 0.32, 2.39, 0.01},
    {89, "tensor", "int4", 2.75, 1.56, 0.30, 0.12, 0.07},
    {89, "core", "int2", 8.60, 2.72, 0.66, 4.78, 0.02},
    {89, "tensor", "int2", 5.24, 2.87, 0.62, 0.38, 0.14},
    {89, "core", "fp8", 2.00, 0.62, 0.12, 1.13, 0.01},
    {89, "tensor", "fp8", 1.19, 0.65, 0.16, 0.03, 0.04},
    {89, "naive", "int4", 11.72, 6.04, 4.41, 0.50, 0.00},
    {90, "core", "f16", 0.70, 0.25, 0.06, 0.30, 0.00},
    {90, "tensor", "f16", 0.51, 0.26, 0.07, 0.00, 0.02},
    {90, "core", "int8", 2.12, 0.63, 0.14, 1.20, 0.01},
    {90, "tensor", "int8", 1.27, 0.66, 0.15, 0.06, 0.04},
    {90, "core", "int4", 4.43, 1.50, 0.28, 2.39, 0.01},
    {90, "tensor", "int4", 2.73, 1.56, 0.30, 0.12, 0.07},
    {90, "core", "int2", 8.55, 2.73, 0.56, 4.79, 0.02},
    {90, "tensor", "int2", 5.27, 2.88, 0.61, 0.38, 0.14},
    {90, "core", "fp8", 1.99, 0.62, 0.11, 1.13, 0.01},
    {90, "tensor", "fp8", 1.18, 0.65, 0.16, 0.03, 0.04},
    {90, "naive", "int4", 11.71, 6.04, 4.40, 0.50, 0.00},
    {100, "core", "f16", 0.72, 0.27, 0.05, 0.30, 0.00},
    {100, "tensor", "f16", 0.50, 0.25, 0.07, 0.00, 0.02},
    {100, "core", "int8", 2.13, 0.64, 0.14, 1.19, 0.01},
    {100, "tensor", "int8", 1.25, 0.65, 0.15, 0.06, 0.04},
    {100, "core", "int4", 4.45, 1.53, 0.29, 2.39, 0.01},
    {100, "tensor", "int4", 2.71, 1.55, 0.32, 0.12, 0.07},
    {100, "core", "int2", 8.60, 2.83, 0.58, 4.78, 0.02},
    {100, "tensor", "int2", 5.20, 2.83, 0.62, 0.38, 0.14},
    {100, "core", "fp8", 1.99, 0.62, 0.11, 1.13, 0.01},
    {100, "tensor", "fp8", 1.13, 0.65, 0.16, 0.03, 0.04},
    {100, "naive", "int4", 11.00, 5.58, 4.16, 0.50, 0.00},
};

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
    cost.bits = cost.format == "f16" ? 16 : cost.format.back() - '0';
    cost.target = row.target;
    cost.source = cost.name == "naive" ? kNaive : kDecode;
    cost.issued = row.issued;
    cost.alu = row.alu;
    cost.fma = row.fma;
    cost.half2 = row.half2;
    cost.xu = row.xu;
    cost.on_tensor_cores = cost.name == "tensor";
    if (cost.on_tensor_cores) cost.q_heads = 8;  // the columns of one matrix instruction
  }
  return costs;
}

}  // namespace kvant
