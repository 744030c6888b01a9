#include "codec/level_tables.h"

#include <array>

namespace kvant {
namespace {

constexpr int8_t kLloydMax2[4] = {-40, -12, 12, 40};
constexpr int8_t kLloydMax3[8] = {-114, -71, -40, -13, 13, 40, 71, 114};
constexpr int8_t kLloydMax4[16] = {-105, -79, -62, -48, -36, -25, -15, -5,
                                   5,    15,  25,  36,  48,  62,  79,  105};
constexpr int8_t kTrellis16Bits2[16] = {-62, -7,  56,  -127, 82, 32,  -88, -25,
                                        -9,  126, -44, 31,   31, -64, -3,  82};
constexpr int8_t kTrellis16Bits3[16] = {-102, -57, -35, -17, 1,  19, 40, 73,
                                        -72,  -40, -18, 0,   18, 37, 58, 103};
constexpr int8_t kTrellis64Bits2[64] = {
    -17, 59,  18,  -67, -43, -3,  6,   38,  36, 90,  -34, 6,   9,   59,   122,  -36,
    19,  -70, -17, 68,  38,  -30, -73, -5,  85, -7,  22,  -50, -31, -123, 68,   19,
    -48, -13, -90, 29,  -70, 27,  -17, 70,  -6, -40, 45,  -95, 68,  2,    -106, -38,
    58,  19,  -51, -14, -5,  -62, 37,  103, 6,  41,  -65, -24, 45,  23,   -32,  -1};
constexpr int8_t kTrellis64Bits3[64] = {
    -63, 51,  0,   95,  -18,  -40, 22,  73,  -39, 38,  21,  65,  -6,  -20, 7,   -58,
    42,  -7,  -56, 13,  25,   6,   -22, -34, 3,   -93, -15, 25,  40,  -33, 112, 59,
    18,  -24, -75, 49,  7,    -9,  -44, 30,  65,  19,  4,   -10, -28, -50, -67, 41,
    -75, 33,  -44, -28, -116, 80,  -8,  10,  -11, -24, -36, 5,   -55, 25,  50,  -84};
constexpr int8_t kTrellis64Bits4[64] = {
    -81,  -54, -40, -29, -21, -14, -7,  0,   7,  13, 21, 29, 38, 51, 63, 97,
    -115, -74, -58, -48, -38, -30, -22, -14, -6, 0,  8,  15, 23, 32, 43, 68,
    -94,  -62, -48, -37, -27, -20, -13, -6,  2,  8,  15, 23, 33, 42, 55, 84,
    -67,  -44, -32, -22, -14, -7,  0,   7,   14, 21, 29, 38, 48, 60, 75, 118};

constexpr LevelTable kLloydMax[3] = {
    {2, 2, 26.5f, kLloydMax2}, {3, 3, 53.0f, kLloydMax3}, {4, 4, 38.25f, kLloydMax4}};
constexpr LevelTable kTrellis16[2] = {{2, 4, 60.112f, kTrellis16Bits2},
                                      {3, 4, 41.211f, kTrellis16Bits3}};
constexpr LevelTable kTrellis64[3] = {{2, 6, 47.541f, kTrellis64Bits2},
                                      {3, 6, 38.887f, kTrellis64Bits3},
                                      {4, 6, 36.484f, kTrellis64Bits4}};

using KernelLevels = std::array<uint8_t, 64>;

// The window whose kernel index is `index`: kernels gather the low bits of both elements from one
// plane and the high bits from the other.
constexpr int WindowOf(const LevelTable& table, int index) {
  if (table.bits != 3 || table.window_bits == 3) return index;
  if (table.window_bits == 4) {  // low, low, next low | high
    return (index & 3) | (index >> 3 & 1) << 2 | (index >> 2 & 1) << 3;
  }
  return (index & 3) | (index >> 4 & 1) << 2 | (index >> 2 & 3) << 3 | (index >> 5) << 5;
}

constexpr KernelLevels MakeKernelLevels(const LevelTable& table) {
  KernelLevels levels{};
  for (int i = 0; i < 1 << table.window_bits; ++i) {
    levels[static_cast<size_t>(i)] = static_cast<uint8_t>(table.levels[WindowOf(table, i)] + 128);
  }
  return levels;
}

constexpr KernelLevels kLloydMaxKernel[3] = {
    MakeKernelLevels(kLloydMax[0]), MakeKernelLevels(kLloydMax[1]), MakeKernelLevels(kLloydMax[2])};
constexpr KernelLevels kTrellis16Kernel[2] = {MakeKernelLevels(kTrellis16[0]),
                                              MakeKernelLevels(kTrellis16[1])};
constexpr KernelLevels kTrellis64Kernel[3] = {MakeKernelLevels(kTrellis64[0]),
                                              MakeKernelLevels(kTrellis64[1]),
                                              MakeKernelLevels(kTrellis64[2])};

template <typename Each>
const Each& Choose(const Format& format, const Each* lloyd_max, const Each* trellis16,
                   const Each* trellis64) {
  const Each* first = format.levels == Levels::kLloydMax    ? lloyd_max
                      : format.levels == Levels::kTrellis16 ? trellis16
                                                            : trellis64;
  return first[format.bits - 2];
}

}  // namespace

const LevelTable& LevelTableOf(const Format& format) {
  return Choose(format, kLloydMax, kTrellis16, kTrellis64);
}

const uint8_t* KernelLevelsOf(const Format& format) {
  return Choose(format, kLloydMaxKernel, kTrellis16Kernel, kTrellis64Kernel).data();
}

}  // namespace kvant
