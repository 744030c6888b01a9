// Nested codes: the planes of the worked example, what narrower codes stand for, and pages that
// lose planes.
#include "codec/nested.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/code_place.h"
#include "codec/level_tables.h"
#include "codec/test_pages.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

Format Parse(const std::string& spec, Side side = Side::kK) {
  return ParseFormat(spec, side).value();
}

OpenSide OpenNormal(Side side, int head_dim, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  return OpenSide(side, head_dim, 64, [&](int, int) { return normal(random); });
}

// Any-Precision LLM (arXiv 2402.10517): codes (5 e + 3) mod 8 of elements 0 .. 31 in planes, the
// highest bit first, are 2d2d2d2d 99999999 aaaaaaaa; two planes hold the codes without their last
// bit. The first element is the uppermost bit there; here elements are channels of K.
TEST(Nested, PlanesOfTheWorkedExample) {
  const SideLayout s = MakeSideLayout(Parse("nest3"), Side::kK, 32, 64);
  const SideLayout narrow = MakeSideLayout(Parse("nest2"), Side::kK, 32, 64);
  std::vector<std::byte> bytes(static_cast<size_t>(s.bytes)),
      demoted(static_cast<size_t>(narrow.bytes));
  for (int e = 0; e < 32; ++e) StoreCode(s, bytes.data(), 7, e, (5 * e + 3) % 8);
  DemoteSide(s, bytes.data(), narrow, demoted.data());
  uint32_t planes[3] = {};
  for (int e = 0; e < 32; ++e) {
    const int code = LoadCode(s, bytes.data(), 7, e);
    EXPECT_EQ(code, (5 * e + 3) % 8);
    EXPECT_EQ(LoadCode(narrow, demoted.data(), 7, e), code >> 1);
    for (int i = 0; i < 3; ++i) planes[i] |= static_cast<uint32_t>(code >> (2 - i) & 1) << (31 - e);
  }
  EXPECT_EQ(planes[0], 0x2d2d2d2du);
  EXPECT_EQ(planes[1], 0x99999999u);
  EXPECT_EQ(planes[2], 0xaaaaaaaau);
}

// The mean of what a code stands for, over N(0, 1) and the cells of the 4-bit code, up to the
// factor that all levels of a width share. Rounding to 8 bits moves a level by half a unit.
TEST(Nested, LevelsAreTheMeansOfTheirCells) {
  const LevelTable& fine = LevelTableOf(Parse("nest4"));
  double shared = 0;
  for (int bits = 2; bits <= 4; ++bits) {
    const LevelTable& table = LevelTableOf(Parse("nest" + std::to_string(bits)));
    std::vector<double> mass(16), sum(16);
    for (double z = -8 + 5e-4; z < 8; z += 1e-3) {
      int code = 0;
      while (code < 15 && z * fine.sigma > .5 * (fine.levels[code] + fine.levels[code + 1])) ++code;
      code >>= 4 - bits;
      const double weight = std::exp(-z * z / 2) * 1e-3 / std::sqrt(2 * M_PI);
      mass[static_cast<size_t>(code)] += weight;
      sum[static_cast<size_t>(code)] += weight * z;
    }
    double levels_square = 0, means_square = 0;
    for (int i = 0; i < 1 << bits; ++i) {
      const auto at = static_cast<size_t>(i);
      levels_square += mass[at] * table.levels[i] * table.levels[i];
      means_square += sum[at] * sum[at] / mass[at];
    }
    for (int i = 0; i < 1 << bits; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_NEAR(table.levels[i], sum[at] / mass[at] * std::sqrt(levels_square / means_square), .5)
          << bits << " " << i;
    }
    // Vectors are as long as their 4-bit codes make them: equal mean squares of the levels.
    const double square_of_level = levels_square / (table.sigma * table.sigma);
    if (bits == 2) shared = square_of_level;
    EXPECT_NEAR(square_of_level, shared, 1e-4) << bits;  // sigma is given to five digits
  }
}

// Relative squared error on normal vectors: those at the angle that the table's mse makes, as long
// as the norm of the 4-bit code says (keys: as the original; values: so that 4 bits reach as far
// along it), and the spread of lengths under codes that no norm of their own corrects: mse / (2 D)
// at most.
TEST(Nested, ErrorIsThatOfTheTable) {
  constexpr double kMse[] = {.1203, .0349, .0095};
  for (int bits = 2; bits <= 4; ++bits) {
    for (Side side : {Side::kK, Side::kV}) {
      double error = 0, square = 0;
      for (uint32_t seed = 1; seed <= 20; ++seed) {
        const OpenSide open = OpenNormal(side, 128, seed);
        const CodedSide coded =
            CodeByReference(open, Parse("nest" + std::to_string(bits), side), 0);
        for (int t = 0; t < 64; ++t) {
          for (int c = 0; c < 128; ++c) {
            error += std::pow(open.At(t, c) - coded.At(t, c), 2);
            square += std::pow(open.At(t, c), 2);
          }
        }
      }
      const double length = side == Side::kK ? 1 : 1 / std::sqrt(1 - kMse[2]);
      const double want = length * length - 2 * length * std::sqrt(1 - kMse[bits - 2]) + 1;
      EXPECT_NEAR(error / square, want, .04 * want) << bits;
    }
  }
}

TEST(Nested, FourBitsDecodeToWhatLloydMaxCodesDo) {
  for (Side side : {Side::kK, Side::kV}) {
    const OpenSide open = OpenNormal(side, 80, 3);
    EXPECT_EQ(CodeByReference(open, Parse("nest4:n8", side), 4).decoded,
              CodeByReference(open, Parse("tq4:n8", side), 4).decoded);
  }
}

TEST(Nested, DemotedPagesAreThoseThatTheEncoderWrites) {
  for (const char* options : {"", ":n8", ":mean", ":mean:bal:n8"}) {
    for (Side side : {Side::kK, Side::kV}) {
      if (side == Side::kV && options[0] != 0 && options[1] == 'm') continue;
      for (const int head_dim : {64, 72, 80, 100, 128, 256}) {
        const OpenSide open = OpenNormal(side, head_dim, 11);
        const auto code = [&](int bits) {
          return CodeByReference(open, Parse("nest" + std::to_string(bits) + options, side), 5);
        };
        const CodedSide pages[] = {code(2), code(3), code(4)};
        for (int from = 1; from < 3; ++from) {
          for (int to = 0; to <= from; ++to) {
            const CodedSide& wide = pages[from];
            const CodedSide& narrow = pages[to];
            ASSERT_TRUE(CanDemote(wide.layout.format, narrow.layout.format));
            std::vector<std::byte> got(narrow.bytes.size() + 64, std::byte{0xa5});
            DemoteSide(wide.layout, wide.bytes.data(), narrow.layout, got.data());
            for (size_t i = narrow.bytes.size(); i < got.size(); ++i) {
              ASSERT_EQ(got[i], std::byte{0xa5});
            }
            got.resize(narrow.bytes.size());
            ASSERT_EQ(got, narrow.bytes) << options << " " << head_dim << " " << from << to;
          }
        }
      }
    }
  }
}

TEST(Nested, ArraysAreDemotedPageByPage) {
  const Format format = Parse("nest4:n8", Side::kV);
  constexpr int kTokens = 192, kHeadDim = 72;
  std::vector<float> values(kTokens * kHeadDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = MixUnit(i) - .5f;
  const auto encode = [&](const char* spec) {
    const Format f = Parse(spec, Side::kV);
    std::vector<std::byte> bytes(
        static_cast<size_t>(EncodedArrayBytes(f, Side::kV, kTokens, kHeadDim).value()));
    EXPECT_TRUE(EncodeArray(f, Side::kV, values, kTokens, kHeadDim, bytes).ok());
    return bytes;
  };
  const std::vector<std::byte> wide = encode("nest4:n8"), want = encode("nest2:n8");
  std::vector<std::byte> got(want.size());
  ASSERT_TRUE(DemoteArray(format, Side::kV, wide, kTokens, kHeadDim, 2, got).ok());
  EXPECT_EQ(got, want);
  const auto refused = [&](const Format& f, int bits, std::span<std::byte> to) {
    return DemoteArray(f, Side::kV, wide, kTokens, kHeadDim, bits, to).code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(format, 1, got));
  EXPECT_TRUE(refused(format, 5, got));
  EXPECT_TRUE(refused(Parse("nest3:n8", Side::kV), 4, got));
  EXPECT_TRUE(refused(Parse("tq4:n8", Side::kV), 3, got));
  EXPECT_TRUE(refused(format, 2, std::span(got).first(got.size() - 1)));
}

}  // namespace
}  // namespace kvant
