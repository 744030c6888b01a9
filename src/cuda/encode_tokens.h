// Sides whose tokens have one scale each, from f16: E4M3, and the codebook of 16 levels. The bytes
// are those of the CPU's codecs (src/codec/small_float.cc, normed_codec-inl.h), bit for bit. A sum
// of floats depends on its order, so one thread takes a token whole and adds in theirs: channel by
// channel for K, for V in 16 parts by channel that are joined by halves.
#pragma once

#include "cuda/arguments.h"
#include "cuda/device_page.h"
#include "cuda/encode_step.h"
#include "cuda/isa.h"

namespace kvant::cuda {

inline constexpr int kTileChannels = 16;

// To the nearest number of E4M3, half to even; what is larger becomes the largest, 448
// (src/base/float8.h).
KVANT_DEVICE uint32_t E4M3Of(float value) {
  constexpr uint32_t kShift = 20, kBias = 120u << 3, kLast = 0x7e;
  constexpr uint32_t kFirstNormal = 121u << 23;
  constexpr float kUnit = 0x1p14f;  // whose last bit is that of the subnormal numbers
  const uint32_t bits = BitsOfFloat(value), magnitude = bits & 0x7fffffffu;
  const uint32_t odd = magnitude >> kShift & 1u;
  const uint32_t rounded = ((magnitude + 0x7ffffu + odd) >> kShift) - kBias;
  const uint32_t normal = rounded > kLast ? kLast : rounded;
  const uint32_t small = BitsOfFloat(FloatOfBits(magnitude) + kUnit) - BitsOfFloat(kUnit);
  return (magnitude < kFirstNormal ? small : normal) | bits >> 31 << 7;
}

// A table of 16 ascending levels that is symmetric.
struct LevelSearch {
  static constexpr int kHalf = 8;
  float level[kHalf];   // of the upper half
  float middle[kHalf];  // between a level and the one before it, from 1 on
  float found;          // the level of the last code

  // levels: [16] halves of level / 128 (page_permutation.h, DeviceLevelsOf).
  KVANT_DEVICE explicit LevelSearch(const uint16_t* levels) : found(0) {
    KVANT_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      level[i] = LowHalf(Load2(levels + kHalf + i)) * 128.0f;
      middle[i] = i == 0 ? 0.0f : 0.5f * (level[i - 1] + level[i]);
    }
  }
  // The code of the nearest level.
  KVANT_DEVICE uint32_t CodeOf(float z) {
    const bool negative = z < 0.0f;
    const float magnitude = negative ? -z : z;
    uint32_t index = 0;
    float nearest = level[0];
    KVANT_UNROLL
    for (int i = 1; i < kHalf; ++i) {
      if (!(magnitude > middle[i])) continue;
      index = static_cast<uint32_t>(i);
      nearest = level[i];
    }
    found = negative ? -nearest : nearest;
    return negative ? kHalf - 1 - index : kHalf + index;
  }
};

// A sum over the channels of a token in the order of the CPU's codec.
template <bool kIsK>
struct TokenSum {
  static constexpr int kParts = kIsK ? 1 : kTileChannels;
  float parts[kParts];

  KVANT_DEVICE TokenSum() {
    KVANT_UNROLL
    for (int i = 0; i < kParts; ++i) parts[i] = 0;
  }
  KVANT_DEVICE void Add(int channel_in_tile, float x) {
    float& part = parts[kIsK ? 0 : channel_in_tile];
    part = part + x;
  }
  KVANT_DEVICE float Total() {
    KVANT_UNROLL
    for (int halves = 2; halves <= kParts; halves *= 2) {
      const int half = kParts / halves;
      KVANT_UNROLL
      for (int i = 0; i < kParts / 2; ++i) {
        if (i < half) parts[i] = parts[i] + parts[i + half];
      }
    }
    return parts[0];
  }
};

// One thread's token.
template <SideCode kCode, int kDim, bool kIsK>
struct TokenEncoder {
  static_assert(IsByToken(kCode));
  static constexpr int kTiles = kDim / kTileChannels;

  const EncodeArguments& args;
  const unsigned char* source;
  unsigned char *payload, *scales;
  int token;
  bool is_sink;  // scale and codes 0

  KVANT_DEVICE static int ByteOf(SideCode code, int token, int channel) {
    return BitOf(kIsK, code, kDim, token, channel) / 8;
  }

  // Channels 16 j ...
  KVANT_DEVICE void Load(int j, float (&x)[kTileChannels]) const {
    const unsigned char* at = source + ByteOf(SideCode::kF16, token, j * kTileChannels);
    KVANT_UNROLL
    for (int i = 0; i < kTileChannels; ++i) {
      x[i] = LowHalf(Load2(at + ByteOf(SideCode::kF16, 0, i)));
    }
  }
  // A pair of codes lies in bytes of its own: of K two channels' of a token, of V two tokens',
  // whose threads are neighbours.
  KVANT_DEVICE void Store(int j, const uint32_t (&codes)[kTileChannels]) const {
    const int first = kIsK ? token : token / 2 * 2;
    unsigned char* at = payload + ByteOf(kCode, first, j * kTileChannels);
    KVANT_UNROLL
    for (int i = 0; i < kTileChannels; ++i) {
      if constexpr (kIsK) {
        if (i % 2 == 0) StorePair(at + ByteOf(kCode, 0, i), codes[i], codes[i + 1]);
      } else {
        const uint32_t next = ShuffleXor(codes[i], 1);
        if (token % 2 == 0) StorePair(at + ByteOf(kCode, 0, i), codes[i], next);
      }
    }
  }
  KVANT_DEVICE static void StorePair(unsigned char* at, uint32_t low, uint32_t high) {
    const uint32_t pair = low | high << BitsOf(kCode);
    if constexpr (BitsOf(kCode) == 8) {
      *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(pair);
    } else {
      *at = static_cast<unsigned char>(pair);
    }
  }
  KVANT_DEVICE void StoreScale(float scale) const {
    const int order = kIsK ? TokenOrder(token) : PairOrder(kTokenBlocks, token);
    *reinterpret_cast<uint16_t*>(scales + order * 2) =
        static_cast<uint16_t>(PackHalves(scale, 0.0f));
  }

  KVANT_DEVICE void Encode() const {
    if constexpr (kCode == SideCode::kE4M3) {
      EncodeE4M3();
    } else {
      EncodeLevels();
    }
  }

  KVANT_DEVICE void EncodeE4M3() const {
    float x[kTileChannels], largest = 0;
    uint32_t codes[kTileChannels];
    KVANT_LOOP
    for (int j = 0; j < kTiles; ++j) {
      Load(j, x);
      KVANT_UNROLL
      for (int i = 0; i < kTileChannels; ++i) largest = Max(largest, Max(x[i], -x[i]));
    }
    const bool is_zero = is_sink || largest == 0.0f;
    const float scale = is_zero ? 0.0f : LowHalf(StepHalf(Divide(largest, 448.0f)));
    StoreScale(scale * 256.0f);
    KVANT_LOOP
    for (int j = 0; j < kTiles; ++j) {
      Load(j, x);
      KVANT_UNROLL
      for (int i = 0; i < kTileChannels; ++i) {
        codes[i] = is_zero ? 0u : E4M3Of(Divide(x[i], scale));
      }
      Store(j, codes);
    }
  }

  // The vector is brought to the length that the levels have; what is stored makes K as long as it
  // was, and gives V's vector its product with itself (src/codec/normed_plan.h).
  KVANT_DEVICE void EncodeLevels() const {
    float x[kTileChannels];
    uint32_t codes[kTileChannels];
    TokenSum<kIsK> squares, products;
    KVANT_LOOP
    for (int j = 0; j < kTiles; ++j) {
      Load(j, x);
      KVANT_UNROLL
      for (int i = 0; i < kTileChannels; ++i) squares.Add(i, x[i] * x[i]);
    }
    const float unit = args.level_sigma * SquareRoot(static_cast<float>(kDim));
    const float length = is_sink ? 0.0f : SquareRoot(squares.Total());
    const float factor = length > 0.0f ? Divide(unit, length) : 0.0f;
    LevelSearch search(args.levels);
    KVANT_LOOP
    for (int j = 0; j < kTiles; ++j) {
      Load(j, x);
      KVANT_UNROLL
      for (int i = 0; i < kTileChannels; ++i) {
        const float z = x[i] * factor;
        const uint32_t code = search.CodeOf(z);
        codes[i] = is_sink ? 0u : code;
        products.Add(i, search.found * (kIsK ? search.found : z));
      }
      Store(j, codes);
    }
    const float product = products.Total();
    const float wanted = kIsK ? length * args.level_sigma : length * (args.level_sigma * unit);
    const float norm = Divide(wanted, kIsK ? SquareRoot(product) : product);
    StoreScale(length > 0.0f && product > 0.0f ? norm : 0.0f);
  }
};

}  // namespace kvant::cuda
