// Two published ways to spend bits on a tile of 64 tokens, beside this library's formats at no more
// bits, on made-up heads (tests/conformance/made_heads.h). Not part of the build:
//   g++ -std=c++20 -O2 -DNDEBUG -Iinclude -Isrc -Itests/conformance lab/tile_scales.cc
//       build/release/src/libkvant.a -pthread -o tile_scales
//
// KVarN (arXiv 2606.03458): rotated; a scale a channel and a scale a token, found in turns from
// standard deviations, then a scale and a zero along K's channels or V's tokens. The tile is
// divided by its rms first, since the published clamp of the scales makes the result depend on its
// size.
// Kitty (arXiv 2511.18643): K unrotated, 2 bits a channel, a tenth of the channels (those of the
// largest mean magnitude) in 4; V in 2 bits a token.
#include <cstdio>

#include "made_heads.h"

namespace {

using kvant::Side;
using kvant::testing::kDim;
using kvant::testing::kTokens;
using kvant::testing::Loss;
using kvant::testing::World;

constexpr size_t kTile = 64, kWidth = kDim;
constexpr int kDraws = 16;

struct Axis {
  size_t groups, length, group_stride, stride;  // of the values of a tile
};
constexpr Axis kChannels{kWidth, kTile, 1, kWidth}, kRows{kTile, kWidth, kWidth, 1};

// Minimum and step of each group, evenly spaced codes.
void RoundGroups(const Axis& axis, const std::vector<int>& bits, float* tile) {
  for (size_t g = 0; g < axis.groups; ++g) {
    float* x = tile + g * axis.group_stride;
    float min = x[0], max = x[0];
    for (size_t i = 0; i < axis.length; ++i) {
      min = std::min(min, x[i * axis.stride]);
      max = std::max(max, x[i * axis.stride]);
    }
    const float step = (max - min) / static_cast<float>((1 << bits[g]) - 1);
    if (step == 0) continue;
    for (size_t i = 0; i < axis.length; ++i) {
      x[i * axis.stride] = min + step * std::rint((x[i * axis.stride] - min) / step);
    }
  }
}

// Divides each group by its standard deviation, bounded as published; gathers logs of scales.
void Balance(const Axis& axis, float* tile, std::vector<float>* logs) {
  for (size_t g = 0; g < axis.groups; ++g) {
    float* x = tile + g * axis.group_stride;
    double sum = 0, square = 0;
    for (size_t i = 0; i < axis.length; ++i) sum += x[i * axis.stride];
    const double mean = sum / static_cast<double>(axis.length);
    for (size_t i = 0; i < axis.length; ++i) square += std::pow(x[i * axis.stride] - mean, 2);
    const double deviation =
        std::clamp(std::sqrt(square / static_cast<double>(axis.length)), 1e-3, 1e3);
    const float log = std::clamp((*logs)[g] + static_cast<float>(std::log(deviation)), -.3f, 10.f);
    const float factor = std::exp((*logs)[g] - log);
    (*logs)[g] = log;
    for (size_t i = 0; i < axis.length; ++i) x[i * axis.stride] *= factor;
  }
}

void KvarnTile(Side side, int bits, float* tile) {
  double square = 0;
  for (size_t i = 0; i < kTile * kWidth; ++i) square += tile[i] * tile[i];
  const float rms = static_cast<float>(std::sqrt(square / (kTile * kWidth)));
  for (size_t i = 0; i < kTile * kWidth; ++i) tile[i] /= rms;
  std::vector<float> channels(kWidth), rows(kTile);
  for (int iteration = 0; iteration < 4; ++iteration) {
    Balance(kChannels, tile, &channels);
    Balance(kRows, tile, &rows);
  }
  const Axis& axis = side == Side::kK ? kChannels : kRows;
  RoundGroups(axis, std::vector<int>(axis.groups, bits), tile);
  for (size_t t = 0; t < kTile; ++t) {
    for (size_t c = 0; c < kWidth; ++c) {
      tile[t * kWidth + c] *= rms * std::exp(channels[c] + rows[t]);
    }
  }
}

void KittyTile(Side side, float* tile) {
  if (side == Side::kV) return RoundGroups(kRows, std::vector<int>(kTile, 2), tile);
  std::vector<std::pair<float, size_t>> order;
  for (size_t c = 0; c < kWidth; ++c) {
    float sum = 0;
    for (size_t t = 0; t < kTile; ++t) sum += std::fabs(tile[t * kWidth + c]);
    order.emplace_back(-sum, c);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> bits(kWidth, 2);
  for (size_t i = 0; i < kWidth / 10; ++i) bits[order[i].second] = 4;
  RoundGroups(kChannels, bits, tile);
}

template <typename Tile>
std::vector<float> InTiles(std::vector<float> values, bool rotated, const Tile& tile) {
  std::vector<float> signs;
  for (int c = 0; c < kDim; ++c) signs.push_back(kvant::RotationSign(c));
  for (size_t at = 0; rotated && at < values.size(); at += kWidth) {
    kvant::Rotate({.multiplier = signs.data(), .hadamard = true}, kDim, values.data() + at);
  }
  for (size_t at = 0; at < values.size(); at += kTile * kWidth) tile(values.data() + at);
  for (size_t at = 0; rotated && at < values.size(); at += kWidth) {
    kvant::RotateBack({.multiplier = signs.data(), .hadamard = true}, kDim, values.data() + at);
  }
  return values;
}

template <typename Decode>
void Print(const char* name, double bits, const Decode& decode) {
  std::printf("%-34s %.3f", name, bits);
  for (World world : {World::kFlat, World::kPeaked, World::kHot, World::kBias}) {
    const Loss loss = kvant::testing::MeasureLoss(world, kDraws, decode);
    std::printf("  %.3f %.4f", loss.output, loss.kl);
  }
  std::printf("\n");
}

void PrintFormats(const char* k_spec, const char* v_spec) {
  const kvant::Format k = kvant::ParseFormat(k_spec, Side::kK).value();
  const kvant::Format v = kvant::ParseFormat(v_spec, Side::kV).value();
  const std::string name = std::string(k_spec) + " / " + v_spec;
  Print(name.c_str(), (k.EffectiveBits(kDim) + v.EffectiveBits(kDim)) / 2,
        [&](Side side, const std::vector<float>& values) {
          return kvant::testing::Decoded(side == Side::kK ? k : v, side, values);
        });
}

}  // namespace

int main() {
  std::printf("error of the output and KL: flat, peaked, hot channels, biased channels\n");
  for (const int k_bits : {4, 2}) {
    // Scale and zero along the codes' axis, a scale along the other: f16 each.
    const double k_extra = 32.0 / kTile + 16.0 / kDim, v_extra = 32.0 / kDim + 16.0 / kTile;
    Print(k_bits == 4 ? "KVarN K4 V2" : "KVarN K2 V2", (k_bits + 2 + k_extra + v_extra) / 2,
          [&](Side side, const std::vector<float>& values) {
            return InTiles(values, true, [&](float* tile) {
              KvarnTile(side, side == Side::kK ? k_bits : 2, tile);
            });
          });
  }
  Print("Kitty", (2 + 2 * .1 + 40.0 / kTile + 2 + 32.0 / kDim) / 2,
        [&](Side side, const std::vector<float>& values) {
          return InTiles(values, false, [&](float* tile) { KittyTile(side, tile); });
        });
  PrintFormats("tq4:mean:n8", "tq2:n8");
  PrintFormats("tq3:mean:n8", "tq2:n8");
  PrintFormats("tq2:mean:n8", "tq2:n8");
  PrintFormats("tc2:mean:n8", "tc2:n8");
  PrintFormats("tq4:mean:n8", "tq1:n8");
  PrintFormats("tq3:mean:n8", "tq1:n8");
  PrintFormats("tq2:mean:n8", "tq1:n8");
  PrintFormats("nest4:mean:n8", "nest4:n8");
  PrintFormats("nest3:mean:n8", "nest3:n8");
  PrintFormats("nest2:mean:n8", "nest2:n8");
  PrintFormats("tq4:mean:n8", "tq4:n8");
  PrintFormats("tq3:mean:n8", "tq3:n8");
}
