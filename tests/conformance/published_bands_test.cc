// What formats do to one head of attention over made-up keys and values, beside the figures that an
// independent simulation gave: 1,024 tokens, 128 channels, medians over many draws. It ranks
// formats and finds blunders; models do far better, because their exact output is no average near
// zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/rotation.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

constexpr int kTokens = 1024, kDim = 128, kDraws = 16;

enum class World {
  kFlat,    // a normal query: the largest probability is about .015
  kPeaked,  // .45 of a key and .3 of a normal vector: about .125
  kHot,     // peaked; channels 5 and 69 of K shifted by 8 and -6, channel 17 six times as large
  kBias,    // peaked; 5 N(0, 1) added to every fourth channel of K
};

struct Head {
  std::vector<float> q, k, v;
};

Head MakeHead(World world, uint32_t seed) {
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

std::vector<float> Decoded(const Format& format, Side side, std::vector<float> values) {
  std::vector<float> signs(kDim);
  for (int c = 0; c < kDim; ++c) signs[static_cast<size_t>(c)] = RotationSign(c);
  const auto each_row = [&](auto turn) {
    for (size_t at = 0; at < values.size(); at += kDim) {
      turn(signs.data(), kDim, values.data() + at);
    }
  };
  if (format.is_normed()) each_row(Rotate);
  std::vector<std::byte> bytes(
      static_cast<size_t>(EncodedArrayBytes(format, side, kTokens, kDim).value()));
  EXPECT_TRUE(EncodeArray(format, side, values, kTokens, kDim, bytes).ok());
  EXPECT_TRUE(DecodeArray(format, side, bytes, kTokens, kDim, values).ok());
  if (format.is_normed()) each_row(RotateBack);
  return values;
}

struct Attended {
  std::vector<double> p, out;
};
Attended Attend(const std::vector<float>& q, const std::vector<float>& k,
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

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

// Medians of the error of the output relative to its length, and of KL(exact || coded).
struct Loss {
  double output = 0, kl = 0;
};
Loss Measure(World world, const std::string& k_spec, const std::string& v_spec) {
  const Format k = ParseFormat(k_spec, Side::kK).value(), v = ParseFormat(v_spec, Side::kV).value();
  std::vector<double> outputs, kls;
  for (uint32_t draw = 1; draw <= kDraws; ++draw) {
    const Head head = MakeHead(world, draw);
    const Attended exact = Attend(head.q, head.k, head.v);
    const Attended coded =
        Attend(head.q, Decoded(k, Side::kK, head.k), Decoded(v, Side::kV, head.v));
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

struct Row {
  const char *k, *v;
  Loss flat, peaked;
};
constexpr Row kRows[] = {
    {"int4:channel:g32:min", "int4:token:g128:min", {.129, .0031}, {.102, .0008}},
    {"int4:channel:g128:min", "int4:token:g128:min", {.146, .0051}, {.107, .0013}},
    {"int4:token:g128:min", "int4:token:g128:min", {.147, .0051}, {.108, .0013}},
    {"int2:channel:g32:min", "int2:token:g32:min", {.597, .078}, {.413, .020}},
    {"int4:channel:g32:min", "int2:token:g32:min", {.407, .0031}, {.393, .0008}},
    {"int2:channel:g32:min", "int4:token:g128:min", {.412, .078}, {.153, .020}},
    {"tq4", "tq4", {.135, .0045}, {.096, .0012}},
    {"tq3", "tq3", {.258, .017}, {.197, .0045}},
    {"tq2", "tq2", {.493, .060}, {.373, .019}},
    {"tq4:mean", "tq4", {.129, .0045}, {.101, .0012}},
    {"tc3:mean", "tc3", {.221, .0127}, {.171, .0037}},
    {"tcx4", "tcx4", {.110, .0031}, {.081, .0008}},
    {"tcx2:mean", "tcx2", {.404, .0411}, {.324, .0130}},
    {"nvfp4_4over6", "nvfp4_4over6", {.121, .0037}, {.097, .0011}},
};

// The figures are medians of 32 or 48 draws whose largest errors lie 25 to 60 % above the median,
// 2.3 sigma: one draw spreads by 10 to 25 %, a median of n draws by 1.25 / sqrt(n) of that. Ours of
// 16 is off by 3 to 8 %, theirs by 2 to 5 %; both together by 6 % as a rule, of which the bound
// allows three. A KL is the square of an error, so twice that.
void ExpectNear(const Loss& got, const Loss& want, const std::string& what) {
  EXPECT_NEAR(got.output, want.output, .18 * want.output) << what;
  EXPECT_NEAR(got.kl, want.kl, .36 * want.kl + 5e-5) << what;  // printed to .0001
}

TEST(PublishedBands, FlatAndPeakedHeads) {
  for (const Row& row : kRows) {
    const std::string what = std::string(row.k) + " / " + row.v;
    ExpectNear(Measure(World::kFlat, row.k, row.v), row.flat, what + ", flat");
    ExpectNear(Measure(World::kPeaked, row.k, row.v), row.peaked, what + ", peaked");
  }
}

TEST(PublishedBands, EightBitsStayBelowTwoPercent) {
  const Loss flat = Measure(World::kFlat, "int8:channel:g32:min", "int8:token:g128:min");
  EXPECT_NEAR(flat.output, .0075, .18 * .0075);
  EXPECT_LT(flat.kl, 3e-5);
}

// Scales of tokens lose what hot channels ask for, the page mean takes a bias off.
TEST(PublishedBands, HotAndBiasedChannelsOfKeys) {
  const Loss channel = Measure(World::kHot, "int4:channel:g128:min", "int4:token:g128:min");
  const Loss token = Measure(World::kHot, "int4:token:g128:min", "int4:token:g128:min");
  EXPECT_NEAR(channel.output, .115, .18 * .115);
  EXPECT_NEAR(token.output, .143, .18 * .143);
  EXPECT_GT(token.kl, 4 * channel.kl);  // 3.5 times the error of a score, squared
  const Loss without = Measure(World::kBias, "tq4", "tq4");
  const Loss with = Measure(World::kBias, "tq4:mean", "tq4");
  EXPECT_NEAR(without.kl, .0072, .5 * .0072);  // biases are drawn, too
  EXPECT_NEAR(with.kl, .0011, .36 * .0011 + 5e-5);
}

}  // namespace
}  // namespace kvant
