// Heads of attention over made-up keys and values, and what a codec does to them: for the tests and
// for lab/. 1,024 tokens, 128 channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/rotation.h"
#include "kvant/codec.h"

namespace kvant::testing {

inline constexpr int kTokens = 1024, kDim = 128;

enum class World {
  kFlat,    // a normal query: the largest probability is about .015
  kPeaked,  // .45 of a key and .3 of a normal vector: about .125
  kHot,     // peaked; channels 5 and 69 of K shifted by 8 and -6, channel 17 six times as large
  kBias,    // peaked; 5 N(0, 1) added to every fourth channel of K
};

struct Head {
  std::vector<float> q, k, v;
};

inline Head MakeHead(World world, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Head head{std::vector<float>(kDim), std::vector<float>(kTokens * kDim), {}};
  head.v = head.k;
  for (float& x : head.k) x = normal(random);
  for (float& x : head.v) x = normal(random);
  for (float& x : head.q) x = normal(random);
  if (world != World::kFlat) {
    const size_t chosen = random() % kTokens;
    for (size_t c = 0; c < kDim; ++c) {
      head.q[c] = .45f * head.k[chosen * kDim + c] + .3f * head.q[c];
    }
  }
  for (size_t c = 0; c < kDim; ++c) {
    float shift = 0, factor = 1;
    if (world == World::kHot) {
      shift = c == 5 ? 8.0f : c == 69 ? -6.0f : 0.0f;
      factor = c == 17 ? 6.0f : 1.0f;
    } else if (world == World::kBias && c % 4 == 0) {
      shift = 5 * normal(random);
    }
    for (size_t t = 0; t < kTokens; ++t) {
      head.k[t * kDim + c] = head.k[t * kDim + c] * factor + shift;
    }
  }
  return head;
}

// Values as a format gives them back, rotated where it wants that; empty where it refuses.
inline std::vector<float> Decoded(const Format& format, Side side, std::vector<float> values) {
  std::vector<float> signs(kDim);
  for (int c = 0; c < kDim; ++c) signs[static_cast<size_t>(c)] = RotationSign(c);
  const auto each_row = [&](auto turn) {
    for (size_t at = 0; at < values.size(); at += kDim) {
      turn(Rotation{.multiplier = signs.data(), .hadamard = true}, kDim, values.data() + at);
    }
  };
  if (format.is_normed()) each_row(Rotate);
  std::vector<std::byte> bytes(
      static_cast<size_t>(EncodedArrayBytes(format, side, kTokens, kDim).value()));
  const Status encoded = EncodeArray(format, side, values, kTokens, kDim, bytes);
  const Status decoded = DecodeArray(format, side, bytes, kTokens, kDim, values);
  if (!encoded.ok() || !decoded.ok()) values.clear();
  if (format.is_normed()) each_row(RotateBack);
  return values;
}

struct Attended {
  std::vector<double> p, out;
};
inline Attended Attend(const std::vector<float>& q, const std::vector<float>& k,
                       const std::vector<float>& v) {
  Attended a{std::vector<double>(kTokens), std::vector<double>(kDim)};
  double sum = 0;
  for (size_t t = 0; t < kTokens; ++t) {
    double score = 0;
    for (size_t c = 0; c < kDim; ++c) score += static_cast<double>(q[c]) * k[t * kDim + c];
    sum += a.p[t] = std::exp(score / std::sqrt(double{kDim}));
  }
  for (size_t t = 0; t < kTokens; ++t) {
    a.p[t] /= sum;
    for (size_t c = 0; c < kDim; ++c) a.out[c] += a.p[t] * v[t * kDim + c];
  }
  return a;
}

inline double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

// Medians of the error of the output relative to its length, and of KL(exact || coded).
struct Loss {
  double output = 0, kl = 0;
};
// decode(side, values) gives what a codec makes of [kTokens][kDim] values.
template <typename Decode>
Loss MeasureLoss(World world, int draws, const Decode& decode) {
  std::vector<double> outputs, kls;
  for (uint32_t draw = 1; draw <= static_cast<uint32_t>(draws); ++draw) {
    const Head head = MakeHead(world, draw);
    const Attended exact = Attend(head.q, head.k, head.v);
    const Attended coded = Attend(head.q, decode(Side::kK, head.k), decode(Side::kV, head.v));
    double off = 0, length = 0, kl = 0;
    for (size_t c = 0; c < kDim; ++c) {
      off += std::pow(coded.out[c] - exact.out[c], 2);
      length += std::pow(exact.out[c], 2);
    }
    for (size_t t = 0; t < kTokens; ++t) kl += exact.p[t] * std::log(exact.p[t] / coded.p[t]);
    outputs.push_back(std::sqrt(off / length));
    kls.push_back(kl);
  }
  return {MedianOf(outputs), MedianOf(kls)};
}

}  // namespace kvant::testing
