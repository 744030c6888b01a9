// The normed formats: the error that their tables promise, norms, means, the best path, and the
// same bytes at every level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/code_place.h"
#include "codec/codec.h"
#include "codec/fitted_table.h"
#include "codec/level_tables.h"
#include "codec/levels_for_test.h"
#include "codec/test_pages.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr const char* kSpecs[] = {"tq2", "tq3", "tq4", "tc2", "tc3", "tcx2", "tcx3", "tcx4"};
// And those that are for V only or have tests of their own (nested_test.cc).
constexpr const char* kAllSpecs[] = {"tq1",  "tq2",  "tq3",  "tq4",   "tc2",   "tc3",
                                     "tcx2", "tcx3", "tcx4", "nest2", "nest3", "nest4"};
bool IsPossible(const std::string& spec, Side side) { return side == Side::kV || spec != "tq1"; }
constexpr int kHeadDims[] = {4, 64, 72, 80, 100, 128, 256, 576};

Format Parse(const std::string& spec, Side side) { return ParseFormat(spec, side).value(); }

std::vector<float> Normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

OpenSide OpenNormal(Side side, int head_dim, uint32_t seed, float offset = 0) {
  const auto values = Normal(static_cast<size_t>(64 * head_dim), seed);
  return OpenSide(side, head_dim, 64, [&](int t, int c) {
    return values[static_cast<size_t>(t * head_dim + c)] + (c % 7 == 3 ? offset : 0.0f);
  });
}

// Mean of |x - x'|^2 / |x|^2 over many pages.
double RelativeError(const std::string& spec, Side side, int head_dim) {
  double error = 0, square = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const OpenSide open = OpenNormal(side, head_dim, seed);
    const CodedSide coded = CodeByReference(open, Parse(spec, side), 0);
    for (int t = 0; t < 64; ++t) {
      for (int c = 0; c < head_dim; ++c) {
        const double x = open.At(t, c), e = x - coded.At(t, c);
        error += e * e;
        square += x * x;
      }
    }
  }
  return error / square;
}

// A decoded vector at the angle that a table's mean square error on N(0, 1) makes, relative squared
// error. Keys are as long as the original, 2 - 2 sqrt(1 - mse); values reach as far along it,
// mse / (1 - mse).
double ErrorAtNorm(Side side, double mse) {
  return side == Side::kK ? 2 - 2 * std::sqrt(1 - mse) : mse / (1 - mse);
}

// Either norm rule costs a little where the levels alone would be shorter: 3 and 13 % at 2 bits.
// Chains of 64 elements end in zeros: 2 % more.
TEST(NormedCodec, ErrorIsWhatTheTablePromises) {
  constexpr double kPromised[] = {.1175, .0345, .0095, .0922, .0276, .0861, .0247, .0065};
  for (size_t i = 0; i < std::size(kSpecs); ++i) {
    for (Side side : {Side::kK, Side::kV}) {
      const double want = ErrorAtNorm(side, kPromised[i]);
      const double got = RelativeError(kSpecs[i], side, 128);
      EXPECT_NEAR(got, want, 0.045 * want) << kSpecs[i];
    }
  }
  const double sign = ErrorAtNorm(Side::kV, .36338);
  EXPECT_NEAR(RelativeError("tq1", Side::kV, 128), sign, .02 * sign);
}

// A trellis that lets every state emit every level constrains nothing and equals scalar codes.
TEST(NormedCodec, TrellisBeatsTheNearestLevelByTwentyPercent) {
  for (const char* bits : {"2", "3"}) {
    const double nearest = RelativeError(std::string("tq") + bits, Side::kK, 64);
    EXPECT_LT(RelativeError(std::string("tc") + bits, Side::kK, 64), 0.83 * nearest) << bits;
    EXPECT_LT(RelativeError(std::string("tcx") + bits, Side::kK, 64), 0.78 * nearest) << bits;
  }
  EXPECT_LT(RelativeError("tc2", Side::kV, 64), 0.83 * RelativeError("tq2", Side::kV, 64));
}

TEST(NormedCodec, DecodedKeysKeepTheirLengthAndValuesTheirReach) {
  for (const char* spec : kSpecs) {
    for (Side side : {Side::kK, Side::kV}) {
      const OpenSide open = OpenNormal(side, 72, 7);
      const CodedSide coded = CodeByReference(open, Parse(spec, side), 0);
      for (int t = 0; t < 64; ++t) {
        double square = 0, decoded_square = 0, product = 0;
        for (int c = 0; c < 72; ++c) {
          square += std::pow(open.At(t, c), 2);
          decoded_square += std::pow(coded.At(t, c), 2);
          product += static_cast<double>(open.At(t, c)) * coded.At(t, c);
        }
        const double kept =
            side == Side::kK ? std::sqrt(decoded_square / square) : product / square;
        EXPECT_NEAR(kept, 1.0, 6e-4) << spec;  // f16 norms: 2^-11, and rounding
      }
    }
  }
}

// x of a page plus the same large vector for all tokens: the mean takes it off.
TEST(NormedCodec, PageMeanTakesOffsetsOff) {
  const auto error = [](const char* spec, float offset) {
    const OpenSide open = OpenNormal(Side::kK, 64, 3, offset);
    const CodedSide coded = CodeByReference(open, Parse(spec, Side::kK), 4);
    double sum = 0;
    for (int t = 4; t < 64; ++t) {
      for (int c = 0; c < 64; ++c) sum += std::pow(open.At(t, c) - coded.At(t, c), 2);
    }
    return sum / (60 * 64);
  };
  EXPECT_LT(error("tq4:mean:n8", 0), 0.0105);
  // f16 rounds values near 200 to steps of .125 (error 1e-3), the mean to 200 / 254 / sqrt(3).
  EXPECT_LT(error("tq4:mean:n8", 200), 0.02);
  EXPECT_GT(error("tq4", 200), 1.0);
}

TEST(NormedCodec, SinksStayOutAndAreStoredAsNothing) {
  for (const char* spec : {"tq4:mean:n8", "tcx2:mean", "tc3:n8"}) {
    const auto make = [&](float sink) {
      const auto values = Normal(64 * 64, 5);
      return OpenSide(Side::kK, 64, 64, [&](int t, int c) {
        return t < 5 ? sink : values[static_cast<size_t>(t * 64 + c)];
      });
    };
    const Format format = Parse(spec, Side::kK);
    EXPECT_EQ(CodeByReference(make(1.0f), format, 5).bytes,
              CodeByReference(make(30000.0f), format, 5).bytes)
        << spec;
  }
}

TEST(NormedCodec, ZeroVectorsAndConstantPagesDecodeToThemselves) {
  for (const char* spec : kSpecs) {
    const OpenSide zero(Side::kV, 64, 64, [](int, int) { return 0.0f; });
    for (float x : CodeByReference(zero, Parse(spec, Side::kV), 0).decoded) ASSERT_EQ(x, 0.0f);
    const OpenSide constant(Side::kK, 64, 64, [](int, int) { return 2.5f; });
    const Format format = Parse(std::string(spec) + ":mean:n8", Side::kK);
    for (float x : CodeByReference(constant, format, 0).decoded) ASSERT_NEAR(x, 2.5f, 0.02f);
  }
}

// The windows of a column as the format defines them, and the squared error of any codes.
class Chain {
 public:
  Chain(const LevelTable& table, std::vector<float> z) : table_(table), z_(std::move(z)) {}

  double Error(const std::vector<int>& codes) const {
    double error = 0;
    for (size_t n = 0; n < z_.size(); ++n) {
      unsigned window = 0;
      for (size_t i = 0; i * static_cast<size_t>(table_.bits) < 8 && n + i < z_.size(); ++i) {
        window |= static_cast<unsigned>(codes[n + i]) << (i * static_cast<size_t>(table_.bits));
      }
      window &= (1u << table_.window_bits) - 1;
      error += std::pow(z_[n] - table_.levels[window], 2);
    }
    return error;
  }

 private:
  const LevelTable& table_;
  std::vector<float> z_;
};

// No change of one or two neighbouring codes makes a coded chain better.
TEST(NormedCodec, PathsCannotBeImprovedLocally) {
  for (const char* spec : {"tc2", "tc3", "tcx2", "tcx3", "tcx4"}) {
    const OpenSide open = OpenNormal(Side::kK, 64, 11);
    const CodedSide coded = CodeByReference(open, Parse(spec, Side::kK), 0);
    const LevelTable& table = LevelTableOf(coded.layout.format);
    for (int t = 0; t < 8; ++t) {
      double length = 0;
      for (int c = 0; c < 64; ++c) length += std::pow(open.At(t, c), 2);
      std::vector<float> z(64);
      std::vector<int> codes(64);
      for (int n = 0; n < 64; ++n) {  // byte by byte: element 16 * step + 4 * quad + byte
        const int channel = n % 16 / 4 * 16 + n % 4 * 4 + n / 16;
        z[static_cast<size_t>(n)] =
            open.At(t, channel) * table.sigma * 8.0f / static_cast<float>(std::sqrt(length));
        codes[static_cast<size_t>(n)] = LoadCode(coded.layout, coded.bytes.data(), t, channel);
      }
      const Chain chain(table, z);
      const double best = chain.Error(codes);
      for (size_t n = 0; n + 1 < 64; ++n) {
        for (int pair = 0; pair < 1 << (2 * table.bits); ++pair) {
          std::vector<int> other = codes;
          other[n] = pair & ((1 << table.bits) - 1);
          other[n + 1] = pair >> table.bits;
          ASSERT_GE(chain.Error(other), best * (1 - 1e-5)) << spec << " token " << t << " " << n;
        }
      }
    }
  }
}

// The example of the 8-value group: codes 0 1 0 1 0 0 1 1 read windows 4 1 4 1 0 4 5 1.
TEST(NormedCodec, TableOfTheWorkedExample) {
  const int8_t* levels = LevelTableOf(Parse("tc2", Side::kK)).levels;
  constexpr int kWindows[] = {4, 1, 4, 1, 0, 4, 5, 1},
                kLevels[] = {82, -7, 82, -7, -62, 82, 32, -7};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(levels[kWindows[i]], kLevels[i]);
}

// Channels in which every token's value comes back negated in another, over 30 binary orders: their
// means are what rounding leaves of the sums, so that another order of adding gives other bytes.
TEST(NormedCodec, EveryLevelAddsInTheSameOrder) {
  const Isa before = ActiveIsa();
  const Format format = Parse("tq4:mean", Side::kK);
  const OpenSide open(Side::kK, 64, 64, [](int t, int c) {
    const auto from = static_cast<uint64_t>((t < 32 ? t : (7 * t + 5) % 32) * 64 + c);
    const float x = std::ldexp(1 + MixUnit(from), static_cast<int>(MixBits(from) % 30) - 15);
    return t < 32 ? x : -x;
  });
  const CodedSide want = CodeByReference(open, format, 0);
  for (Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    std::vector<std::byte> got(want.bytes.size());
    EncodeSide(open.layout, open.bytes.data(), want.layout, 0, got.data());
    EXPECT_EQ(got, want.bytes) << IsaName(isa);
  }
  ASSERT_TRUE(SetActiveIsa(before).ok());
}

TEST(NormedCodec, FittedCodesNameTheNearestLevel) {
  for (const int bits : {2, 3, 4}) {
    const LevelTable& table = testing::TestLevels(bits);
    for (Side side : {Side::kK, Side::kV}) {
      const OpenSide open = OpenNormal(side, 72, 17);
      const Format format = Parse("fit" + std::to_string(bits), side);
      const CodedSide coded = CodeByReference(open, format, 0, &table);
      for (int t = 0; t < 64; ++t) {
        double square = 0;
        for (int c = 0; c < 72; ++c) square += std::pow(open.At(t, c), 2);
        for (int c = 0; c < 72; ++c) {
          const double z = open.At(t, c) * table.sigma * std::sqrt(72 / square);
          const auto distance = [&](int code) { return std::fabs(z - table.levels[code]); };
          const int code = LoadCode(coded.layout, coded.bytes.data(), t, c);
          for (int other = 0; other < 1 << bits; ++other) {
            // f32 sums of 72 squares move z by less than 1e-4 of its magnitude.
            EXPECT_LE(distance(code), distance(other) + 0.02) << bits << " bits, code " << code;
          }
        }
      }
    }
  }
}

// A fitted table with the constant one's levels is the constant one.
TEST(NormedCodec, FittedLevelsThatAreLloydMaxGiveItsBytes) {
  for (const int bits : {2, 3, 4}) {
    const std::string width = std::to_string(bits);
    const LevelTable& constant = LevelTableOf(Parse("tq" + width, Side::kK));
    const FittedTable same(
        {.sigma = constant.sigma, .levels = {constant.levels, constant.levels + (1 << bits)}});
    EXPECT_TRUE(same.table().symmetric);
    EXPECT_FALSE(testing::TestLevels(bits).symmetric);
    EXPECT_TRUE(std::equal(constant.kernel_levels, constant.kernel_levels + (1 << bits),
                           same.table().kernel_levels));
    const OpenSide open = OpenNormal(Side::kK, 80, 19);
    EXPECT_EQ(
        CodeByReference(open, Parse("tq" + width + ":mean:n8", Side::kK), 4).bytes,
        CodeByReference(open, Parse("fit" + width + ":mean:n8", Side::kK), 4, &same.table()).bytes);
  }
}

TEST(NormedCodec, EveryLevelWritesTheBytesOfTheScalarOne) {
  const Isa before = ActiveIsa();
  std::vector<std::string> specs(std::begin(kAllSpecs), std::end(kAllSpecs));
  specs.insert(specs.end(), {"fit2", "fit3", "fit4"});
  for (const std::string& spec : specs) {
    for (const int head_dim : kHeadDims) {
      for (const char* options : {"", ":mean:n8", ":n8"}) {
        for (Side side : {Side::kK, Side::kV}) {
          if (side == Side::kV && options[0] != 0 && options[1] == 'm') continue;
          if (!IsPossible(spec, side)) continue;
          const Format format = Parse(spec + options, side);
          const LevelTable* fitted =
              format.levels == Levels::kFitted ? &testing::TestLevels(format.bits) : nullptr;
          const OpenSide open = OpenNormal(side, head_dim, 13, 3.0f);
          for (const int first : {0, 5, 64}) {
            const CodedSide want = CodeByReference(open, format, first, fitted);
            for (Isa isa : AvailableIsas()) {
              ASSERT_TRUE(SetActiveIsa(isa).ok());
              std::vector<std::byte> got(want.bytes.size() + 64, std::byte{0xa5});
              EncodeSide(open.layout, open.bytes.data(), want.layout, first, got.data());
              ASSERT_TRUE(std::equal(want.bytes.begin(), want.bytes.end(), got.begin()))
                  << FormatSpec(format) << " " << head_dim << " " << first << " " << IsaName(isa);
              for (size_t i = want.bytes.size(); i < got.size(); ++i) {
                ASSERT_EQ(got[i], std::byte{0xa5});
              }
            }
          }
        }
      }
    }
  }
  ASSERT_TRUE(SetActiveIsa(before).ok());
}

}  // namespace
}  // namespace kvant
