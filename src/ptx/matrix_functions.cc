// Tensor core products and the loads that feed them. Fragments: lane l is row l / 4 of a fragment
// of 8 rows, and holds there the elements that fill 32 bits, from (l % 4) times their number on. A
// has rows 0-7 and 8-15 in registers 0 and 1, then the next columns in 2 and 3; B the same of its
// columns (n) with no second half; C and D two adjacent columns in rows l / 4 and l / 4 + 8.
#include <algorithm>
#include <array>
#include <tuple>

#include "ptx/float_values.h"
#include "ptx/request.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kMatrixRows = 8;
constexpr uint64_t kMatrixRowBytes = 16;

// The registers of one operand, by register, then lane.
using Fragment = std::array<LaneValues, 4>;

int Depth(const Instruction& op) {
  if (op.Has(Names("m16n8k8"))) return 8;
  return op.Has(Names("m16n8k16")) ? 16 : 32;
}

bool ReadFragment(Warp& warp, const Instruction& op, const Operand& operand, size_t registers,
                  LaneMask lanes, Fragment* fragment) {
  if (operand.element_count() != registers) {
    warp.Fail(op, 0, "an operand has another number of registers");
    return false;
  }
  for (size_t i = 0; i < registers; ++i) {
    if (!warp.Read(op, operand.element(i), lanes, &(*fragment)[i])) return false;
  }
  return true;
}

// Element k of row (of A) or column (of B) r: which register, lane and bits hold it.
struct Slot {
  size_t reg;
  int lane;
  int shift;
};

// `row_blocks`: 2 for A, whose registers alternate between rows 0-7 and 8-15; 1 for B.
Slot OperandSlot(int row, int k, int element_bits, int row_blocks) {
  const int a_register = 32 / element_bits;  // elements
  const int k_block = 4 * a_register;        // elements of a row that the four lanes hold
  return {static_cast<size_t>(k / k_block * row_blocks + row / 8),
          row % 8 * 4 + k % k_block / a_register, k % a_register * element_bits};
}

// `packed`: two f16 in a register instead of one value in each of two.
Slot ResultSlot(int m, int n, bool packed) {
  const int lane = m % 8 * 4 + n / 2;
  if (packed) return {static_cast<size_t>(m / 8), lane, n % 2 * 16};
  return {static_cast<size_t>(m / 8 * 2 + n % 2), lane, 0};
}

uint64_t At(const Fragment& fragment, const Slot& slot) {
  return fragment[slot.reg][static_cast<size_t>(slot.lane)] >> slot.shift;
}

float ToF32(uint64_t bits, Type type) {
  return type == Type::kF16 ? F16ToF32(LowHalf(bits)) : Bf16ToF32(LowHalf(bits));
}

// Products of halves are exact in double; the sum, from C on and in order of k, is rounded to f32
// once at its end. A device adds in another order and cuts some bits, so its last ones differ.
uint64_t SumOfFloats(const Instruction& op, const Fragment& a, const Fragment& b, uint64_t c, int m,
                     int n) {
  const bool is_half = op.types[3] == Type::kF16;
  double sum = is_half ? F16ToF32(LowHalf(c)) : BitsToF32(c);
  for (int k = 0; k < Depth(op); ++k) {
    sum += double{ToF32(At(a, OperandSlot(m, k, 16, 2)), op.types[1])} *
           double{ToF32(At(b, OperandSlot(n, k, 16, 1)), op.types[2])};
  }
  const auto rounded = static_cast<float>(sum);
  return is_half ? F16Result(rounded) : F32Result(op, rounded);
}

uint64_t SumOfIntegers(const Instruction& op, const Fragment& a, const Fragment& b, uint64_t c,
                       int m, int n) {
  auto sum = static_cast<int64_t>(Extend(c, Type::kS32));
  for (int k = 0; k < Depth(op); ++k) {
    sum += static_cast<int64_t>(Extend(At(a, OperandSlot(m, k, 8, 2)), op.types[1])) *
           static_cast<int64_t>(Extend(At(b, OperandSlot(n, k, 8, 1)), op.types[2]));
  }
  if (op.Has(Names("satfinite"))) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint64_t>(sum);
}

bool AreTypesKnown(const Instruction& op) {
  const auto& [d, a, b, c] = std::tie(op.types[0], op.types[1], op.types[2], op.types[3]);
  if (d == Type::kS32) return c == d && Bits(a) == 8 && Bits(b) == 8;
  if (a != b || c != d) return false;
  return d == Type::kF32 ? a == Type::kF16 || a == Type::kBf16 : d == Type::kF16 && a == d;
}

}  // namespace

// D = A [16, k] B [k, 8] + C [16, 8]
void MultiplyMatrices(Warp& warp, const Instruction& op, LaneMask lanes) {
  if (!AreTypesKnown(op)) return warp.Fail(op, 0, "these types are not supported together");
  const bool is_integer = op.types[0] == Type::kS32;
  const bool is_packed = op.types[0] == Type::kF16;
  const int element_bits = is_integer ? 8 : 16;
  const auto b_registers = static_cast<size_t>(Depth(op) * element_bits / 128);
  const size_t c_registers = is_packed ? 2 : 4;
  Fragment a{}, b{}, c{}, d{};
  if (!ReadFragment(warp, op, op.operands[1], 2 * b_registers, lanes, &a)) return;
  if (!ReadFragment(warp, op, op.operands[2], b_registers, lanes, &b)) return;
  if (!ReadFragment(warp, op, op.operands[3], c_registers, lanes, &c)) return;
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      const Slot slot = ResultSlot(m, n, is_packed);
      const uint64_t sum = is_integer ? SumOfIntegers(op, a, b, At(c, slot), m, n)
                                      : SumOfFloats(op, a, b, At(c, slot), m, n);
      d[slot.reg][static_cast<size_t>(slot.lane)] |= LowBits(sum, is_packed ? 16 : 32)
                                                     << slot.shift;
    }
  }
  const Operand& target = op.operands[0];
  if (target.elements.size() != c_registers) {
    return warp.Fail(op, 0, "the result has another number of registers");
  }
  for (size_t i = 0; i < c_registers; ++i) warp.Write(target.elements[i], lanes, d[i]);
}

// Matrix i of 8 x 8 halves: lanes 8i to 8i+7 give the addresses of its rows; every lane then gets
// two adjacent elements of row lane / 4, or with .trans of that column.
void LoadMatrices(Warp& warp, const Instruction& op, LaneMask lanes) {
  const int matrices = op.Has(Names("x1")) ? 1 : op.Has(Names("x2")) ? 2 : 4;
  const Operand& target = op.operands[0];
  if (target.element_count() != static_cast<size_t>(matrices)) {
    return warp.Fail(op, 0, "the result has another number of registers");
  }
  LaneValues bytes{};
  std::fill_n(bytes.begin(), kMatrixRows * matrices, kMatrixRowBytes);
  Request request(warp, op, op.operands[1], lanes, SpaceOf(op), bytes);
  if (!request.CheckReads()) return;
  for (int i = 0; i < matrices; ++i) {
    std::array<std::array<uint16_t, 8>, kMatrixRows> matrix;
    for (int row = 0; row < kMatrixRows; ++row) {
      request.Read(i * kMatrixRows + row,
                   reinterpret_cast<std::byte*>(matrix[static_cast<size_t>(row)].data()));
    }
    LaneValues values;
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const auto row = static_cast<size_t>(lane / 4);
      const auto column = static_cast<size_t>(lane % 4 * 2);
      const bool is_transposed = op.Has(Names("trans"));
      values[lane] = is_transposed ? PackHalves(matrix[column][row], matrix[column + 1][row])
                                   : PackHalves(matrix[row][column], matrix[row][column + 1]);
    }
    warp.Write(target.element(static_cast<size_t>(i)), lanes, values);
  }
}

// An 8 x 8 matrix of halves that lies in registers as LoadMatrices leaves it.
void TransposeMatrix(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues from, to;
  if (!warp.Read(op, op.operands[1], lanes, &from)) return;
  const auto at = [&](int row, int column) {
    return LowHalf(from[static_cast<size_t>(row * 4 + column / 2)] >> (column % 2 * 16));
  };
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    to[lane] = PackHalves(at(lane % 4 * 2, lane / 4), at(lane % 4 * 2 + 1, lane / 4));
  }
  warp.Write(op.operands[0], lanes, to);
}

}  // namespace kvant::ptx
