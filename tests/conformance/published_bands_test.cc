// What formats do to one head of attention over made-up keys and values, beside the figures that an
// independent simulation gave: 1,024 tokens, 128 channels, medians over many draws. It ranks
// formats and finds blunders; models do far better, because their exact output is no average near
// zero.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "made_heads.h"

namespace kvant {
namespace {

using testing::Loss;
using testing::World;

constexpr int kDraws = 16;

Loss Measure(World world, const std::string& k_spec, const std::string& v_spec) {
  const Format k = ParseFormat(k_spec, Side::kK).value(), v = ParseFormat(v_spec, Side::kV).value();
  return testing::MeasureLoss(world, kDraws, [&](Side side, const std::vector<float>& values) {
    return testing::Decoded(side == Side::kK ? k : v, side, values);
  });
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
