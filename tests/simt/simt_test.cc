// The SIMT shim itself: what it reports, and its arithmetic.
#include "simt/simt.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvant::simt {
namespace {

testing::AssertionResult Tells(const std::string& fault, const char* what) {
  if (fault.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << fault << "\" does not tell \"" << what << "\"";
}

std::string RunThreads(const std::function<void()>& thread, int threads = 64) {
  LaunchOptions options;
  options.threads = threads;
  return Launch(options, thread);
}

TEST(Launch, RunsEveryThreadOfEveryBlockOnce) {
  LaunchOptions options;
  options.grid_x = 3;
  options.grid_y = 2;
  options.threads = 64;
  for (const Schedule schedule : {Schedule::kRoundRobin, Schedule::kRandom, Schedule::kRunAhead}) {
    options.schedule = schedule;
    std::vector<int> seen(6 * 64);
    EXPECT_EQ(Launch(options,
                     [&] {
                       const int block = BlockY() * 3 + BlockX();
                       SyncThreads();
                       ++seen[static_cast<size_t>(block * 64 + ThreadIndex())];
                     }),
              "");
    EXPECT_EQ(seen, std::vector<int>(6 * 64, 1));
  }
}

TEST(Collectives, ExchangeWhatTheyShould) {
  std::vector<uint32_t> got(32), from(32), turned(32);
  EXPECT_EQ(RunThreads(
                [&] {
                  const uint32_t lane = static_cast<uint32_t>(ThreadIndex());
                  got[lane] = ShuffleXor(lane, 5);
                  from[lane] = ShuffleFrom(lane * 3, 7);
                  // Element (row, column) is 8 row + column.
                  const uint32_t g = lane / 4, t = lane % 4, low = 8 * g + 2 * t;
                  turned[lane] = Transpose8x8(low | ((low + 1) << 16));
                },
                32),
            "");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[lane], lane ^ 5u);
    EXPECT_EQ(from[lane], 21u);
    const uint32_t g = lane / 4, t = lane % 4, low = 8 * (2 * t) + g;
    EXPECT_EQ(turned[lane], low | ((low + 8) << 16));
  }
}

TEST(Collectives, MultiplyAddFollowsThePublishedFragments) {
  // A (row, k) = row - k / 4, B (k, column) = k + 3 column: exact in halves and floats.
  const auto a_at = [](int row, int k) {
    return static_cast<float>(row) - static_cast<float>(k) / 4;
  };
  const auto b_at = [](int k, int column) { return static_cast<float>(k + 3 * column); };
  std::vector<float> out(32 * 4);
  EXPECT_EQ(RunThreads(
                [&] {
                  const int lane = ThreadIndex(), g = lane / 4, t = lane % 4;
                  const auto a_pair = [&](int row, int k) {
                    return PackHalves(a_at(row, k), a_at(row, k + 1));
                  };
                  const uint32_t a[4] = {a_pair(g, 2 * t), a_pair(g + 8, 2 * t),
                                         a_pair(g, 2 * t + 8), a_pair(g + 8, 2 * t + 8)};
                  const uint32_t b0 = PackHalves(b_at(2 * t, g), b_at(2 * t + 1, g));
                  const uint32_t b1 = PackHalves(b_at(2 * t + 8, g), b_at(2 * t + 9, g));
                  const float c[4] = {1, 2, 3, 4};
                  float sums[4];
                  MultiplyAdd(a, b0, b1, c, sums);
                  for (int i = 0; i < 4; ++i) out[static_cast<size_t>(lane * 4 + i)] = sums[i];
                },
                32),
            "");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = static_cast<float>(i + 1);
      for (int k = 0; k < 16; ++k) sum += a_at(row, k) * b_at(k, column);
      EXPECT_EQ(out[static_cast<size_t>(lane * 4 + i)], sum) << row << ", " << column;
    }
  }
}

// Outside of macros, whose arguments all stand at one line.
TEST(Faults, DivergenceIsTold) {
  const std::string branches = RunThreads([] {
    if (ThreadIndex() % 2 == 0) {
      ShuffleXor(1u, 1);
    } else {
      ShuffleXor(2u, 1);
    }
  });
  EXPECT_TRUE(Tells(branches, "diverge"));
  const std::string kinds = RunThreads([] {
    if (ThreadIndex() % 32 == 3) SyncThreads();
    ShuffleXor(1u, 1);
  });
  EXPECT_TRUE(Tells(kinds, "diverge"));
}

TEST(Faults, LanesThatHaveLeftAreTold) {
  EXPECT_TRUE(Tells(RunThreads([] {
                      if (ThreadIndex() != 9) ShuffleXor(1u, 1);
                    }),
                    "which has left"));
}

TEST(Faults, BarriersThatSomeNeverReachAreTold) {
  EXPECT_TRUE(Tells(RunThreads([] {
                      if (ThreadIndex() < 32) SyncThreads();
                    }),
                    "waits without end"));
}

TEST(Faults, UnalignedLoadsAreTold) {
  alignas(16) static const unsigned char bytes[32] = {};
  EXPECT_TRUE(Tells(RunThreads([] {
                      uint32_t words[4];
                      Load16(bytes + 8, words);
                    }),
                    "not aligned"));
}

TEST(SharedArrays, AreTheBlocksOwnAndBeginAsNaN) {
  std::vector<float> first(64);
  EXPECT_EQ(RunThreads([&] {
              float* shared = SharedArray<float>(64);
              first[static_cast<size_t>(ThreadIndex())] = shared[ThreadIndex()];
              SyncThreads();
              shared[ThreadIndex()] = 1;
              SyncThreads();
              EXPECT_EQ(shared[63 - ThreadIndex()], 1.0f);
            }),
            "");
  for (const float x : first) EXPECT_TRUE(std::isnan(x));
}

// Exact fused multiply-adds of halves in integers: units of 2^-48, sums below 2^82.
uint16_t ExactFma(uint16_t a, uint16_t b, uint16_t c) {
  const auto units = [](uint16_t h) {  // of 2^-24
    return static_cast<__int128>(std::ldexp(static_cast<double>(F16ToF32(h)), 24));
  };
  __int128 sum = units(a) * units(b) + (units(c) << 24);
  const bool negative = sum < 0;
  if (negative) sum = -sum;
  // Rounds to 11 bits, or to 2^-24 where the result is subnormal.
  int shift = 24;
  while ((sum >> shift) >= 2048) ++shift;
  __int128 kept = sum >> shift;
  const __int128 rest = sum - (kept << shift), half = __int128{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  const double value = std::ldexp(static_cast<double>(kept), shift - 48);
  const uint16_t magnitude = value > 65504 ? uint16_t{0x7c00} : F32ToF16(static_cast<float>(value));
  return static_cast<uint16_t>(magnitude | (negative ? 0x8000 : 0));
}

TEST(HalfFma, RoundsOnceInHardCases) {
  uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint16_t>(state >> 40);
  };
  int through_float_differs = 0;
  for (int i = 0; i < 400000; ++i) {
    uint16_t a = next(), b = next(), c = next();
    // Products near the addend's half ulp are where two roundings differ from one.
    if (i % 2 == 0)
      a = static_cast<uint16_t>((a & 0x83ff) | 0x3c00),
      b = static_cast<uint16_t>((b & 0x83ff) | 0x1400);
    const auto special = [](uint16_t h) { return (h & 0x7c00) == 0x7c00; };
    if (special(a) || special(b) || special(c)) continue;
    const uint16_t exact = ExactFma(a, b, c), got = HalfFma(a, b, c);
    if ((exact & 0x7fff) == 0 && (got & 0x7fff) == 0) continue;  // the sign of an exact zero
    ASSERT_EQ(got, exact) << a << " " << b << " " << c;
    through_float_differs += F32ToF16(std::fma(F16ToF32(a), F16ToF32(b), F16ToF32(c))) != exact;
  }
  EXPECT_GT(through_float_differs, 0) << "no hard case was among them";
}

}  // namespace
}  // namespace kvant::simt
