// How a kernel reads a side of a device page: 16 bytes a load, then fragments of 8 codes as four
// words of halves. Codes of int of a weight f come as 1024 + f * code (device_page.h): the
// tensor-core kernel multiplies them as they are and subtracts 1024 * sum(other operand) once; the
// kernel without tensor cores takes the 1024 off exactly, half by half.
#pragma once

#include "cuda/device_page.h"
#include "cuda/isa.h"
#include "cuda/pair_table.h"

namespace kvant::cuda {

inline constexpr uint32_t kMagic = 0x64006400;          // two halves of 1024, whose ulp is 1
inline constexpr uint32_t kMinusMagic = 0xe400e400;     // -1024
inline constexpr uint32_t kMinusMagic4th = 0xdc00dc00;  // -256
inline constexpr uint32_t kMinusMagic16th = 0xd400d400;
inline constexpr uint32_t kMinusMagic64th = 0xcc00cc00;
inline constexpr uint32_t k4th = 0x34003400;
inline constexpr uint32_t k16th = 0x2c002c00;
inline constexpr uint32_t k64th = 0x24002400;
inline constexpr uint32_t k256th = 0x1c001c00;
inline constexpr uint32_t kOne = 0x3c003c00;

// What Unpack makes of a code: kWeight times its half (device_page.h), and on top of that
// kRowWeight times in the rows g + 8 and kPairWeight times in the pairs 2, 3. MakeExact gives the
// half itself.
struct F16Codes {
  static constexpr SideCode kCode = SideCode::kF16;
  static constexpr int kWeight = 1, kRowWeight = 1, kPairWeight = 1;
  KVANT_DEVICE static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    KVANT_UNROLL
    for (int pair = 0; pair < 4; ++pair) a[pair] = words[fragment * 4 + pair];
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&)[4]) {}
};

struct Int8Codes {
  static constexpr SideCode kCode = SideCode::kInt8;
  static constexpr int kWeight = 1, kRowWeight = 1, kPairWeight = 1;
  KVANT_DEVICE static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    KVANT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = words[fragment * 2 + i];
      a[2 * i] = Permute<0x4140>(word, kMagic >> 8);  // byte 4 is 0x64
      a[2 * i + 1] = Permute<0x4342>(word, kMagic >> 8);
    }
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&a)[4]) {
    KVANT_UNROLL
    for (int pair = 0; pair < 4; ++pair) a[pair] = HalfSub2(a[pair], kMagic);
  }
};

struct Int4Codes {
  static constexpr SideCode kCode = SideCode::kInt4;
  static constexpr int kWeight = 1, kRowWeight = 16, kPairWeight = 1;
  KVANT_DEVICE static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    const uint32_t low = words[fragment], high = low >> 8;
    a[0] = AndOr<0x000f000f, kMagic>(low);
    a[1] = AndOr<0x00f000f0, kMagic>(low);
    a[2] = AndOr<0x000f000f, kMagic>(high);
    a[3] = AndOr<0x00f000f0, kMagic>(high);
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&a)[4]) {
    a[0] = HalfSub2(a[0], kMagic);
    a[1] = HalfFma2(a[1], k16th, kMinusMagic16th);
    a[2] = HalfSub2(a[2], kMagic);
    a[3] = HalfFma2(a[3], k16th, kMinusMagic16th);
  }
};

struct Int2Codes {
  static constexpr SideCode kCode = SideCode::kInt2;
  static constexpr int kWeight = 1, kRowWeight = 16, kPairWeight = 4;
  KVANT_DEVICE static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    const uint32_t word = words[fragment / 2] >> (fragment % 2 * 8);
    a[0] = AndOr<0x00030003, kMagic>(word);
    a[1] = AndOr<0x00300030, kMagic>(word);
    a[2] = AndOr<0x000c000c, kMagic>(word);
    a[3] = AndOr<0x00c000c0, kMagic>(word);
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&a)[4]) {
    a[0] = HalfSub2(a[0], kMagic);
    a[1] = HalfFma2(a[1], k16th, kMinusMagic16th);
    a[2] = HalfFma2(a[2], k4th, kMinusMagic4th);
    a[3] = HalfFma2(a[3], k64th, kMinusMagic64th);
  }
};

struct E4M3Codes {
  static constexpr SideCode kCode = SideCode::kE4M3;
  static constexpr int kWeight = kE4M3Weight, kRowWeight = 1, kPairWeight = 1;
  KVANT_DEVICE static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    KVANT_UNROLL
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = E4M3Halves<false>(words[fragment * 2 + i]);
      a[2 * i + 1] = E4M3Halves<true>(words[fragment * 2 + i]);
    }
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&a)[4]) {
    static_assert(kWeight == 1 || kWeight == 256);
    if constexpr (kWeight == 256) {
      KVANT_UNROLL
      for (int pair = 0; pair < 4; ++pair) a[pair] = HalfMul2(a[pair], k256th);
    }
  }
};

struct LevelCodes {
  static constexpr SideCode kCode = SideCode::kLevels4;
  static constexpr int kWeight = 1, kRowWeight = 1, kPairWeight = 1;
  PairTable<kPairCopies> table;
  KVANT_DEVICE void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) const {
    const uint32_t word = words[fragment];
    a[0] = table.Pair<0>(word);
    a[1] = table.Pair<1>(word);
    a[2] = table.Pair<2>(word);
    a[3] = table.Pair<3>(word);
  }
  KVANT_DEVICE static void MakeExact(uint32_t (&)[4]) {}
};

// levels: the shared table, of LevelCodes only.
template <typename Codes>
KVANT_DEVICE Codes MakeCodes([[maybe_unused]] const uint32_t* levels, [[maybe_unused]] int lane) {
  if constexpr (Codes::kCode == SideCode::kLevels4) {
    return Codes{PairTable<kPairCopies>::Of(levels, lane)};
  } else {
    return Codes{};
  }
}

// What a value has besides its scale and its half.
template <typename Codes>
KVANT_DEVICE float UnitOf([[maybe_unused]] const DecodeArguments& args) {
  if constexpr (Codes::kCode == SideCode::kLevels4) {
    return args.level_unit;
  } else {
    return 1.0f;
  }
}

template <SideCode kCode>
struct CodesOfSide;
template <>
struct CodesOfSide<SideCode::kF16> {
  using Type = F16Codes;
};
template <>
struct CodesOfSide<SideCode::kInt8> {
  using Type = Int8Codes;
};
template <>
struct CodesOfSide<SideCode::kInt4> {
  using Type = Int4Codes;
};
template <>
struct CodesOfSide<SideCode::kInt2> {
  using Type = Int2Codes;
};
template <>
struct CodesOfSide<SideCode::kE4M3> {
  using Type = E4M3Codes;
};
template <>
struct CodesOfSide<SideCode::kLevels4> {
  using Type = LevelCodes;
};

// The codes of a page.
template <typename KCodes, typename VCodes = KCodes>
struct Sides {
  using K = KCodes;
  using V = VCodes;
  static constexpr PageCode kPage = {K::kCode, V::kCode};
};
template <PageCode kPage>
using CodesOf = Sides<typename CodesOfSide<kPage.k>::Type, typename CodesOfSide<kPage.v>::Type>;

// Calls use(fragment, a) for the fragments of a lane's stream in order, a as Unpack leaves it.
template <int kDim, typename Codes, typename Use>
KVANT_DEVICE void ForEachFragment([[maybe_unused]] const Codes& codes, const unsigned char* side,
                                  int lane, const Use& use) {
  constexpr int kLaneBytes = LaneBytes(Codes::kCode, kDim), kVectors = kLaneBytes / 16;
  constexpr int kPerVector = 16 / BitsOf(Codes::kCode);
  KVANT_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const Words4 words = Load16(side + StreamPlace(kLaneBytes, 0, v * 16) + lane * 16);
    KVANT_UNROLL
    for (int i = 0; i < kPerVector; ++i) {
      uint32_t a[4];
      codes.Unpack(words.word, i, a);
      use(v * kPerVector + i, a);
    }
  }
  if constexpr (kLaneBytes % 16 == 8) {
    uint32_t words[2];
    Load8(side + StreamPlace(kLaneBytes, 0, kVectors * 16) + lane * 8, words);
    KVANT_UNROLL
    for (int i = 0; i < kPerVector / 2; ++i) {
      uint32_t a[4];
      codes.Unpack(words, i, a);
      use(kVectors * kPerVector + i, a);
    }
  }
}

// The words of quarter t of a row of metadata (device_page.h, PairWord).
template <int kCount>
KVANT_DEVICE void LoadWords(const unsigned char* row, int t, uint32_t (&out)[kCount]) {
  constexpr int kVector = VectorWords(kCount / 2);
  const unsigned char* at = row + t * kVector * 4;
  if constexpr (kVector == 4) {
    KVANT_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const Words4 words = Load16(at + i * 16);
      KVANT_UNROLL
      for (int j = 0; j < 4; ++j) out[i + j] = words.word[j];
    }
  } else {
    KVANT_UNROLL
    for (int i = 0; i < kCount; i += 2) {
      uint32_t words[2];
      Load8(at + i * 16, words);
      out[i] = words[0];
      out[i + 1] = words[1];
    }
  }
}

}  // namespace kvant::cuda
