#include "codec/level_tables.h"

#include <array>

#include "format/page_layout.h"

namespace kvant {
namespace {

constexpr int8_t kSigns[2] = {-80, 80};
constexpr int8_t kLloydMax2[4] = {-40, -12, 12, 40};
constexpr int8_t kLloydMax3[8] = {-114, -71, -40, -13, 13, 40, 71, 114};
constexpr int8_t kLloydMax4[16] = {-105, -79, -62, -48, -36, -25, -15, -5,
                                   5,    15,  25,  36,  48,  62,  79,  105};
// E[z | cell] of two and of four neighbours of kLloydMax4, times their common factor.
constexpr int8_t kNested2[4] = {-42, -13, 13, 42};
constexpr int8_t kNested3[8] = {-105, -66, -37, -12, 12, 37, 66, 105};
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

using KernelLevels = std::array<uint8_t, 64>;

// The window whose kernel index is `index`: kernels gather the low bits of both elements from one
// plane and the high bits from the other.
constexpr int WindowOf(int bits, int window_bits, int index) {
  if (bits != 3 || window_bits == 3) return index;
  if (window_bits == 4) {  // low, low, next low | high
    return (index & 3) | (index >> 3 & 1) << 2 | (index >> 2 & 1) << 3;
  }
  return (index & 3) | (index >> 4 & 1) << 2 | (index >> 2 & 3) << 3 | (index >> 5) << 5;
}
// The same of nested codes: the plane of the upper two bits, then one bit of each that follows.
constexpr int NestedCodeOf(int bits, int index) {
  int code = index & 3;
  for (int bit = 2; bit < bits; ++bit) code = code << 1 | (index >> bit & 1);
  return code;
}

constexpr KernelLevels KernelOrder(int bits, int window_bits, const int8_t* levels, bool nested) {
  KernelLevels kernel{};
  for (int i = 0; i < 1 << window_bits; ++i) {
    const int window = nested ? NestedCodeOf(bits, i) : WindowOf(bits, window_bits, i);
    kernel[static_cast<size_t>(i)] = static_cast<uint8_t>(levels[window] + 128);
  }
  return kernel;
}

template <int kBits, int kWindow, const auto& kLevels, bool kIsNested>
constexpr KernelLevels kKernelLevels = KernelOrder(kBits, kWindow, kLevels, kIsNested);
template <int kBits, int kWindow, const auto& kLevels, bool kIsNested = false>
constexpr LevelTable Table(float sigma) {
  return {kBits, kWindow, sigma, kLevels, kKernelLevels<kBits, kWindow, kLevels, kIsNested>.data()};
}

constexpr LevelTable kLloydMax[4] = {Table<1, 1, kSigns>(100.266f), Table<2, 2, kLloydMax2>(26.5f),
                                     Table<3, 3, kLloydMax3>(53.0f),
                                     Table<4, 4, kLloydMax4>(38.25f)};
constexpr LevelTable kNested[3] = {Table<2, 2, kNested2, true>(24.672f),
                                   Table<3, 3, kNested3, true>(46.353f),
                                   Table<4, 4, kLloydMax4, true>(38.25f)};
constexpr LevelTable kTrellis16[2] = {Table<2, 4, kTrellis16Bits2>(60.112f),
                                      Table<3, 4, kTrellis16Bits3>(41.211f)};
constexpr LevelTable kTrellis64[3] = {Table<2, 6, kTrellis64Bits2>(47.541f),
                                      Table<3, 6, kTrellis64Bits3>(38.887f),
                                      Table<4, 6, kTrellis64Bits4>(36.484f)};

}  // namespace

// Tables of Lloyd-Max begin at 1 bit, the others at 2.
const LevelTable& LevelTableOf(const Format& format) {
  switch (format.levels) {
    case Levels::kLloydMax:
      return kLloydMax[format.bits - 1];
    case Levels::kNested:
      return kNested[format.bits - 2];
    case Levels::kTrellis16:
      return kTrellis16[format.bits - 2];
    default:
      return kTrellis64[format.bits - 2];
  }
}

const LevelTable& LevelTableOf(const SideLayout& side) {
  return side.fitted != nullptr ? *side.fitted : LevelTableOf(side.format);
}

const LevelTable& EncodeTableOf(const SideLayout& side) {
  return side.format.levels == Levels::kNested ? kNested[2] : LevelTableOf(side);
}

}  // namespace kvant
