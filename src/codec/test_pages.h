// Pages for the codec's tests: open sides filled from a function, their padding poisoned with NaN.
#pragma once

#include <cstring>
#include <vector>

#include "codec/codec.h"

namespace kvant {

inline Format UniformFormat(int bits, Axis axis, int group, Offset offset) {
  return {Levels::kUniform, FloatType::kF16, bits, axis, group, offset};
}

inline SideLayout MakeSideLayout(const Format& format, Side side, int head_dim, int tokens) {
  const PageLayout page = MakePageLayout(format, format, head_dim, tokens);
  return side == Side::kK ? page.k : page.v;
}

// An open f16 side. value(token, channel) is rounded to f16.
struct OpenSide {
  SideLayout layout;
  std::vector<std::byte> bytes;

  template <typename Value>
  OpenSide(Side side, int head_dim, int tokens, const Value& value)
      : layout(MakeSideLayout(kFormatF16, side, head_dim, tokens)),
        bytes(static_cast<size_t>(layout.bytes), std::byte{0xff}) {
    for (int t = 0; t < tokens; ++t) {
      for (int c = 0; c < head_dim; ++c) {
        StoreFloatValue(layout, bytes.data(), t, c, static_cast<float>(value(t, c)));
      }
    }
  }
  float At(int token, int channel) const {
    return LoadFloatValue(layout, bytes.data(), token, channel);
  }
};

// A coded side and what it decodes to, by the reference or at the active level.
struct CodedSide {
  SideLayout layout;
  std::vector<std::byte> bytes;
  std::vector<float> decoded;  // [tokens][head_dim]

  float At(int token, int channel) const {
    return decoded[static_cast<size_t>(token * layout.head_dim + channel)];
  }
};

// fitted: the levels of a format that has none of its own.
inline CodedSide CodeByReference(const OpenSide& open, const Format& format, int first_token,
                                 const LevelTable* fitted = nullptr) {
  CodedSide coded;
  coded.layout = MakeSideLayout(format, open.layout.side, open.layout.head_dim, open.layout.tokens);
  coded.layout.fitted = fitted;
  coded.bytes.assign(static_cast<size_t>(coded.layout.bytes), std::byte{0xff});
  coded.decoded.resize(static_cast<size_t>(open.layout.tokens * open.layout.head_dim));
  EncodeSideReference(open.layout, open.bytes.data(), coded.layout, first_token,
                      coded.bytes.data());
  DecodeSideReference(coded.layout, coded.bytes.data(), coded.decoded.data(), open.layout.head_dim);
  return coded;
}

// 64 well-mixed bits of a counter (the finaliser of splitmix64): the same on every host.
inline uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) with 24 bits.
inline float MixUnit(uint64_t x) { return static_cast<float>(MixBits(x) >> 40) / 16777216.0f; }

}  // namespace kvant
